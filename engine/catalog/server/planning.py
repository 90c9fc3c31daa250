"""Plans: the chunks of a layer that a query of the protocol needs, by its manifest alone.

More chunks than needed are right, as clients look at each themselves; fewer are wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from ...rrd import ChunkTable

Mask = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]

_LEAST: Final = np.iinfo(np.int64).min
_CLEARS: Final = "Clear:is_recursive"

Contents = Mapping[str, frozenset[str] | None] | None
"""The components that are wanted of each entity, None for all; or all of all."""


@dataclass(frozen=True, slots=True)
class ChunkQuery:
    """A query: its contents, and when.

    Without a ``timeline`` all chunks are wanted. With one, static chunks are, and of the others those that have values
    in ``window`` (both ends included), those which can have the latest value of a component at one of ``latest_at``,
    and those whose range holds one of ``values``; all three by the segment, where they are mappings.
    """

    contents: Contents = None
    timeline: str | None = None
    window: tuple[int, int] | None = None
    latest_at: Sequence[int] | Mapping[str, Sequence[int]] = ()
    values: Mapping[str, Sequence[int]] = field(default_factory=dict)
    wants_static: bool = True
    wants_temporal: bool = True

    def rows(self, table: ChunkTable, segment_id: str) -> Integers:
        """The rows of the chunks that are needed of a layer of a segment."""
        wanted = self._of_contents(table)
        static = table.is_static
        temporal = np.zeros(len(table), np.bool_)
        if self.wants_temporal:
            temporal = ~static if self.timeline is None else self._at_times(table, segment_id)
        return np.flatnonzero(wanted & ((static & self.wants_static) | (temporal & ~static)))

    def _of_contents(self, table: ChunkTable) -> Mask:
        if self.contents is None:
            return np.ones(len(table), np.bool_)
        codes, paths = table.entity_codes
        found: Mask = np.array([path in self.contents for path in paths], np.bool_)[codes]
        if all(components is None for components in self.contents.values()):
            return found
        cells = table.components
        names = [descriptor.component for descriptor in cells.descriptors]
        meant = np.ones((len(paths), len(names)), np.bool_)
        for at, path in enumerate(paths):
            components = self.contents.get(path)
            if components is not None:
                meant[at] = [name in components or name == _CLEARS for name in names]
        counts = np.diff(cells.ends)
        rows = np.repeat(np.arange(len(table)), counts)
        has = counts == 0  # only the chunk itself knows its components
        has[rows[meant[codes[rows], cells.codes]]] = True
        chosen: Mask = found & has
        return chosen

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
    cells, (entities, paths) = table.components, table.entity_codes
    counts = np.diff(cells.ends)
    rows = np.repeat(np.arange(len(table)), counts)
    use = there[rows]
    rows, codes = rows[use], cells.codes[use]
    keys = entities[rows] * max(len(cells.descriptors), 1) + codes
    clears = np.array([d.component == _CLEARS for d in cells.descriptors], np.bool_)[codes]
    full = _have_in_all_rows(table)[use]
    size = len(paths) * max(len(cells.descriptors), 1)
    for time in times.tolist():
        early = starts[rows] <= time
        latest = np.full(size, _LEAST, np.int64)
        sure = early & full
        np.maximum.at(latest, keys[sure], np.where(ends[rows] <= time, ends[rows], starts[rows])[sure])
        kept = early & ((np.minimum(ends[rows], time) >= latest[keys]) | clears)
        found[rows[kept]] = True
        found |= there & (starts <= time) & (counts == 0)
    return found


def _have_in_all_rows(table: ChunkTable) -> Mask:
    """For each component of each chunk, whether the manifest tells that every row has a value of it."""
    cells = table.components
    has = np.flatnonzero(np.diff(cells.range_ends))
    counts = np.zeros(len(cells.codes), np.int64)
    counts[has] = cells.num_rows[cells.range_ends[has]]
    found: Mask = counts == np.repeat(table.num_rows.astype(np.int64), np.diff(cells.ends))
    return found
