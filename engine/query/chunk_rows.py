"""Rows of chunks of a segment: times, row ids, the present components, and their values on request.

A layer with recorded times needs its chunks for values only; of another, chunks are read at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, NamedTuple, NoReturn, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import ChunkData, TimelineKind
from ..errors import ReadError
from ..rrd import MIXED, ByChunk, ChunkTable, Times, Validity
from .query import Integers, Key, Mask

Halves = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]
"""The upper and the lower half of row ids."""

_BIG_ENDIAN: Final = np.dtype(">u8")
_NO_INTEGERS: Final = np.empty(0, np.int64)


class Presence(NamedTuple):
    """The rows in which a component is not null: of these chunks all, or those of their rows that the mask has."""

    chunks: Integers
    mask: Mask | None = None


class LayerRows(Protocol):
    """The rows of some chunks of a layer: ``numbers`` are those of the chunks, ``counts`` their rows."""

    numbers: Integers
    counts: Integers

    def ticks(self, index: str) -> ByChunk:
        """The values of an index, of each chunk one for each row, or none."""
        ...

    def ids(self) -> Halves:
        """The row ids."""
        ...

    def presence(self, key: Key) -> Presence:
        """The rows in which a component is not null, by the places of chunks among these."""
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
        """The error for a chunk that is read differently the second time."""
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
    """The rows of chunks, from recorded times of their layer; ``first`` is the number of the layer's first chunk."""

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
        """The error for a chunk that has other times."""
        return self._times.unlike(data)


class ChunkRows:
    """The rows of some chunks of a segment, numbered through, one layer after the other.

    ``numbers`` are those of the chunks, ``starts`` the first row of each, and the end of all. ``load`` gives chunks for
    their numbers, ``unlike`` the error for one that is not as its table says; ``sizes`` are the bytes of each chunk of
    the segment.
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
        """Return the value of an index in each row, and a mask of the rows with a value; None if all have one."""
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
        """The values of a component in some of its chunks, which are read if they were not. Raises ``ReadError``."""
        self.read(chunks)
        chosen = chunks.tolist()
        if any(self._is_recorded[place] for place in chosen):
            self._compare(key, chosen)
        return [self._components[place][key[1]] for place in chosen]

    def _compare(self, key: Key, chosen: list[int]) -> None:
        """Raise ``ReadError`` if a component has another number of values than recorded."""
        counts = self._value_counts(key)
        for place in chosen:
            values = self._components[place].get(key[1])
            if values is None or len(values) - values.null_count != counts[place]:
                self._refuse(place)

    def read(self, chunks: Integers) -> None:
        """Read those of these chunks that are not read yet. Raises ``ReadError``, also if times differ from the
        recorded ones.
        """
        missing = np.array([place for place in chunks.tolist() if place not in self._components], np.int64)
        if not len(missing):
            return
        for place, data in zip(missing.tolist(), self._load(self.numbers[missing]), strict=True):
            if self._is_recorded[place] and (data.num_rows != self.counts[place] or not self._has_ticks(place, data)):
                self._refuse(place)
            self._components[place] = {c.descriptor.component: c.values for c in data.components}

    def bytes_of(self, chunks: Integers) -> int:
        """The bytes of chunks, by their places; each is counted once."""
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
        """The values of a component in each of its chunks."""
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
    """The numbers of several runs, one run behind the other.

    >>> spread(np.array([5, 1]), np.array([2, 3])).tolist()
    [5, 6, 1, 2, 3]
    """
    if len(starts) and bool((starts[1:] == (starts + counts)[:-1]).all()):
        return np.arange(int(starts[0]), int(starts[-1] + counts[-1]))
    before = np.cumsum(counts) - counts
    numbers: Integers = np.arange(int(counts.sum())) + np.repeat(starts - before, counts)
    return numbers
