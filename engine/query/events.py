"""The events of each component of a segment on an index, and its static values.

An event is a row of a chunk in which a component is not null. The rows of a segment are numbered through all of its
chunks with the index. All answers are such numbers: the last event of each time, its clears, and the place of each
value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import ComponentColumnDescriptor, join_parts, split_parts
from .chunk_rows import ChunkRows, Presence
from .query import Integers, Key, Mask

Clear = tuple[str, bool]
"""The clears of an entity: all of them, or only those of all below it."""

TOMBSTONE: Final = "Clear:is_recursive"
"""The component whose values clear others."""


class Events(NamedTuple):
    """The events of a component that count: ``times`` ascend, each once, and ``rows`` are their numbers.

    ``cleared`` marks the events of clears. Such an event has an empty list as its value.
    """

    times: Integers
    rows: Integers
    cleared: Mask | None = None


class StaticValues:
    """The static values of components, in rows of chunks without an index.

    Of several values of a component the one with the highest row id counts, and of several with one id the first.
    """

    def __init__(self, rows: ChunkRows) -> None:
        self._rows = rows
        self._found: dict[Key, int] = {}
        self._values: dict[Key, pa.ListArray] = {}

    def has(self, key: Key) -> bool:
        """Return whether a component has a value."""
        return self._row(key) >= 0

    def value(self, key: Key) -> pa.ListArray | None:
        """The one value of a component. Raises ``ReadError``."""
        row = self._row(key)
        if row >= 0 and key not in self._values:
            chunk = int(np.searchsorted(self._rows.starts, row, side="right")) - 1
            (values,) = self._rows.arrays(key, np.array([chunk]))
            self._values[key] = values.slice(row - int(self._rows.starts[chunk]), 1)
        return self._values.get(key)

    def _row(self, key: Key) -> int:
        if key not in self._found:
            rows = self._rows.rows(self._rows.presence(key))
            row = -1
            if len(rows):
                high, low = self._rows.ids
                row = int(rows[np.lexsort((-rows, low[rows], high[rows]))[-1]])
            self._found[key] = row
        return self._found[key]


class ChunkRanges(NamedTuple):
    """The first and the last event of a component in each of some chunks, by ascending numbers of these."""

    chunks: Integers
    starts: Integers
    ends: Integers


class ClaimedRanges(Protocol):
    """The ranges of events by component and chunk, from which chunks were chosen."""

    unclear: Integers
    is_filled: bool

    def claimed(self, key: Key) -> ChunkRanges:
        """The ranges of the events of a component, but in ``unclear`` chunks."""
        ...


class Static(Protocol):
    """The static values by component."""

    def has(self, key: Key) -> bool:
        """Return whether a component has one."""
        ...


class SegmentEvents:
    """The events of the components ``columns`` on ``index``, in rows of chunks of a segment that have it.

    Chunks come in the order of their layers. ``component_keys`` are the components of the segment in any chunk; clears
    empty them. Of events at one time the one with the highest row id counts, and of several with one id the first. A
    component that has a static value has no events. ``claims`` is what chunks were chosen by, and is checked.
    """

    def __init__(
        self,
        rows: ChunkRows,
        static: Static,
        columns: Sequence[ComponentColumnDescriptor],
        index: str,
        component_keys: Collection[Key],
        claims: ClaimedRanges,
    ) -> None:
        self.rows = rows
        self._claims = claims
        self._ranges: dict[object, ChunkRanges] = {}
        self._static = static
        self._index = index
        self._component_keys = component_keys
        self._above = ancestors(c.entity_path for c in columns)
        self._events: dict[object, Events] = {}

    def of(self, column: ComponentColumnDescriptor, *, clears: bool = True) -> Events | None:
        """Return the events of a component, with or without its clears. None if it is static or has no event on this
        index. Components that are logged together share them.
        """
        key = column.entity_path, column.component
        if key not in self._component_keys or self._static.has(key):
            return None
        present = self._present(key)
        self._check(key, present)
        clearing = self._clears_of(key) if clears else ()
        cache_key: object = (key if present.mask is not None else present.chunks.tobytes(), clearing)
        if cache_key not in self._events:
            self._events[cache_key] = self._resolved(self.rows.rows(present), clearing)
        events = self._events[cache_key]
        return events if len(events.times) else None

    def _check(self, key: Key, present: Presence) -> None:
        """Raise ``ReadError`` if events of a component are outside the ranges from which chunks were chosen."""
        if not len(present.chunks):
            return
        shared = present.chunks.tobytes() if present.mask is None else key
        if shared not in self._ranges:
            self._ranges[shared] = self._ranges_of(present)
        chunks, starts, ends = self._ranges[shared]
        claimed = self._claims.claimed(key)
        at = np.minimum(np.searchsorted(claimed.chunks, chunks), max(len(claimed.chunks) - 1, 0))
        if len(claimed.chunks):
            is_claimed = (claimed.chunks[at] == chunks) & (claimed.starts[at] <= starts) & (claimed.ends[at] >= ends)
            if self._claims.is_filled:  # then other chunks may have been left out for what begins or ends there
                is_claimed &= (claimed.starts[at] == starts) & (claimed.ends[at] == ends)
        else:
            is_claimed = np.zeros(len(chunks), np.bool_)
        if not is_claimed.all():
            others = chunks[~is_claimed]
            others = others[~np.isin(others, self._claims.unclear)]
            if len(others):
                raise self.rows.unlike(int(others[0]))

    def _ranges_of(self, present: Presence) -> ChunkRanges:
        numbers = self.rows.numbers[present.chunks]
        if present.mask is None:
            starts, ends = self._whole_ranges
            return ChunkRanges(numbers, starts[present.chunks], ends[present.chunks])
        times = self.rows.ticks(self._index)[0][self.rows.rows(present)]
        counts = self.rows.counts[present.chunks]
        counts = np.add.reduceat(present.mask, np.cumsum(counts) - counts, dtype=np.int64)
        firsts = np.cumsum(counts) - counts
        return ChunkRanges(numbers, np.minimum.reduceat(times, firsts), np.maximum.reduceat(times, firsts))

    @cached_property
    def _whole_ranges(self) -> tuple[Integers, Integers]:
        """The first and the last index value of each chunk that has rows."""
        times, has_rows = self.rows.ticks(self._index)[0], self.rows.counts > 0
        firsts = self.rows.starts[:-1][has_rows]
        starts, ends = np.zeros(len(has_rows), np.int64), np.zeros(len(has_rows), np.int64)
        starts[has_rows], ends[has_rows] = np.minimum.reduceat(times, firsts), np.maximum.reduceat(times, firsts)
        return starts, ends

    # --- rows

    @cached_property
    def _times(self) -> Integers:
        return self._moved(self.rows.ticks(self._index)[0])

    def _moved(self, times: Integers) -> Integers:
        """The index values of all rows, where they are compared: as they are."""
        return times

    def _present(self, key: Key) -> Presence:
        """The rows with values of a component that may be events."""
        return self.rows.presence(key)

    def _resolved(self, rows: Integers, clears: tuple[Clear, ...]) -> Events:
        """The event that counts at each time, of these rows and of clears."""
        count = len(rows)
        rows = np.concatenate([rows, *(self._clears[clear] for clear in clears)])
        order = self._last_of_each_time(rows)
        kept = rows[order]
        return Events(self._times[kept], kept, order >= count if clears else None)

    def _last_of_each_time(self, rows: Integers) -> Integers:
        """Places in ``rows`` by their times; of rows of one time that with the highest id."""
        times = self._times[rows]
        if bool((times[1:] > times[:-1]).all()):
            return np.arange(len(rows))
        order = np.argsort(times, kind="stable")
        ordered = times[order]
        same = ordered[1:] == ordered[:-1]
        if same.any():
            among = np.zeros(len(rows), np.bool_)
            among[1:] |= same
            among[:-1] |= same
            at = np.flatnonzero(among)
            which = order[at]
            high, low = self.rows.ids
            numbers = rows[which]
            order[at] = which[np.lexsort((-which, low[numbers], high[numbers], ordered[at]))]
            order = order[np.append(~same, True)]
        return order

    # --- clears

    @cached_property
    def _clears(self) -> dict[Clear, Integers]:
        """Return the rows in which an entity is cleared, and those in which it is cleared recursively."""
        clears_of: dict[Clear, Integers] = {}
        for entity in self._above:
            key = entity, TOMBSTONE
            chunks = self._present(key).chunks
            if not len(chunks):
                continue
            starts = self.rows.starts[chunks].tolist()
            clears = [
                (start, *_clears_in(some)) for start, some in zip(starts, self.rows.arrays(key, chunks), strict=True)
            ]
            clears_of[entity, False] = np.concatenate([start + rows for start, rows, _ in clears])
            clears_of[entity, True] = np.concatenate([start + rows[deep] for start, rows, deep in clears])
        return {clear: rows for clear, rows in clears_of.items() if len(rows)}

    def _clears_of(self, key: Key) -> tuple[Clear, ...]:
        """The clears that count for a component: those of its entity, unless it is one itself, and from above."""
        entity, component = key
        return tuple(
            (other, deep)
            for other, deep in self._clears
            if (deep and _is_below(entity, other)) or (not deep and other == entity and component != TOMBSTONE)
        )


def _clears_in(array: pa.ListArray) -> tuple[Integers, Mask]:
    """Return the rows with a clear, and a mask of the recursive ones."""
    rows = np.flatnonzero(np.asarray(pc.fill_null(pc.list_value_length(array), 0)))
    first = pc.list_element(array.take(pa.array(rows)), 0)
    if not pa.types.is_boolean(first.type):
        return rows, np.zeros(len(rows), np.bool_)
    return rows, pc.fill_null(first, False).to_numpy(zero_copy_only=False).astype(np.bool_)


def _is_below(entity: str, other: str) -> bool:
    above = split_parts(other)
    parts = split_parts(entity)
    return len(parts) > len(above) and parts[: len(above)] == above


def ancestors(entities: Iterable[str]) -> set[str]:
    """These entities, and all above them."""
    paths: set[str] = set()
    for entity in set(entities):
        parts = list(split_parts(entity))
        paths.update(join_parts(parts[:depth]) for depth in range(len(parts) + 1))
    return paths
