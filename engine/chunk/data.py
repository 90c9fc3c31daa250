"""The decoded content of a chunk: its columns, without any schema metadata; the header computed from them."""

from __future__ import annotations

import copyreg
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as kinds

from . import tuid
from .header import ChunkHeader, ComponentDescriptor, ComponentHeader, ComponentRange, TimelineHeader, TimelineKind


@dataclass(frozen=True, slots=True)
class Timeline:
    """One index column: ``times`` has one non-null value a row, of the Arrow type of ``kind``."""

    name: str
    kind: TimelineKind
    times: pa.Array
    _sorted: list[bool] = field(default_factory=list, repr=False, compare=False)
    _strict: list[bool] = field(default_factory=list, repr=False, compare=False)

    @property
    def ticks(self) -> npt.NDArray[np.int64]:
        """The times as int64 (nanoseconds, or sequence numbers), without a copy."""
        return ticks(self.times)

    @property
    def is_sorted(self) -> bool:
        """Return True if the times ascend in row order (equal neighbours allowed)."""
        if not self._sorted:
            values = self.ticks
            self._sorted.append(tuid.all_true(values[:-1] <= values[1:]))
        return self._sorted[0]

    @property
    def is_strict(self) -> bool:
        """Return True if each time is later than that of the row before."""
        if not self._strict:
            values = self.ticks
            self._strict.append(tuid.all_true(values[:-1] < values[1:]))
            if self._strict[0] and not self._sorted:
                self._sorted.append(True)
        return self._strict[0]


@dataclass(frozen=True, slots=True)
class Component:
    """One component column: ``values`` is a ``list<T>`` array, one list or null a row."""

    descriptor: ComponentDescriptor
    values: pa.ListArray


@dataclass(frozen=True, slots=True)
class ChunkData:
    """A decoded chunk.

    ``row_ids`` is ``fixed_size_binary(16)``; ``timelines`` are sorted by name and ``components`` by
    :attr:`ComponentDescriptor.sort_key`; all columns have the same length.
    """

    chunk_id: bytes
    entity_path: str
    row_ids: pa.FixedSizeBinaryArray
    timelines: tuple[Timeline, ...]
    components: tuple[Component, ...]
    _ascending: list[bool] = field(default_factory=list, repr=False, compare=False)

    @classmethod
    def fresh(
        cls, entity_path: str, length: int, timelines: tuple[Timeline, ...], components: tuple[Component, ...]
    ) -> ChunkData:
        """Columns of ``length`` rows under a fresh chunk id, with row ids that follow from it."""
        chunk_id = tuid.mint(length)
        return cls(chunk_id, entity_path, tuid.following(chunk_id, length), timelines, components, [True])

    @classmethod
    def join(cls, parts: Sequence[ChunkData], chunk_id: bytes) -> ChunkData:
        """The rows of ``parts``, one after the other. All are of one :attr:`shape`, with the same types."""
        first = parts[0]
        timelines = [part.timelines for part in parts]
        components = [part.components for part in parts]
        return cls(
            chunk_id,
            first.entity_path,
            pa.concat_arrays([part.row_ids for part in parts]),
            tuple(
                Timeline(t.name, t.kind, pa.concat_arrays([lines[i].times for lines in timelines]))
                for i, t in enumerate(first.timelines)
            ),
            tuple(
                Component(c.descriptor, pa.concat_arrays([columns[i].values for columns in components]))
                for i, c in enumerate(first.components)
            ),
        )

    @property
    def shape(self) -> tuple[object, ...]:
        """Names and kinds of the timelines, and descriptors of the components: equal where columns are of one kind."""
        return (*[(t.name, t.kind) for t in self.timelines], *[c.descriptor for c in self.components])

    @property
    def types(self) -> list[pa.DataType]:
        """The types of times and components, in their order."""
        return [*[t.times.type for t in self.timelines], *[c.values.type for c in self.components]]

    @property
    def ids_ascend(self) -> bool:
        """Return True if the row ids ascend (equal neighbours allowed)."""
        if not self._ascending:
            self._ascending.append(tuid.is_sorted(self.row_ids))
        return self._ascending[0]

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.row_ids)

    def with_new_id(self) -> ChunkData:
        """The same columns under a fresh chunk id."""
        return replace(self, chunk_id=tuid.mint())

    def slice(self, offset: int, length: int) -> ChunkData:
        """``length`` rows from ``offset`` on, without a copy, under a fresh chunk id."""
        return ChunkData(
            tuid.mint(),
            self.entity_path,
            self.row_ids.slice(offset, length),
            tuple(Timeline(t.name, t.kind, t.times.slice(offset, length)) for t in self.timelines),
            tuple(Component(c.descriptor, c.values.slice(offset, length)) for c in self.components),
        )

    def take(self, rows: npt.NDArray[np.int64]) -> ChunkData:
        """The rows at ``rows`` in that order, ids of the rows kept, under the same chunk id."""
        indices = pa.array(rows)
        return ChunkData(
            self.chunk_id,
            self.entity_path,
            self.row_ids.take(indices),
            tuple(Timeline(t.name, t.kind, t.times.take(indices)) for t in self.timelines),
            tuple(Component(c.descriptor, c.values.take(indices)) for c in self.components),
        )

    def with_components(self, components: tuple[Component, ...]) -> ChunkData:
        """Other component columns beside the same rows and timelines, under a fresh chunk id."""
        ordered = tuple(sorted(components, key=lambda c: c.descriptor.sort_key))
        return ChunkData(tuid.mint(), self.entity_path, self.row_ids, self.timelines, ordered, self._ascending)


