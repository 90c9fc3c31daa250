"""Chunks as Arrow IPC streams: what is alike in chunks of one shape is serialised once.

A recording has many chunks of few shapes. The schema that opens a stream differs between chunks of one shape in the
digits of the chunk id alone, and takes longer to put together than the batch behind it.

Of larger chunks, columns that LZ4 would not make smaller are written from where they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa

from ..chunk import sorbet, tuid
from ..chunk.arrow_types import alike
from ..chunk.data import ChunkData
from ..task_context import lasting
from .arrow_ipc import Compression, check_size, encode_batch, has_dictionary, stream_pieces
from .compression import LEAST, compress, compress_pieces

_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_ID_DIGITS: Final = 32
_MOST_SHAPES: Final = 4096
Piece: TypeAlias = "bytes | memoryview | pa.Buffer"


class _Shape(NamedTuple):
    """The schema of chunks of one shape, as a message with the id of some chunk in it; ``at`` is where its digits are.

    ``message`` is None where the schema can't be reused. ``types`` are those of the components.
    """

    schema: pa.Schema
    message: bytes | None
    at: int
    types: Sequence[pa.DataType]


class _Room:
    """Memory of a thread in which one chunk after the other is put together; and the shapes of chunks seen there."""

    def __init__(self) -> None:
        self.shapes: dict[tuple[object, ...], _Shape] = {}
        self._buffer = bytearray()

    def bytes(self, size: int) -> bytearray:
        """At least so many bytes, used again and again."""
        if len(self._buffer) < size:
            self._buffer = bytearray(2 * size)
        return self._buffer


class Encoded(NamedTuple):
    """The payload that holds a chunk, as ``pieces`` that lie one after the other, and its uncompressed size in bytes.

    Pieces may be the chunk's own columns.
    """

    pieces: Sequence[Piece]
    uncompressed_size: int
    compression: Compression

    @property
    def size(self) -> int:
        """Bytes of all pieces."""
        return sum(map(len, self.pieces))


def encode_chunk(data: ChunkData, compression: Compression = Compression.LZ4) -> Encoded:
    """Encode a chunk. Raises :class:`WriteError` above 1 GiB.

    Before compression, byte for byte what :func:`encode_batch` makes of the chunk's record batch. With ``LZ4``, a
    chunk of 128 KiB or more that would not become a sixth smaller is not compressed.
    """
    shape = _shape_of(data) if compression == Compression.LZ4 else None
    if shape is None or shape.message is None:
        stream, size = encode_batch(sorbet.to_record_batch(data), compression)
        return Encoded([stream], size, compression)
    columns = [data.row_ids, *[t.times for t in data.timelines], *[c.values for c in data.components]]
    batch = pa.RecordBatch.from_arrays(columns, schema=shape.schema)
    head = len(shape.message)
    if head + pa.ipc.get_record_batch_size(batch) >= LEAST:
        return _encode_large(batch, _message(shape, data))
    body = memoryview(batch.serialize()).cast("B")
    stop = head + len(body)
    size = stop + len(_END)
    stream = memoryview(lasting(_Room).bytes(size))[:size]
    stream[:head] = _message(shape, data)
    stream[head:stop] = body
    stream[stop:] = _END
    return Encoded([compress(stream)], size, Compression.LZ4)


def _encode_large(batch: pa.RecordBatch, message: bytes) -> Encoded:
    pieces = [pa.py_buffer(message), *stream_pieces(batch, after=len(message))]
    size = sum(piece.size for piece in pieces)
    check_size(size)
    compressed = compress_pieces(pieces)
    if compressed is None:
        return Encoded(pieces, size, Compression.NONE)
    return Encoded(compressed, size, Compression.LZ4)


def _message(shape: _Shape, data: ChunkData) -> bytes:
    """The schema, with the chunk's own id in it."""
    assert shape.message is not None
    return shape.message[: shape.at] + _digits(data.chunk_id) + shape.message[shape.at + _ID_DIGITS :]


def _digits(chunk_id: bytes) -> bytes:
    return tuid.to_text(chunk_id, "").encode()


def _shape_of(data: ChunkData) -> _Shape:
    types = [c.values.type for c in data.components]
    key = (
        data.entity_path,
        data.ids_ascend,
        *[(t.name, t.kind, t.is_sorted) for t in data.timelines],
        *[c.descriptor for c in data.components],
        *types,
    )
    shapes = lasting(_Room).shapes
    shape = shapes.get(key)
    if shape is None or not alike(shape.types, types):
        if len(shapes) >= _MOST_SHAPES:
            shapes.clear()
        shape = shapes[key] = _new_shape(data, types)
    return shape


def _new_shape(data: ChunkData, types: Sequence[pa.DataType]) -> _Shape:
    schema = sorbet.schema_of(data)
    unusable = _Shape(schema, None, 0, types)
    if any(map(has_dictionary, schema.types)):
        return unusable
    message = bytes(schema.serialize())
    digits = _digits(data.chunk_id)
    if message.count(digits) != 1:  # an entity named after it, say
        return unusable
    return _Shape(schema, message, message.index(digits), types)
