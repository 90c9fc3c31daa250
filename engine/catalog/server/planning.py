"""Plans: the chunks of a layer that a query of the protocol needs, by its manifest alone.

More chunks than needed are right, as clients look at each themselves; fewer are wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from ...rrd import ChunkTable

Mask = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]

_LEAST: Final = np.iinfo(np.int64).min
_CLEARS: Final = "Clear:is_recursive"
_MOST_CELLS: Final = 1 << 17
"""Components of chunks, for each of some times, that are compared at once: a few MiB."""


@dataclass(frozen=True, slots=True)
class ChunkQuery:
    """A query: the entities, None for all, and when.

    Which of an entity's components are wanted does not count, as in Rerun's server: the rows that a client makes are
    those of all of them.

    Without a ``timeline`` all chunks are wanted. With one, static chunks are, and of the others those that have values
    in ``window`` (both ends included), those which can have the latest value of a component at one of ``latest_at``,
    and those whose range holds one of ``values``; all three by the segment, where they are mappings.
    """

    entities: Set[str] | None = None
    timeline: str | None = None
    window: tuple[int, int] | None = None
    latest_at: Sequence[int] | Mapping[str, Sequence[int]] = ()
    values: Mapping[str, Sequence[int]] = field(default_factory=dict)
    wants_static: bool = True
    wants_temporal: bool = True

    def rows(self, table: ChunkTable, segment_id: str) -> Integers:
        """The rows of the chunks that are needed of a layer of a segment."""
        wanted = self._of_entities(table)
        static = table.is_static
        temporal = np.zeros(len(table), np.bool_)
        if self.wants_temporal:
            temporal = ~static if self.timeline is None else self._at_times(table, segment_id)
        return np.flatnonzero(wanted & ((static & self.wants_static) | (temporal & ~static)))

    def _of_entities(self, table: ChunkTable) -> Mask:
        if self.entities is None:
            return np.ones(len(table), np.bool_)
        codes, paths = table.entity_codes
        found: Mask = np.array([path in self.entities for path in paths], np.bool_)[codes]
        return found

    def _at_times(self, table: ChunkTable, segment_id: str) -> Mask:
        starts, ends, there = chunk_ranges(table, self.timeline or "")
        found = np.zeros(len(table), np.bool_)
        if self.window is not None:
            first, last = self.window
            found |= there & (starts <= last) & (ends >= first)
        latest = self.latest_at
        times = latest.get(segment_id, ()) if isinstance(latest, Mapping) else latest
        if len(times):
            found |= _latest(table, starts, ends, there, np.unique(np.array(times, np.int64)))
        values = np.unique(np.array(self.values.get(segment_id, ()), np.int64))
        if len(values):
            at = np.searchsorted(values, starts)
            found |= there & (at < len(values)) & (values[np.minimum(at, len(values) - 1)] <= ends)
        return found


def chunk_ranges(table: ChunkTable, timeline: str) -> tuple[Integers, Integers, Mask]:
    """The first and the last value of each chunk on a timeline, and whether it has some."""
    cells = table.timelines
    of_line = np.array([name == timeline for name, _ in cells.keys], np.bool_)[cells.codes] & cells.is_known
    rows = np.repeat(np.arange(len(table)), np.diff(cells.ends))[of_line]
    starts, ends = np.zeros(len(table), np.int64), np.zeros(len(table), np.int64)
    there = np.zeros(len(table), np.bool_)
    starts[rows], ends[rows], there[rows] = cells.start[of_line], cells.end[of_line], True
    return starts, ends, there


def _latest(table: ChunkTable, starts: Integers, ends: Integers, there: Mask, times: Integers) -> Mask:
    """The chunks that can hold the latest value of one of their components at one of ``times``.

    A chunk is out where another one surely has a value behind its end, and not after the time: one that has the
    component in every row, and so at its start, and at its end.
    """
    found = np.zeros(len(table), np.bool_)
    cells, (entities, _) = table.components, table.entity_codes
    counts = np.diff(cells.ends)
    found |= there & (starts <= times[-1]) & (counts == 0)
    rows = np.repeat(np.arange(len(table)), counts)
    use = np.flatnonzero(there[rows])
    keys = entities[rows[use]] * max(len(cells.descriptors), 1) + cells.codes[use]
    order = np.argsort(keys, kind="stable")
    use, keys = use[order], keys[order]
    rows = rows[use]
    if not len(rows):
        return found
    first, last, full = starts[rows], ends[rows], _have_in_all_rows(table)[use]
    clears = np.array([d.component == _CLEARS for d in cells.descriptors], np.bool_)[cells.codes[use]]
    is_new = np.diff(keys, prepend=-1) != 0
    begins, group = np.flatnonzero(is_new), np.cumsum(is_new) - 1
    at_once = max(_MOST_CELLS // len(rows), 1)
    for at in range(0, len(times), at_once):  # all times of some, as a matrix: one by one they cost tenfold
        time = times[at : at + at_once, None]
        early = first <= time
        known = np.where(early & full, np.where(last <= time, last, first), _LEAST)
        latest = np.maximum.reduceat(known, begins, axis=1)[:, group]
        kept = early & ((np.minimum(last, time) >= latest) | clears)
        found[rows[kept.any(axis=0)]] = True
    return found


def _have_in_all_rows(table: ChunkTable) -> Mask:
    """For each component of each chunk, whether the manifest tells that every row has a value of it."""
    cells = table.components
    has = np.flatnonzero(np.diff(cells.range_ends))
    counts = np.zeros(len(cells.codes), np.int64)
    counts[has] = cells.num_rows[cells.range_ends[has]]
    found: Mask = counts == np.repeat(table.num_rows.astype(np.int64), np.diff(cells.ends))
    return found
