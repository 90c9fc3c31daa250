"""Chunks as Arrow IPC streams: what is alike in chunks of one shape is serialised once.

A recording has many chunks of few shapes. The schema that opens a stream differs between chunks of one shape in the
digits of the chunk id alone, and takes longer to put together than the batch behind it.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

import pyarrow as pa

from ..chunk import sorbet, tuid
from ..chunk.data import ChunkData
from ..limits import MIB
from .arrow_ipc import Compression, compress, encode_batch, has_dictionary

_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_ID_DIGITS: Final = 32
_MOST_SHAPES: Final = 4096
_LARGE: Final = MIB
"""Streams from this size on are written by Arrow as a whole: that copies their columns once less."""


class _Shape(NamedTuple):
    """The schema of chunks of one shape, as a message with the id of some chunk in it; ``at`` is where its digits are.

    ``message`` is None where the schema can't be reused.
    """

    schema: pa.Schema
    message: bytes | None
    at: int


class _Kept(threading.local):
    def __init__(self) -> None:
        self.shapes: dict[tuple[object, ...], _Shape] = {}
        self.buffer = bytearray()


_kept = _Kept()


def encode_chunk(data: ChunkData, compression: Compression = Compression.LZ4) -> tuple[pa.Buffer | bytes, int]:
    """The payload that holds a chunk, and its uncompressed size. Raises :class:`WriteError` above 1 GiB.

    Byte for byte what :func:`encode_batch` makes of the chunk's record batch.
    """
    if compression != Compression.LZ4:
        return encode_batch(sorbet.to_record_batch(data), compression)
    shape = _shape_of(data)
    if shape.message is None:
        return encode_batch(sorbet.to_record_batch(data), compression)
    columns = [data.row_ids, *[t.times for t in data.timelines], *[c.values for c in data.components]]
    batch = pa.RecordBatch.from_arrays(columns, schema=shape.schema)
    if pa.ipc.get_record_batch_size(batch) > _LARGE:
        return encode_batch(sorbet.to_record_batch(data), compression)
    body = memoryview(batch.serialize()).cast("B")
    head = len(shape.message)
    stop = head + len(body)
    if len(_kept.buffer) < stop + len(_END):
        _kept.buffer = bytearray(2 * (stop + len(_END)))
    stream = memoryview(_kept.buffer)
    stream[:head] = shape.message
    stream[shape.at : shape.at + _ID_DIGITS] = _digits(data.chunk_id)
    stream[head:stop] = body
    stream[stop : stop + len(_END)] = _END
    return compress(stream[: stop + len(_END)]), stop + len(_END)


def _digits(chunk_id: bytes) -> bytes:
    return tuid.to_text(chunk_id, "").encode()


def _shape_of(data: ChunkData) -> _Shape:
    key = (
        data.entity_path,
        data.ids_ascend,
        *[(t.name, t.kind, t.is_sorted) for t in data.timelines],
        *[(c.descriptor, c.values.type) for c in data.components],
    )
    shapes = _kept.shapes
    shape = shapes.get(key)
    if shape is None:
        if len(shapes) >= _MOST_SHAPES:
            shapes.clear()
        shape = shapes[key] = _new_shape(data)
    return shape


def _new_shape(data: ChunkData) -> _Shape:
    schema = sorbet.schema_of(data)
    unusable = _Shape(schema, None, 0)
    if any(map(has_dictionary, schema.types)):
        return unusable
    message = bytes(schema.serialize())
    digits = _digits(data.chunk_id)
    if message.count(digits) != 1:  # an entity named after it, say
        return unusable
    return _Shape(schema, message, message.index(digits))
