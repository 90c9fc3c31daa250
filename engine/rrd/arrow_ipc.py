"""Chunks as the bytes of a message: an Arrow IPC stream of one batch, usually compressed as one LZ4 block.

Before Arrow reads a stream, the sizes that its compressed buffers expand to are looked at: Arrow takes them on trust,
so a few bytes could ask for all memory. They are found by walking the FlatBuffers tables of the message heads, as far
as needed for that.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, Final

import lz4.block
import pyarrow as pa
import pyarrow_hotfix  # noqa: F401  (refuses extension types that would run code)

from ..bounded import check_expansion, check_limit
from ..errors import ReadError, UnsupportedError, WriteError
from ..limits import FREE_EXPANSION, MAX_CHUNK_UNCOMPRESSED, MAX_COMPRESSION_RATIO
from .compression import compress

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


_LZ4_MAX_RATIO: Final = 255
_LZ4_SLACK: Final = 64
_HINT: Final = "The file is damaged; copy it again, or read it with recover=True."
_END_SIZE: Final = 64
"""Room for the end of an Arrow IPC stream, and for what its messages are padded with."""

ARROW_ERRORS: Final = (
    pa.ArrowException,
    OSError,
    MemoryError,
    ValueError,
    KeyError,
    OverflowError,
    StopIteration,
    RuntimeError,  # of pyarrow-hotfix, for an extension type that is pickled code (pyarrow below 21)
)
"""What Arrow raises for bytes that are not what they should be."""


class Compression(IntEnum):
    """The compression of the payload of one message."""

    UNSPECIFIED = 0
    NONE = 1
    LZ4 = 2


def encode_batch(batch: pa.RecordBatch, compression: Compression = Compression.LZ4) -> tuple[pa.Buffer | bytes, int]:
    """The payload that holds ``batch``, and its uncompressed size. Raises :class:`WriteError` above 1 GiB."""
    check_size(pa.ipc.get_record_batch_size(batch) + batch.schema.serialize().size + _END_SIZE)
    sink = pa.BufferOutputStream()
    _write(batch, sink)
    stream = sink.getvalue()
    check_size(stream.size)
    return (compress(stream) if compression == Compression.LZ4 else stream), stream.size


def stream_pieces(batch: pa.RecordBatch, *, after: int = 0) -> list[pa.Buffer]:
    """The same Arrow IPC stream as pieces that lie one after the other: columns are not copied.

    ``after``: without so many bytes at the beginning, where a piece has to end: the schema.
    """
    sink = _Pieces()
    _write(batch, sink)
    skipped = 0
    while skipped < after:
        skipped += sink.pieces.pop(0).size
    if skipped != after:
        raise AssertionError(f"no piece of the stream ends at byte {after}")
    return sink.pieces


class _Pieces:
    """A file to Arrow; keeps what is written."""

    closed = False

    def __init__(self) -> None:
        self.pieces: list[pa.Buffer] = []
        self._size = 0

    def write(self, data: pa.Buffer | bytes) -> int:
        self.pieces.append(data if isinstance(data, pa.Buffer) else pa.py_buffer(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Nothing is held back."""


def _write(batch: pa.RecordBatch, sink: Any) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)


def check_size(size: int) -> None:
    """Raise :class:`WriteError` where a chunk's stream of ``size`` bytes is too large for any reader."""
    if size > MAX_CHUNK_UNCOMPRESSED + _END_SIZE:
        raise WriteError(
            f"a chunk of {size:,} bytes is larger than the {MAX_CHUNK_UNCOMPRESSED:,} that a chunk may have",
            hint="Split it into chunks of fewer rows.",
        )


def has_dictionary(datatype: pa.DataType) -> bool:
    """Whether values of the type are partly in dictionaries, which are messages of their own."""
    if pa.types.is_dictionary(datatype):
        return True
    return any(has_dictionary(datatype.field(i).type) for i in range(datatype.num_fields))


def check_compression(number: int, *, path: str, offset: int | None) -> Compression:
    """The compression that a message names; an unknown number raises :class:`UnsupportedError`."""
    try:
        return Compression(number)
    except ValueError:
        raise UnsupportedError(f"unknown compression {number}", path=path, offset=offset, hint=_HINT) from None


def decompress(
    data: bytes | memoryview,
    compression: Compression,
    uncompressed_size: int,
    *,
    path: str,
    offset: int | None,
    what: str,
) -> bytes | memoryview:
    """Undo the compression of a payload. The declared size is checked before memory is taken."""
    if compression != Compression.LZ4:
        return data
    check_sizes(len(data), compression, uncompressed_size, path=path, offset=offset, what=what)
    try:
        return bytes(lz4.block.decompress(data, uncompressed_size=uncompressed_size))
    except (lz4.block.LZ4BlockError, ValueError, OverflowError, MemoryError) as error:
        raise ReadError(f"{what} cannot be decompressed: {error}", path=path, offset=offset, hint=_HINT) from error


def check_sizes(
    size: int, compression: Compression, uncompressed_size: int, *, path: str, offset: int | None, what: str
) -> None:
    """Raise :class:`ReadError` unless ``size`` bytes can expand to ``uncompressed_size``."""
    if compression == Compression.LZ4:
        cap = size * _LZ4_MAX_RATIO + _LZ4_SLACK
        check_limit(uncompressed_size, cap, path=path, offset=offset, what=f"the uncompressed size of {what}")
        check_expansion(size, uncompressed_size, path=path, offset=offset, what=what)


def decode_batch(data: bytes | memoryview, *, path: str, offset: int | None, what: str) -> pa.RecordBatch:
    """The first batch of an Arrow IPC stream, with every buffer and offset in it checked.

    Without the full validation a hostile offset would be followed out of its buffer later; it costs a few percent
    of the decompression. Raises :class:`ReadError`.
    """
    try:
        batch = read_batch(pa.py_buffer(data))
        batch.validate(full=True)
        _check_names(batch.schema)
        return batch
    except ReadError:  # a RuntimeError, too
        raise
    except ARROW_ERRORS as error:
        reason = "it holds no record batch" if isinstance(error, StopIteration) else first_line(error)
        raise ReadError(
            f"{what} is not a whole Arrow stream: {reason}", path=path, offset=offset, hint=_HINT
        ) from error


def decode_schema(data: bytes, *, path: str, offset: int | None, what: str) -> pa.Schema:
    """The schema that opens an Arrow IPC stream. Raises :class:`ReadError`."""
    try:
        schema = pa.ipc.open_stream(pa.py_buffer(data)).schema
        _check_names(schema)
        return schema
    except ARROW_ERRORS as error:
        reason = first_line(error)
        raise ReadError(f"{what} is not an Arrow schema: {reason}", path=path, offset=offset, hint=_HINT) from error


def first_line(error: BaseException) -> str:
    """The message of an error, without what follows: pyarrow-hotfix shows the whole pickle."""
    return str(error).partition("\n")[0].rstrip(":") or repr(error)


def _check_names(schema: pa.Schema) -> None:
    """Raise ``ValueError`` where a name is not UTF-8: Arrow would say so only when it is asked for."""
    for field in schema:
        field.name  # noqa: B018
        _check_nested_names(field.type)


def _check_nested_names(datatype: pa.DataType) -> None:
    for i in range(datatype.num_fields):
        field = datatype.field(i)
        field.name  # noqa: B018
        _check_nested_names(field.type)
