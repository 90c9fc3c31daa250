"""The events of each component of a segment on an index, and the rows of chunks in which they are.

An event is a row of a chunk in which a component is not null. Rows are numbered consecutively over all chunks of a
segment that have the index. All results are such numbers: the last event of each time, its clears, and the place of
each value.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from typing import Final, NamedTuple, NoReturn, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import ChunkData, ComponentColumnDescriptor, TimelineKind, join_parts, split_parts
from ..errors import ReadError
from ..rrd import MIXED, ByChunk, ChunkTable, Times, Validity
from .query import Integers, Key, Mask

Halves = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]
"""The upper and the lower half of row ids."""

_BIG_ENDIAN: Final = np.dtype(">u8")
_NO_INTEGERS: Final = np.empty(0, np.int64)


class Presence(NamedTuple):
    """The rows in which a component is not null: all rows of ``chunks``, or those that ``mask`` selects."""

    chunks: Integers
    mask: Mask | None = None


class LayerRows(Protocol):
    """The rows of some chunks of a layer: ``numbers`` are the chunk numbers, ``counts`` their numbers of rows."""

    numbers: Integers
    counts: Integers

    def ticks(self, index: str) -> ByChunk:
        """The values of an index: for each chunk, one value per row, or no values."""
        ...

    def ids(self) -> Halves:
        """The row ids."""
        ...

    def presence(self, key: Key) -> Presence:
        """The rows in which a component is not null. Chunks are given by their places in ``numbers``."""
        ...

    def refused(self, data: ChunkData) -> ReadError:
        """Return the error for a chunk that differs from its recorded times."""
        ...


class ReadRows:
    """The rows of chunks that were read."""

    def __init__(self, numbers: Integers, chunks: Sequence[ChunkData], index: str | None) -> None:
        are_on = np.array([index is None or any(t.name == index for t in data.timelines) for data in chunks], np.bool_)
        self._chunks = [data for data, is_on in zip(chunks, are_on.tolist(), strict=True) if is_on]
        self.numbers = numbers[are_on]
        self.counts = np.array([data.num_rows for data in self._chunks], np.int64)

    def ticks(self, index: str) -> ByChunk:
        """The values of an index."""
        made = [next((t.ticks for t in data.timelines if t.name == index), _NO_INTEGERS) for data in self._chunks]
        return ByChunk(_joined(made), np.cumsum([0, *map(len, made)]))

    def ids(self) -> Halves:
        """The row ids."""
        pairs = [
            np.frombuffer(ids.buffers()[1], _BIG_ENDIAN, 2 * len(ids), 16 * ids.offset)
            for ids in (data.row_ids for data in self._chunks)
            if len(ids)
        ]
        whole = np.concatenate(pairs).astype(np.uint64) if pairs else np.empty(0, np.uint64)
        return whole[::2], whole[1::2]

    def presence(self, key: Key) -> Presence:
        """The rows in which a component is not null."""
        parts = self._parts.get(key, ())
        places = np.array([i for i, _ in parts], np.int64)
        if not any(values.null_count for _, values in parts):
            return Presence(places)
        masks = [values.is_valid().to_numpy(zero_copy_only=False) for _, values in parts]
        return Presence(places, np.concatenate(masks))

    def refused(self, data: ChunkData) -> ReadError:
        """The error for a chunk that was changed between two reads."""
        return ReadError(f"chunk {data.chunk_id.hex()} was changed while it was read")

    @cached_property
    def _parts(self) -> dict[Key, list[tuple[int, pa.ListArray]]]:
        parts: dict[Key, list[tuple[int, pa.ListArray]]] = {}
        for i, data in enumerate(self._chunks):
            for component in data.components:
                if component.values.null_count < len(component.values):
                    key = data.entity_path, component.descriptor.component
                    parts.setdefault(key, []).append((i, component.values))
        return parts


class RecordedRows:
    """The rows of chunks, from their layer's recorded times; ``first`` is the number of the layer's first chunk."""

    def __init__(self, times: Times, table: ChunkTable, first: int, numbers: Integers, index: str | None) -> None:
        self._times = times
        self._rows = numbers - first
        if index is not None:
            self._rows = self._rows[np.diff(self.ticks(index).ends) > 0]
        self.numbers = self._rows + first
        self.counts = times.num_rows(self._rows)
        codes, paths = table.entity_codes
        self._entities = {path: code for code, path in enumerate(paths)}
        self._codes = codes[self._rows]

    def ticks(self, index: str) -> ByChunk:
        """The values of an index."""
        kinds = [kind for name, kind in self._times.timelines(self._rows) if name == index]
        return self._times.index(index, kinds[0] if kinds else TimelineKind.SEQUENCE, self._rows)

    def ids(self) -> Halves:
        """The row ids."""
        high, low = self._times.row_ids(self._rows)
        return high.values, low.values

    def presence(self, key: Key) -> Presence:
        """The rows in which a component is not null."""
        entity, component = key
        places = np.flatnonzero(self._codes == self._entities.get(entity, -1))
        states = self._times.states(component, self._rows[places])
        is_there = states != Validity.NULL
        places = places[is_there]
        if not (states == MIXED).any():
            return Presence(places)
        return Presence(places, self._times.validity(component, self._rows[places]).values != Validity.NULL)

    def refused(self, data: ChunkData) -> ReadError:
        """The error for a chunk whose times differ."""
        return self._times.unlike(data)


class ChunkRows:
    """The rows of some chunks of a segment, numbered consecutively over its layers.

    ``numbers`` are the chunk numbers; ``starts`` has the first row of each chunk, and the end of all rows. ``load``
    returns chunks by their numbers, ``unlike`` the error for a chunk that differs from its table; ``sizes`` are the
    bytes of each chunk of the segment.
    """

    def __init__(
        self,
        load: Callable[[Integers], list[ChunkData]],
        unlike: Callable[[int], ReadError],
        sizes: Integers,
        layers: Sequence[LayerRows],
    ) -> None:
        self._load = load
        self.unlike = unlike
        self._sizes = sizes
        self._layers = [layer for layer in layers if len(layer.numbers)]
        self._firsts = np.cumsum([0, *(len(layer.numbers) for layer in self._layers)]).tolist()
        self.numbers = _joined([layer.numbers for layer in self._layers])
        self.counts = _joined([layer.counts for layer in self._layers])
        self.starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.counts)])
        self._is_recorded = np.repeat(
            [isinstance(layer, RecordedRows) for layer in self._layers], [len(layer.numbers) for layer in self._layers]
        ).tolist()
        self._present: dict[Key, Presence] = {}
        self._ticks: dict[str, tuple[Integers, Mask | None]] = {}
        self._components: dict[int, dict[str, pa.ListArray]] = {}
        self._counts: dict[Key, dict[int, int]] = {}

    def __len__(self) -> int:
        return int(self.starts[-1])

    def ticks(self, index: str) -> tuple[Integers, Mask | None]:
        """Return the index value of each row, and a mask of the rows with a value, or None if all rows have one."""
        if index not in self._ticks:
            made = [layer.ticks(index) for layer in self._layers]
            has_ticks = _joined([np.diff(some.ends) for some in made]) > 0
            values = _joined([some.values for some in made])
            if has_ticks.all():
                self._ticks[index] = values, None
            else:
                mask = np.repeat(has_ticks, self.counts)
                whole = np.zeros(len(self), np.int64)
                whole[mask] = values
                self._ticks[index] = whole, mask
        return self._ticks[index]

    @cached_property
    def ids(self) -> Halves:
        """The row ids."""
        pairs = [layer.ids() for layer in self._layers]
        none = np.empty(0, np.uint64)
        return np.concatenate([none, *(high for high, _ in pairs)]), np.concatenate([none, *(low for _, low in pairs)])

    def presence(self, key: Key) -> Presence:
        """The rows in which a component is not null."""
        if key not in self._present:
            presences = [layer.presence(key) for layer in self._layers]
            chunks = _joined([some.chunks + first for some, first in zip(presences, self._firsts, strict=False)])
            mask = None
            if any(some.mask is not None for some in presences):
                masks = [
                    np.ones(int(layer.counts[some.chunks].sum()), np.bool_) if some.mask is None else some.mask
                    for some, layer in zip(presences, self._layers, strict=True)
                ]
                mask = np.concatenate(masks)
            self._present[key] = Presence(chunks, mask)
        return self._present[key]

    def rows(self, present: Presence) -> Integers:
        """The numbers of rows in which a component is not null."""
        rows = spread(self.starts[present.chunks], self.counts[present.chunks])
        return rows if present.mask is None else rows[present.mask]

    def arrays(self, key: Key, chunks: Integers) -> list[pa.ListArray]:
        """The values of a component in some of its chunks. Reads missing chunks. Raises ``ReadError``."""
        self.read(chunks)
        chosen = chunks.tolist()
        if any(self._is_recorded[place] for place in chosen):
            self._compare(key, chosen)
        return [self._components[place][key[1]] for place in chosen]

    def _compare(self, key: Key, chosen: list[int]) -> None:
        """Raise ``ReadError`` if the number of a component's values differs from the recorded number."""
        counts = self._value_counts(key)
        for place in chosen:
            values = self._components[place].get(key[1])
            if values is None or len(values) - values.null_count != counts[place]:
                self._refuse(place)

    def read(self, chunks: Integers) -> None:
        """Read the chunks that were not read yet. Raises ``ReadError``, also if times differ from recorded times."""
        missing = np.array([place for place in chunks.tolist() if place not in self._components], np.int64)
        if not len(missing):
            return
        for place, data in zip(missing.tolist(), self._load(self.numbers[missing]), strict=True):
            if self._is_recorded[place] and (data.num_rows != self.counts[place] or not self._has_ticks(place, data)):
                self._refuse(place)
            self._components[place] = {c.descriptor.component: c.values for c in data.components}

    def bytes_of(self, chunks: Integers) -> int:
        """The bytes of the chunks at some places; each chunk counts once."""
        return sum(map(self._bytes_of_chunk, dict.fromkeys(chunks.tolist())))

    def _bytes_of_chunk(self, place: int) -> int:
        read = self._components.get(place)
        return int(self._sizes[self.numbers[place]]) if read is None else sum([v.nbytes for v in read.values()])

    def _has_ticks(self, place: int, data: ChunkData) -> bool:
        start, stop = int(self.starts[place]), int(self.starts[place + 1])
        for line in data.timelines:
            if line.name in self._ticks:
                values, has_ticks = self._ticks[line.name]
                if has_ticks is not None and not has_ticks[start]:
                    return False
                if not np.array_equal(values[start:stop], line.ticks):
                    return False
        return True

    def _value_counts(self, key: Key) -> dict[int, int]:
        """The number of a component's values in each of its chunks."""
        if key not in self._counts:
            present = self.presence(key)
            counts = self.counts[present.chunks]
            if present.mask is not None and len(counts):
                counts = np.add.reduceat(present.mask, np.cumsum(counts) - counts, dtype=np.int64)
            self._counts[key] = dict(zip(present.chunks.tolist(), counts.tolist(), strict=True))
        return self._counts[key]

    def _refuse(self, place: int) -> NoReturn:
        (data,) = self._load(self.numbers[[place]])
        layer = bisect_right(self._firsts, place) - 1
        raise self._layers[layer].refused(data)