def ticks(times: pa.Array) -> npt.NDArray[np.int64]:
    """A 64-bit Arrow array without nulls as int64, without a copy."""
    buffer = times.buffers()[1]
    if buffer is None or len(times) == 0:
        return np.empty(0, dtype=np.int64)
    return np.frombuffer(buffer, dtype=np.int64, count=len(times), offset=times.offset * 8)


_OFFSET = struct.Struct("=i")


def summarise(data: ChunkData) -> ChunkHeader:
    """The header of ``data``. Cost: a pass over each timeline, and over each validity bitmap with nulls."""
    timelines = tuple([_timeline(t) for t in data.timelines])
    return ChunkHeader(
        chunk_id=data.chunk_id,
        entity_path=data.entity_path,
        num_rows=data.num_rows,
        is_static=not data.timelines,
        timelines=timelines,
        components=tuple([_component(c, data.timelines, timelines) for c in data.components]),
    )


def is_semantically_empty(values: pa.ListArray) -> bool:
    """Return True if every row is null or an empty list."""
    if len(values) == 0 or values.null_count == len(values):
        return True
    offsets, first = values.buffers()[1], 4 * values.offset
    if _OFFSET.unpack_from(offsets, first) == _OFFSET.unpack_from(offsets, first + 4 * len(values)):
        return True
    return values.null_count > 0 and len(values.flatten()) == 0


def _span(ticks: npt.NDArray[np.int64], ascending: bool) -> tuple[int | None, int | None]:
    if not len(ticks):
        return None, None
    if ascending:
        return int(ticks[0]), int(ticks[-1])
    return int(ticks.min()), int(ticks.max())


def _timeline(timeline: Timeline) -> TimelineHeader:
    start, end = _span(timeline.ticks, timeline.is_sorted)
    return TimelineHeader(timeline.name, timeline.kind, start, end)


def _component(
    component: Component, timelines: tuple[Timeline, ...], headers: tuple[TimelineHeader, ...]
) -> ComponentHeader:
    values = component.values
    present = len(values) - values.null_count
    if present == len(values):
        ranges = tuple([ComponentRange(h.start, h.end, present) for h in headers])
    elif present == 0:
        ranges = tuple(ComponentRange(None, None, 0) for _ in headers)
    else:
        mask = values.is_valid().to_numpy(zero_copy_only=False)
        ranges = tuple(ComponentRange(*_span(t.ticks[mask], t.is_sorted), present) for t in timelines)
    return ComponentHeader(component.descriptor, values.type, ranges, is_semantically_empty(values))


class Payload(Protocol):
    """The source of a chunk's record batch, for when somebody touches it. Payloads pickle."""

    def load(self) -> pa.RecordBatch:
        """Read, check and decode the record batch, with its Rerun schema metadata, as it was stored."""
        ...


def wrap_each(values: pa.Array) -> pa.ListArray:
    """Each value in a list of its own; a null becomes the list ``[None]``. A list array stays as it is.

    >>> wrap_each(pa.array([1, None])).to_pylist()
    [[1], [None]]
    """
    if pa.types.is_list(values.type):
        return values
    return pa.ListArray.from_arrays(pa.array(np.arange(len(values) + 1, dtype=np.int32)), values)


def migrate_to_list(values: pa.Array) -> pa.ListArray:
    """Like :func:`wrap_each`, but a null becomes a null row.

    >>> migrate_to_list(pa.array([1, None])).to_pylist()
    [[1], None]
    """
    if pa.types.is_list(values.type):
        return values
    if not values.null_count:
        return wrap_each(values)
    offsets = np.arange(len(values) + 1, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=values.is_null())


_PLAIN = (
    kinds.is_null,
    kinds.is_primitive,
    kinds.is_decimal,
    kinds.is_string,
    kinds.is_large_string,
    kinds.is_binary,
    kinds.is_large_binary,
    kinds.is_fixed_size_binary,
)
_NESTED = (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list, kinds.is_struct, kinds.is_map)


def pickle_whole() -> None:
    """Tell every pickler of this process how to pickle those types; unpickling them needs nothing."""
    copyreg.pickle(pa.FixedSizeListType, _fixed_size_list)
    copyreg.pickle(pa.MapType, _map)


def alike(types: Sequence[pa.DataType], others: Sequence[pa.DataType]) -> bool:
    """Return True if types that are equal by ``==`` are equal in the metadata of their fields, too."""
    return all(datatype.equals(other, check_metadata=True) for datatype, other in zip(types, others, strict=True))


def _fixed_size_list(datatype: pa.FixedSizeListType) -> tuple[Any, ...]:
    return pa.list_, (datatype.value_field, datatype.list_size)


def _map(datatype: pa.MapType) -> tuple[Any, ...]:
    return pa.map_, (datatype.key_field, datatype.item_field, datatype.keys_sorted)


def is_plain(datatype: pa.DataType) -> bool:
    """Return True if slices of joined arrays of the type equal the arrays, also in size. Dictionaries, views, unions,
    runs and extensions do not.
    """
    if any(is_kind(datatype) for is_kind in _PLAIN):
        return True
    return any(is_kind(datatype) for is_kind in _NESTED) and all(
        is_plain(datatype.field(i).type) for i in range(datatype.num_fields)
    )
