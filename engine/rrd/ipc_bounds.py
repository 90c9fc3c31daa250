"""A look at an Arrow IPC stream before Arrow reads it: what would its compressed buffers expand to?

Arrow takes the size that stands before each compressed buffer on trust, so a few bytes could ask for all memory.
The sizes are found by walking the FlatBuffers tables of the message heads, as far as needed for that.
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

from ..limits import FREE_EXPANSION, MAX_CHUNK_UNCOMPRESSED, MAX_COMPRESSION_RATIO

_U16 = struct.Struct("<H")
_I32 = struct.Struct("<i")
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_SPAN = struct.Struct("<qq")

_MESSAGE_HEADER: Final = 2
_DICTIONARY_DATA: Final = 1
_BATCH_BUFFERS: Final = 2
_BATCH_COMPRESSION: Final = 3


def read_batch(stream: pa.Buffer) -> pa.RecordBatch:
    """The first batch of an IPC stream, without a copy.

    Raises ``ValueError`` for a batch that would expand beyond what may be believed, ``StopIteration`` where there is
    no batch, and what Arrow raises for bytes that are no stream. Offsets inside the batch are not checked yet.
    """
    messages = pa.ipc.MessageReader.open_stream(stream)
    schema = messages.read_next_message()
    if schema.type != "schema":  # Arrow takes that for granted, and crashes
        raise ValueError("it does not begin with a schema")
    message = messages.read_next_message()
    if message.type == "record batch":
        check_message(message)
        return pa.ipc.read_record_batch(message, pa.ipc.read_schema(schema))
    while message.type != "record batch":
        check_message(message)
        message = messages.read_next_message()
    check_message(message)
    return pa.ipc.open_stream(stream).read_next_batch()


def check_message(message: pa.Message) -> bool:
    """Whether a batch is compressed. Raises ``ValueError`` where it would expand beyond what may be believed."""
    metadata, body = memoryview(message.metadata), memoryview(message.body or b"")
    try:
        table = _follow(metadata, _field(metadata, _follow(metadata, 0), _MESSAGE_HEADER))
        if message.type == "dictionary":
            table = _follow(metadata, _field(metadata, table, _DICTIONARY_DATA))
        if _field(metadata, table, _BATCH_COMPRESSION) is None:
            return False
        total = _declared_size(metadata, body, _follow(metadata, _field(metadata, table, _BATCH_BUFFERS)))
    except (struct.error, TypeError) as error:
        raise ValueError("the head of a batch is damaged") from error
    if total > min(MAX_CHUNK_UNCOMPRESSED, max(FREE_EXPANSION, len(body) * MAX_COMPRESSION_RATIO)):
        raise ValueError(f"its buffers declare {total:,} uncompressed bytes, more than is possible here")
    return True


def _declared_size(metadata: memoryview, body: memoryview, vector: int) -> int:
    """Sum of the sizes that stand before the compressed buffers listed in ``vector``."""
    total = 0
    for i in range(_U32.unpack_from(metadata, vector)[0]):
        offset, length = _SPAN.unpack_from(metadata, vector + 4 + 16 * i)
        if length >= 8:
            declared = _I64.unpack_from(body, offset)[0]
            total += length if declared == -1 else max(declared, 0)
    return total


def _follow(data: memoryview, position: int | None) -> int:
    """The position that the offset at ``position`` points to."""
    if position is None or position < 0:
        raise TypeError("a field is missing")
    return position + int(_U32.unpack_from(data, position)[0])


def _field(data: memoryview, table: int, slot: int) -> int | None:
    """Position of the field in ``slot`` of the table, or None where it is absent."""
    vtable = table - _I32.unpack_from(data, table)[0]
    if vtable < 0 or 4 + 2 * slot >= _U16.unpack_from(data, vtable)[0]:
        return None
    at = _U16.unpack_from(data, vtable + 4 + 2 * slot)[0]
    return table + at if at else None
