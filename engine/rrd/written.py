"""The record of what a task wrote into its part: chunks one by one, and runs of messages that were passed on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..errors import WriteError
from .chunk_columns import ChunkColumns, UnionComponent, columns_of_entries, joined
from .chunk_table import ChunkEntry
from .framing import MESSAGE_HEADER_SIZE
from .listing import listing_of_columns
from .manifest_table import ManifestTable, Numbers
from .messages import StoreEntry
from .runs import Run, RunRows
from .taken_columns import columns_of_table


class _Passed(NamedTuple):
    """Rows of a run, with where and how long they are now."""

    table: ManifestTable
    offsets: Numbers
    sizes: Numbers


class WrittenListing(NamedTuple):
    """Rows of a manifest; ``known`` is what they were made of, if that is in their order."""

    table: ManifestTable
    known: ChunkColumns | None

    @property
    def columns(self) -> ChunkColumns:
        """The columns that a footer is made of."""
        columns = columns_of_table(self.table) if self.known is None else self.known
        assert columns is not None
        return columns


class WrittenChunks:
    """Collects what was written into one part, of one store, in order."""

    def __init__(self, store: StoreEntry) -> None:
        self.entries: list[ChunkEntry] = []
        """The chunks that were not passed on."""

        self.chunks = self.rows = 0
        self._store = store
        self._run: Run | None = None
        self._runs: list[tuple[RunRows, int]] = []

    def add(self, entry: ChunkEntry) -> None:
        """One more chunk."""
        self.entries.append(entry)
        self.count(entry.header.num_rows)

    def count(self, rows: int) -> None:
        """One more chunk, of which something else tells."""
        self.chunks += 1
        self.rows += rows

    def add_run(self, run: RunRows, position: int) -> None:
        """Messages that begin at ``position``. All of a part are of one run."""
        assert self._run in (None, run.run)
        self._run = run.run
        self._runs.append((run, position))
        self.chunks += run.stop - run.start
        self.rows += int(run.run.table.num_rows[run.start : run.stop].sum())

    def listing(self) -> WrittenListing | None:
        """Rows of a manifest that say of all of them what a footer would; None where one can't.

        See :func:`listing_of_columns`. None too for chunks that are fewer than its columns: each column takes as long
        as a row of its own for a chunk, to make and to read (64 chunks of 75 ranges of components: 75 ms, 13 as rows;
        ``benchmarks/bench_convert.py``).
        """
        passed = self._passed()
        try:
            own = columns_of_entries(self.entries, path="") if self.entries else None
            if passed is None and own is not None and len(own) < own.manifest_columns:
                return None
            columns = own if passed is None else _together(own, passed)
            table = None if columns is None else listing_of_columns(columns)
        except WriteError:
            return None
        if passed is not None and table is not None:
            table = table.ordered()
        return None if table is None else WrittenListing(table, own if passed is None else None)

    def take(self) -> list[ChunkEntry]:
        """An entry for each, in order; none is left."""
        entries, self.entries = self.entries, []
        passed = self._passed()
        if passed is not None:
            self._runs = []
            places = zip(passed.table.entries(), passed.offsets.tolist(), passed.sizes.tolist(), strict=True)
            entries += [replace(entry, offset=offset, size=size) for entry, offset, size in places]
            entries.sort(key=lambda e: e.offset)
        return entries

    def _passed(self) -> _Passed | None:
        if self._run is None or not self._runs:
            return None
        rows = np.concatenate([np.arange(run.start, run.stop) for run, _ in self._runs])
        counts = [run.stop - run.start for run, _ in self._runs]
        sizes = self._run.sizes_in(self._store)[rows]
        ends = np.cumsum(sizes + np.uint64(MESSAGE_HEADER_SIZE), dtype=np.uint64)
        firsts = np.cumsum([0, *counts[:-1]])
        before = np.append(np.zeros(1, np.uint64), ends)[firsts]  # of all runs, one behind the other
        shifts = np.array([position for _, position in self._runs], dtype=np.uint64) - before
        return _Passed(self._run.table.take(rows), ends - sizes + np.repeat(shifts, counts), sizes)


def _together(own: ChunkColumns | None, passed: _Passed) -> ChunkColumns | None:
    """The columns of chunks and of runs together; None where they do not go into one."""
    columns = columns_of_table(passed.table)
    if columns is None or (own is not None and _disagree(own.union, columns.union)):
        return None
    columns = replace(columns, offsets=passed.offsets, sizes=passed.sizes)
    return columns if own is None else joined([own, columns], path="")


def _disagree(
    first: Mapping[tuple[str, str], UnionComponent], second: Mapping[tuple[str, str], UnionComponent]
) -> bool:
    """Whether a component is described in two ways: then the chunk that comes first in the file has its way."""
    return any(
        (known.descriptor, known.datatype) != (second[key].descriptor, second[key].datatype)
        for key, known in first.items()
        if key in second
    )
