"""Checks of what Arrow takes on trust: a few damaged bytes could ask for all memory.

The sizes that compressed buffers expand to, and those that the footer of a file names, are found by walking FlatBuffers
tables, as far as needed for that.
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa
import pyarrow_hotfix  # noqa: F401  (refuses extension types that would run code)

from ..limits import FREE_EXPANSION, MAX_CHUNK_UNCOMPRESSED, MAX_COMPRESSION_RATIO, MAX_SCHEMA_FIELDS

_U16 = struct.Struct("<H")
_I32 = struct.Struct("<i")
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_SPAN = struct.Struct("<qq")
_BLOCK = struct.Struct("<qi4xq")

_MESSAGE_HEADER: Final = 2
_SCHEMA_FIELDS: Final = 1
_DICTIONARY_DATA: Final = 1
_BATCH_BUFFERS: Final = 2
_BATCH_COMPRESSION: Final = 3
_FOOTER_DICTIONARIES: Final = 2
_FOOTER_BATCHES: Final = 3
_FILE_END: Final = 10
"""Bytes at the end of an IPC file: the length of its footer, and ``ARROW1``."""


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
    total = _expansion(message)
    most = min(MAX_CHUNK_UNCOMPRESSED, max(FREE_EXPANSION, len(message.body or b"") * MAX_COMPRESSION_RATIO))
    if total is not None and total > most:
        raise ValueError(f"its buffers declare {total:,} uncompressed bytes, more than is possible here")
    return total is not None


def expanded_size(stream: pa.Buffer) -> int:
    """The bytes that compressed buffers declare, from the start of an IPC stream to its first batch; 0 without any.

    Raises ``ValueError`` for a schema of more columns than a table may have, and what :func:`read_batch` does.
    """
    messages = pa.ipc.MessageReader.open_stream(stream)
    check_columns(messages.read_next_message())
    total = 0
    while True:
        message = messages.read_next_message()
        total += _expansion(message) or 0
        if message.type == "record batch":
            return total


def check_columns(schema: pa.Message) -> None:
    """Raise ``ValueError`` for a schema of more columns than a table may have; they are counted before any is made."""
    if schema.type != "schema":
        raise ValueError("it does not begin with a schema")
    metadata = memoryview(schema.metadata)
    try:
        table = _follow(metadata, _field(metadata, _follow(metadata, 0), _MESSAGE_HEADER))
        fields = _field(metadata, table, _SCHEMA_FIELDS)
        count = 0 if fields is None else _U32.unpack_from(metadata, _follow(metadata, fields))[0]
    except (struct.error, TypeError) as error:
        raise ValueError("the head of a schema is damaged") from error
    if count > MAX_SCHEMA_FIELDS:
        raise ValueError(f"it has {count:,} columns, more than the {MAX_SCHEMA_FIELDS:,} of MAX_SCHEMA_FIELDS")


def _expansion(message: pa.Message) -> int | None:
    """The bytes that the compressed buffers of a batch, or of a dictionary, declare; None where it has none."""
    metadata, body = memoryview(message.metadata), memoryview(message.body or b"")
    try:
        table = _follow(metadata, _field(metadata, _follow(metadata, 0), _MESSAGE_HEADER))
        if message.type == "dictionary":
            table = _follow(metadata, _field(metadata, table, _DICTIONARY_DATA))
        if _field(metadata, table, _BATCH_COMPRESSION) is None:
            return None
        return _declared_size(metadata, body, _follow(metadata, _field(metadata, table, _BATCH_BUFFERS)))
    except (struct.error, TypeError) as error:
        raise ValueError("the head of a batch is damaged") from error


def check_file(data: bytes) -> None:
    """Raise ``ValueError`` where an IPC file names blocks beyond its end, or buffers beyond what may be believed.

    pyarrow looks at the messages alone, and passes over the validity of columns without nulls; other readers take
    memory for what a footer or a buffer says. Blocks are those of ``File.fbs`` of Arrow's format: an offset, the length
    of the head and that of the body.
    """
    view = memoryview(data)
    try:
        end = len(data) - _FILE_END
        start = end - _I32.unpack_from(data, end)[0]
        footer = _follow(view, start)
        for slot in (_FOOTER_DICTIONARIES, _FOOTER_BATCHES):
            field = _field(view, footer, slot)
            vector = None if field is None else _follow(view, field)
            for i in range(0 if vector is None else _U32.unpack_from(view, vector)[0]):
                offset, head, body = _BLOCK.unpack_from(view, (vector or 0) + 4 + _BLOCK.size * i)
                if min(offset, head, body) < 0 or offset + head + body > start:
                    raise ValueError("its footer names bytes beyond its end")
                check_message(pa.ipc.read_message(view[offset : offset + head + body]))
    except (struct.error, TypeError) as error:
        raise ValueError("its footer is damaged") from error


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