def _joined(arrays: Sequence[Integers]) -> Integers:
    return np.concatenate(arrays) if len(arrays) else _NO_INTEGERS


def spread(starts: Integers, counts: Integers) -> Integers:
    """The numbers of several runs, one run after another.

    >>> spread(np.array([5, 1]), np.array([2, 3])).tolist()
    [5, 6, 1, 2, 3]
    """
    if len(starts) and bool((starts[1:] == (starts + counts)[:-1]).all()):
        return np.arange(int(starts[0]), int(starts[-1] + counts[-1]))
    before = np.cumsum(counts) - counts
    numbers: Integers = np.arange(int(counts.sum())) + np.repeat(starts - before, counts)
    return numbers


Clear = tuple[str, bool]
"""An entity's clears: all, or with True only the recursive ones."""

TOMBSTONE: Final = "Clear:is_recursive"
"""The component that clears other components."""


class Events(NamedTuple):
    """A component's events, one per time: ``times`` are distinct and ascending, ``rows`` are the row numbers.

    ``cleared`` marks clears, whose value is an empty list.
    """

    times: Integers
    rows: Integers
    cleared: Mask | None = None


class StaticValues:
    """The static values of components, in rows of chunks without an index.

    If a component has several values, the one with the highest row id counts; of equal row ids, the first one.
    """

    def __init__(self, rows: ChunkRows) -> None:
        self._rows = rows
        self._found: dict[Key, int] = {}
        self._values: dict[Key, pa.ListArray] = {}

    def has(self, key: Key) -> bool:
        """Return whether a component has a value."""
        return self._row(key) >= 0

    def value(self, key: Key) -> pa.ListArray | None:
        """The value of a component, or None. Raises ``ReadError``."""
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
    """The times of a component's first and last event in each of some chunks, by ascending chunk numbers."""

    chunks: Integers
    starts: Integers
    ends: Integers


