"""Layouts: the places of a chunk's buffers in its Arrow IPC stream, and streams made from buffers.

Chunks of one shape whose buffers have the same sizes differ only in these buffers and in the digits of their ids. So a
stream is made without a record batch, and only the needed columns of an existing stream are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa

from ..chunk import ChunkData, ComponentDescriptor, TimelineKind

Bytes: TypeAlias = "bytes | memoryview | pa.Buffer"
_MOST_OFFSETS: Final = 1 << 14
"""The largest list offsets, in bytes, that are kept for comparison."""


class StreamLayout(NamedTuple):
    """The common bytes of streams of one shape whose buffers have the same sizes.

    The sizes depend on ``key``. ``sizes`` has the written bytes of each buffer; ``between`` has the bytes before and
    after the digits, between buffers, and at the end.
    """

    key: tuple[int, ...]
    sizes: tuple[int, ...]
    between: tuple[bytes, ...]
    size: int


@dataclass(slots=True)
class ChunkShape:
    """The schema of chunks of one shape, as a message with one chunk's id, whose digits begin at ``at``.

    ``message`` is None if the schema can't be reused. ``types`` are the components' types; ``takers`` take the columns'
    buffers. ``key`` has the newest chunk's sizes. ``layout`` is a layout that two successive chunks had.
    """

    schema: pa.Schema
    message: bytes | None
    at: int
    types: Sequence[pa.DataType]
    takers: Sequence[Taker] | None = None
    key: tuple[int, ...] = ()
    layout: StreamLayout | None = None


class Taken(NamedTuple):
    """The buffers of columns without nulls, in stream order; their sizes in the stream depend on ``key``."""

    buffers: list[pa.Buffer]
    key: tuple[int, ...]


Taker = Callable[[pa.Array, int, list[pa.Buffer], list[int]], bool]
"""Adds the buffers of the first values of an array, and their sizes. False for nulls, or a slice."""


class ColumnReader(NamedTuple):
    """Reads a column from a stream; ``spans`` are the bytes of its buffers, ``offsets`` those of its list offsets."""

    make: Callable[[pa.Buffer], pa.Array]
    spans: tuple[slice, ...]
    offsets: tuple[slice, ...] = ()


_ANY_BYTES: Final = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_timestamp,
    pa.types.is_duration,
    pa.types.is_fixed_size_binary,
)
"""Types whose values may be any bytes; Arrow checks others, times of a day for example, one by one."""


def reader_of(values: pa.Array, spans: Iterator[tuple[int, int]]) -> ColumnReader | None:
    """Return a reader of columns like ``values``, or None for nulls and types that must be checked value by value.

    ``spans`` has the place and size of each of the column's buffers in a batch.
    """
    datatype, count = values.type, len(values)
    if next(spans, (0, 1))[1] or values.null_count or values.offset:
        return None
    if any(is_kind(datatype) for is_kind in _ANY_BYTES):
        start, size = next(spans)

        def make_plain(root: pa.Buffer) -> pa.Array:
            return pa.Array.from_buffers(datatype, count, [None, root.slice(start, size)], 0)

        return ColumnReader(make_plain, (slice(start, start + size),))
    if pa.types.is_list(datatype):
        start, size = next(spans)
        inner = reader_of(values.values, spans)
        if inner is None:
            return None
        make_inner, span = inner.make, slice(start, start + size)

        def make_lists(root: pa.Buffer) -> pa.Array:
            return pa.Array.from_buffers(
                datatype, count, [None, root.slice(start, size)], 0, children=[make_inner(root)]
            )

        return ColumnReader(make_lists, (span, *inner.spans), (span, *inner.offsets))
    if pa.types.is_fixed_size_list(datatype) or pa.types.is_struct(datatype):
        is_list = pa.types.is_fixed_size_list(datatype)
        children = [values.values] if is_list else [values.field(i) for i in range(datatype.num_fields)]
        readers = []
        for child in children:
            reader = reader_of(child, spans)
            if reader is None:
                return None
            readers.append(reader)

        def make_nested(root: pa.Buffer) -> pa.Array:
            return pa.Array.from_buffers(datatype, count, [None], 0, children=[reader.make(root) for reader in readers])

        return ColumnReader(
            make_nested,
            tuple(span for reader in readers for span in reader.spans),
            tuple(span for reader in readers for span in reader.offsets),
        )
    return None


class ColumnPlace(NamedTuple):
    """A column of a stream: its reader, the taker for a new column, its type, and the key of its buffer sizes."""

    reader: ColumnReader
    taker: Taker
    datatype: pa.DataType
    key: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ColumnPlaces:
    """The column places in streams whose batches have the same ``head``, in a chunk's column order.

    ``shape`` is the shape of such chunks with ascending ids and times. ``offsets`` are the checked list offsets.
    """

    head: bytes
    entity_path: str
    num_rows: int
    timelines: tuple[tuple[str, TimelineKind], ...]
    components: tuple[tuple[ComponentDescriptor, pa.DataType], ...]
    names: tuple[str, ...]
    columns: tuple[ColumnPlace, ...]
    offsets: tuple[tuple[slice, bytes], ...]
    size: int
    shape: ChunkShape

    @classmethod
    def of(
        cls,
        chunk: ChunkData,
        head: bytes,
        columns: Sequence[ColumnPlace],
        stream: bytes | memoryview,
        shape: ChunkShape,
    ) -> ColumnPlaces | None:
        """Return the places of a chunk's columns in its stream, or None for long lists."""
        offsets = [(span, bytes(stream[span])) for column in columns for span in column.reader.offsets]
        if sum(len(some) for _, some in offsets) > _MOST_OFFSETS:
            return None
        return cls(
            head,
            chunk.entity_path,
            chunk.num_rows,
            tuple((line.name, line.kind) for line in chunk.timelines),
            tuple((component.descriptor, component.values.type) for component in chunk.components),
            tuple(component.descriptor.component for component in chunk.components),
            tuple(columns),
            tuple(offsets),
            max(span.stop for column in columns for span in column.reader.spans),
            shape,
        )

    def fit(self, stream: bytes | memoryview, start: int) -> bool:
        """Return True if the batch at ``start`` has columns at these places that need no check."""
        return (
            len(stream) >= self.size
            and stream[start : start + len(self.head)] == self.head
            and all(stream[span] == offsets for span, offsets in self.offsets)
        )
