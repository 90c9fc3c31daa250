"""The events of each component of a segment on an index, found in the columns of its chunks.

An event is a row of a chunk in which a component is not null. Rows of a segment are numbered through all of its chunks
that have the index, and everything is told by these numbers: which event is the last of its time, what clears what, and
where a value lies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import ChunkData, ComponentColumnDescriptor, join_parts, split_parts
from .query import Integers

Mask = npt.NDArray[np.bool_]
Key = tuple[str, str]
"""A component on an entity."""
Clear = tuple[str, bool]
"""The clears of an entity: all of them, or only those of all below it."""

TOMBSTONE: Final = "Clear:is_recursive"
"""The component whose values clear others."""

_BIG_ENDIAN: Final = np.dtype(">u8")


class Events(NamedTuple):
    """The events of a component that count: ``times`` ascend, each once, and ``rows`` are their numbers.

    ``cleared`` tells of each whether it is that of a clear, which stands for an empty list.
    """

    times: Integers
    rows: Integers
    cleared: Mask | None = None


class _Parts(NamedTuple):
    """The values of a component, in chunks of these numbers."""

    chunks: list[int]
    arrays: list[pa.ListArray]


_NO_PARTS: Final = _Parts([], [])


class ComponentValues(NamedTuple):
    """The values of a component: arrays of its type, each of the rows from one of ``starts`` on."""

    starts: Integers
    arrays: list[pa.ListArray]


class SegmentEvents:
    """The events of the components ``columns`` on ``index``, and their static values, in decoded chunks of a segment.

    Chunks come in the order of their layers. ``there`` are the components that the segment has, in whatever chunks,
    which clears empty (None: those of these chunks). Of events at one time the one with the highest row id counts,
    and of several with one id the first; likewise of static values. A component that has a static value has no events.
    """

    def __init__(
        self,
        chunks: Iterable[ChunkData],
        columns: Sequence[ComponentColumnDescriptor],
        index: str | None,
        there: Collection[Key] | None = None,
    ) -> None:
        self._index = index
        self._wanted = {(c.entity_path, c.component): c for c in columns}
        self._above = ancestors(c.entity_path for c in columns)
        self._chunks: list[ChunkData] = []
        self._parts: dict[Key, _Parts] = {}
        self._static: dict[Key, tuple[bytes, pa.ListArray]] = {}
        self._events: dict[object, Events] = {}
        self._there = set() if there is None else self._wanted.keys() & there
        for data in chunks:
            if there is None:
                self._there |= {(data.entity_path, component.descriptor.component) for component in data.components}
            if not data.timelines:
                self._add_static(data)
            elif any(line.name == self._index for line in data.timelines):
                self._add(data)

    def _add(self, data: ChunkData) -> None:
        number = len(self._chunks)
        for component in data.components:
            key = data.entity_path, component.descriptor.component
            if key in self._wanted or (key[1] == TOMBSTONE and key[0] in self._above):
                parts = self._parts.setdefault(key, _Parts([], []))
                parts.chunks.append(number)
                parts.arrays.append(component.values)
        self._chunks.append(data)

    def _add_static(self, data: ChunkData) -> None:
        for component in data.components:
            key = data.entity_path, component.descriptor.component
            if key not in self._wanted or component.values.null_count == len(component.values):
                continue
            ids = data.row_ids.to_pylist()
            rows = np.flatnonzero(component.values.is_valid().to_numpy(zero_copy_only=False)).tolist()
            row = max(rows, key=ids.__getitem__)
            known = self._static.get(key)
            if known is None or ids[row] > known[0]:
                self._static[key] = ids[row], component.values.slice(row, 1)

    # --- what there is of a component

    def static(self, column: ComponentColumnDescriptor) -> pa.ListArray | None:
        """The one static value of a component."""
        known = self._static.get((column.entity_path, column.component))
        return None if known is None else known[1]

    def of(self, column: ComponentColumnDescriptor, *, clears: bool = True) -> Events | None:
        """The events of a component, with what clears it or without; None where it has none on this index, or is
        static. Components that are logged together share them.
        """
        key = column.entity_path, column.component
        if key not in self._there or key in self._static:
            return None
        parts = self._parts.get(key, _NO_PARTS)
        clearing = self._clears_of(key) if clears else ()
        are_whole = bool(parts.arrays) and not any(array.null_count for array in parts.arrays)
        known: object = (tuple(parts.chunks), clearing) if are_whole else (key, clearing)
        if known not in self._events:
            self._events[known] = self._resolved(self._rows(parts), clearing)
        found = self._events[known]
        return found if len(found.times) else None

    def values(self, column: ComponentColumnDescriptor) -> ComponentValues:
        """The values of a component that has events."""
        parts = self._parts.get((column.entity_path, column.component), _NO_PARTS)
        return ComponentValues(self._starts[parts.chunks], parts.arrays)

    def times_on(self, index: str, rows: Integers) -> tuple[Integers, Mask] | None:
        """The times on another index of rows, and which of them are known; None where no chunk has it."""
        if index not in self._others:
            made = [next((t.ticks for t in data.timelines if t.name == index), None) for data in self._chunks]
            self._others[index] = self._laid_out(made) if any(some is not None for some in made) else None
        found = self._others[index]
        return None if found is None else (found[0][rows], found[1][rows])

    @cached_property
    def _others(self) -> dict[str, tuple[Integers, Mask] | None]:
        return {}

    def _laid_out(self, made: Sequence[Integers | None]) -> tuple[Integers, Mask]:
        counts = [data.num_rows for data in self._chunks]
        filled = [np.zeros(n, np.int64) if some is None else some for some, n in zip(made, counts, strict=True)]
        return np.concatenate(filled), np.repeat([some is not None for some in made], counts)

    # --- rows

    @cached_property
    def _starts(self) -> Integers:
        """The number of the first row of each chunk."""
        counts = np.array([0, *(data.num_rows for data in self._chunks)], dtype=np.int64)
        return np.cumsum(counts)

    @cached_property
    def _times(self) -> Integers:
        ticks = [next(t.ticks for t in data.timelines if t.name == self._index) for data in self._chunks]
        return self._moved(np.concatenate(ticks) if ticks else np.empty(0, np.int64))

    def _moved(self, times: Integers) -> Integers:
        """The index values of all rows, where they are compared: as they are."""
        return times

    @cached_property
    def _ids(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        pairs = [
            np.frombuffer(ids.buffers()[1], _BIG_ENDIAN, 2 * len(ids), 16 * ids.offset)
            for ids in (data.row_ids for data in self._chunks)
            if len(ids)
        ]
        whole = np.concatenate(pairs).astype(np.uint64) if pairs else np.empty(0, np.uint64)
        return whole[::2], whole[1::2]

    def _rows(self, parts: _Parts) -> Integers:
        """The rows in which a component is not null."""
        found = []
        for number, array in zip(parts.chunks, parts.arrays, strict=True):
            first = int(self._starts[number])
            if array.null_count:
                found.append(first + np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False)))
            else:
                found.append(np.arange(first, first + len(array), dtype=np.int64))
        return np.concatenate(found) if found else np.empty(0, np.int64)

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
            high, low = self._ids
            numbers = rows[which]
            order[at] = which[np.lexsort((-which, low[numbers], high[numbers], ordered[at]))]
            order = order[np.append(~same, True)]
        return order

    # --- clears

    @cached_property
    def _clears(self) -> dict[Clear, Integers]:
        """The rows in which an entity is cleared, and those in which all below it is cleared, too."""
        found = {}
        for (entity, component), parts in self._parts.items():
            if component == TOMBSTONE:
                starts = self._starts[parts.chunks].tolist()
                clears = [(start, *_clears_in(array)) for start, array in zip(starts, parts.arrays, strict=True)]
                found[entity, False] = np.concatenate([start + rows for start, rows, _ in clears])
                found[entity, True] = np.concatenate([start + rows[deep] for start, rows, deep in clears])
        return {clear: rows for clear, rows in found.items() if len(rows)}

    def _clears_of(self, key: Key) -> tuple[Clear, ...]:
        """The clears that count for a component: those of its entity, unless it is one itself, and from above."""
        entity, component = key
        return tuple(
            (other, deep)
            for other, deep in self._clears
            if (deep and _is_below(entity, other)) or (not deep and other == entity and component != TOMBSTONE)
        )


def _clears_in(array: pa.ListArray) -> tuple[Integers, Mask]:
    """The rows that clear something, and which of them clear what is below, too."""
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
    found: set[str] = set()
    for entity in set(entities):
        parts = list(split_parts(entity))
        found.update(join_parts(parts[:depth]) for depth in range(len(parts) + 1))
    return found