class ClaimedRanges(Protocol):
    """The ranges of events, by component and chunk, with which chunks were chosen."""

    unclear: Integers
    is_filled: bool

    def claimed(self, key: Key) -> ChunkRanges:
        """The ranges of a component's events, except in ``unclear`` chunks."""
        ...


class Static(Protocol):
    """The static values, by component."""

    def has(self, key: Key) -> bool:
        """Return whether a component has a static value."""
        ...


class SegmentEvents:
    """The events of the components ``columns`` on ``index``, in rows of a segment's chunks with the index.

    Chunks are in the order of their layers. ``component_keys`` are the segment's components in any chunk; clears empty
    them. Of events at the same time, the one with the highest row id counts; of equal row ids, the first one. A
    component with a static value has no events. ``claims``, the ranges with which chunks were chosen, are checked.
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
        """Return the events of a component, with or without its clears, or None if it is static or has no event on this
        index. Components that are logged together share their events.
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
        """Raise ``ReadError`` if events of a component are outside the ranges with which chunks were chosen."""
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
            if self._claims.is_filled:  # the exact ends have then decided which chunks are left out
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
        """The first and the last index value of each chunk; 0 for chunks without rows."""
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
        """The index values of all rows, as used for comparisons; here unchanged."""
        return times

    def _present(self, key: Key) -> Presence:
        """The rows whose values of a component may be events."""
        return self.rows.presence(key)

    def _resolved(self, rows: Integers, clears: tuple[Clear, ...]) -> Events:
        """The event that counts at each time, from these rows and clears."""
        count = len(rows)
        rows = np.concatenate([rows, *(self._clears[clear] for clear in clears)])
        order = self._last_of_each_time(rows)
        kept = rows[order]
        return Events(self._times[kept], kept, order >= count if clears else None)

    def _last_of_each_time(self, rows: Integers) -> Integers:
        """The places in ``rows``, in the order of times; for each time, the row with the highest id."""
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
        """Return the rows that clear an entity, and those that clear it recursively."""
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
        """The clears that count for a component: of its entity (unless it is a clear), and recursive ones above."""
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
    """The entities, and all their ancestors."""
    paths: set[str] = set()
    for entity in set(entities):
        parts = list(split_parts(entity))
        paths.update(join_parts(parts[:depth]) for depth in range(len(parts) + 1))
    return paths
