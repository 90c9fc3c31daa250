"""The chunks of one store of an RRD as the source of a stream: divided into splits, read by tasks, or passed on."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from ..engine.chunk import Chunk
from ..engine.errors import ReadWarning
from ..engine.limits import MIB, SPLIT_BYTES
from ..engine.objects import is_url
from ..engine.rrd import (
    ChunkEntry,
    FileRun,
    HeldFile,
    ManifestTable,
    RecoveringFile,
    RrdFile,
    RunRows,
    StoreEntry,
    divided,
    says_all,
)
from ..engine.stream import Fate, Outline, Split

_PASSED_BYTES: Final = 256 * MIB
"""How much a task passes on: that takes a tenth of a second, and a task some hundredths before it begins."""

_MOST_KINDS: Final = 1 << 61


@dataclass(frozen=True, slots=True)
class RrdSplit(Split):
    """Chunks of a store: some rows or entries of its manifest, or all by scanning.

    ``version`` is that of the file when it was divided: what is read must still be it. ``held`` keeps
    it open in the process that divided it. Of one that ``is_run`` nothing is looked into.
    """

    listed: ManifestTable | tuple[ChunkEntry, ...] | None
    version: str | None = None
    held: HeldFile | None = field(default=None, compare=False, repr=False)
    is_run: bool = False


@dataclass(frozen=True, slots=True)
class RrdSource:
    """The chunks of one store of an RRD file.

    Order: that of the file. Restart: each split can be read again by itself. With a footer a split is a run of
    manifest entries, without one the whole file.
    """

    path: str
    store: StoreEntry
    wanted: Callable[[str], bool] | None = None

    def describe(self) -> str:
        """One line for the plan."""
        return f"RrdReader({Path(self.path).name}, {self.store.text})"

    def paths(self) -> Sequence[str]:
        """The file that is read."""
        return [self.path]

    def narrowed(self, wanted: Callable[[str], bool]) -> RrdSource:
        """The same store without the entities for which ``wanted`` is false: with a footer they are never read."""
        return replace(self, wanted=wanted)

    def splits(self) -> Sequence[RrdSplit]:
        """Runs of manifest entries of about 64 MiB uncompressed, or one split for a file without a footer."""
        file = RrdFile(self.path)
        table = file.listing(self.store)
        if table is not None:
            if self.wanted is not None:
                codes, paths = table.entity_codes
                table = table.take(np.flatnonzero(np.array([self.wanted(p) for p in paths], dtype=bool)[codes]))
            return self._of_tables(table.runs(SPLIT_BYTES), file)
        runs = file.split_entries(self.store)
        if runs is None:
            return [RrdSplit(Path(self.path).name, file.size, None, file.content_version, file.held)]
        if self.wanted is not None:
            kept = ([e for e in run if self.wanted(e.header.entity_path)] for run in runs)
            runs = [run for run in kept if run]
        return [
            RrdSplit(label, sum(e.size for e in run), tuple(run), file.content_version, file.held)
            for label, run in zip(self._labels(len(runs)), runs, strict=True)
        ]

    def run_splits(self, fate: Callable[[Outline], Fate]) -> Sequence[RrdSplit] | None:
        """Splits of the chunks that are passed on, undecoded.

        None where some are looked into, where the file has no footer that says all of them, and for an object in a
        store.
        """
        if is_url(self.path):
            return None
        file = RrdFile(self.path)
        table = file.listing(self.store)
        if table is None:
            return None
        fates = _fates(table, fate)
        if bool(np.any(fates == Fate.LOOKED_INTO.value)):
            return None
        table = table.take(np.flatnonzero(fates == Fate.PASSED_ON.value))
        return self._of_tables(divided(table, _PASSED_BYTES), file, is_run=True) if says_all(table) else None

    def whole_run(self, split: RrdSplit, fate: Callable[[Outline], Fate]) -> FileRun | None:
        """The messages of any split that are passed on, where none is looked into."""
        table = split.listed
        if not isinstance(table, ManifestTable) or is_url(self.path):
            return None
        if split.is_run:
            return FileRun(table, self.store, self.path, split.version)
        fates = _fates(table, fate)
        if bool(np.any(fates == Fate.LOOKED_INTO.value)):
            return None
        table = table.take(np.flatnonzero(fates == Fate.PASSED_ON.value))
        return FileRun(table, self.store, self.path, split.version) if len(table) and says_all(table) else None

    def pieces(self, split: RrdSplit, fate: Callable[[Outline], Fate]) -> Iterator[RunRows | Iterator[Chunk]]:
        """A split in runs: messages that are passed on as they lie in the file, and chunks that are looked into."""
        table = split.listed
        if not isinstance(table, ManifestTable) or is_url(self.path):
            yield self.read(split)
            return
        fates = _fates(table, fate)
        rows = np.flatnonzero(fates != Fate.LEFT_OUT.value)
        is_passed = fates[rows] == Fate.PASSED_ON.value
        run = FileRun(table.take(rows[is_passed]), self.store, self.path, split.version)
        if not (len(run.table) and says_all(run.table) and run.lies_as_listed()):
            yield self.read(split)
            return
        entries = table.take(rows[~is_passed]).entries()
        file = RrdFile(self.path, split.version)
        bounds = [0, *(np.flatnonzero(is_passed[1:] != is_passed[:-1]) + 1).tolist(), len(rows)]
        before = np.concatenate([[0], np.cumsum(is_passed)]).tolist()
        for start, stop in itertools.pairwise(bounds):
            if is_passed[start]:
                yield RunRows(run, before[start], before[stop])
            else:
                yield file.chunks(self.store, entries[start - before[start] : stop - before[stop]])

    def read(self, split: RrdSplit) -> Iterator[Chunk]:
        """The chunks of a split, undecoded where the footer tells their headers."""
        entries = split.listed.entries() if isinstance(split.listed, ManifestTable) else split.listed
        for chunk in RrdFile(self.path, split.version).chunks(self.store, entries):
            if self.wanted is None or self.wanted(chunk.entity_path):
                yield chunk

    def _of_tables(self, tables: Sequence[ManifestTable], file: RrdFile, *, is_run: bool = False) -> list[RrdSplit]:
        labels = self._labels(len(tables))
        return [
            RrdSplit(label, int(table.sizes.sum()), table, file.content_version, file.held, is_run)
            for label, table in zip(labels, tables, strict=True)
        ]

    def _labels(self, count: int) -> list[str]:
        return [f"{Path(self.path).name} [{i + 1}/{count}]" for i in range(count)]


def _fates(table: ManifestTable, fate: Callable[[Outline], Fate]) -> npt.NDArray[np.int64]:
    """The value of each row's fate; it is asked once for all that are alike."""
    codes, paths = table.entity_codes
    present, held = table.timelines_present(), table.components_present()
    kind, kinds = codes * 2 + table.is_static, 2 * len(paths)
    for has in (*present.values(), *(held or {}).values()):
        if kinds >= _MOST_KINDS:
            found, kind = np.unique(kind, return_inverse=True)
            kinds = len(found)
        kind, kinds = kind * 2 + has, kinds * 2
    _, first, which = np.unique(kind, return_index=True, return_inverse=True)
    outlines = (
        Outline(
            paths[codes[row]],
            bool(table.is_static[row]),
            [name for name, has in present.items() if has[row]],
            None if held is None else frozenset(d.component for d, has in held.items() if has[row]),
        )
        for row in first.tolist()
    )
    return np.array([fate(outline).value for outline in outlines], dtype=np.int64)[which]


@dataclass(frozen=True, slots=True)
class RecoveringSource:
    """The whole chunks of one store of a cut or damaged file, in one split; warns of what was lost at its end."""

    path: str
    store: StoreEntry

    def describe(self) -> str:
        """One line for the plan."""
        return f"RrdReader({Path(self.path).name}, {self.store.text}, recover=True)"

    def paths(self) -> Sequence[str]:
        """The file that is read."""
        return [self.path]

    def splits(self) -> Sequence[Split]:
        """The whole file."""
        return [Split(Path(self.path).name, RecoveringFile(self.path).report().size)]

    def read(self, split: Split) -> Iterator[Chunk]:  # noqa: ARG002 (there is only one)
        """Every chunk that is whole."""
        file = RecoveringFile(self.path)
        report = file.report()
        yield from file.chunks(self.store, report)
        if not report.is_whole:
            warnings.warn(str(report), ReadWarning, stacklevel=2)
