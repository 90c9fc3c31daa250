"""Chunks as Arrow IPC messages: encoded, decoded, and checked before Arrow allocates memory.

A recording has many chunks of few shapes. Between chunks of one shape, the schema at the start of a stream differs only
in the digits of the chunk id. It takes longer to make, or to read, than the batch after it, so it is made once, and
read once. For larger chunks, columns that LZ4 would not make smaller are written without a copy.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow_hotfix  # noqa: F401  (refuses extension types that would run code)

from ..chunk import BatchLayout, ChunkData, alike, batch_schema, data_to_batch, data_with_layout, tuid_text
from ..errors import ReadError, WriteError
from ..limits import FREE_EXPANSION, MAX_CHUNK_UNCOMPRESSED, MAX_COMPRESSION_RATIO, MAX_SCHEMA_FIELDS
from ..task_context import lasting
from .compression import LEAST, Compression, compress, compress_pieces
from .layouts import (
    Bytes,
    ChunkShape,
    ColumnPlace,
    ColumnPlaces,
    ColumnReader,
    StreamLayout,
    Taken,
    Taker,
    reader_of,
)

_U16 = struct.Struct("<H")
_I32 = struct.Struct("<i")
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_OFFSET = struct.Struct("=i")
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

    Raises ``ValueError`` for a batch that declares an implausible expansion, ``StopIteration`` without a batch, and
    Arrow's errors for other bytes. Offsets inside the batch are not checked yet.
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
    """Return True if a batch is compressed. Raises ``ValueError`` for an implausible expansion."""
    total = _expansion(message)
    most = min(MAX_CHUNK_UNCOMPRESSED, max(FREE_EXPANSION, len(message.body or b"") * MAX_COMPRESSION_RATIO))
    if total is not None and total > most:
        raise ValueError(f"its buffers declare {total:,} uncompressed bytes, more than the limit")
    return total is not None


def expanded_size(stream: pa.Buffer) -> int:
    """The uncompressed size that buffers declare, up to the first batch of an IPC stream; 0 without buffers.

    Raises ``ValueError`` for a schema with too many columns, and the errors of :func:`read_batch`.
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
    """Raise ``ValueError`` for a schema with too many columns. They are counted before any is created."""
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
        raise ValueError(f"it has {count:,} columns, more than MAX_SCHEMA_FIELDS ({MAX_SCHEMA_FIELDS:,})")


def _expansion(message: pa.Message) -> int | None:
    """Return the bytes that a batch's or dictionary's compressed buffers declare, or None if not compressed."""
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
    """Raise ``ValueError`` if an IPC file names blocks beyond its end, or buffers beyond the limits.

    pyarrow only checks the messages, and skips the validity of columns without nulls. Other readers allocate the sizes
    in a footer or a buffer. A block is an offset and the lengths of head and body, as in Arrow's ``File.fbs``.
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
                    raise ValueError("its footer points beyond the data")
                check_message(pa.ipc.read_message(view[offset : offset + head + body]))
    except (struct.error, TypeError) as error:
        raise ValueError("its footer is damaged") from error


def _declared_size(metadata: memoryview, body: memoryview, vector: int) -> int:
    """Sum of the sizes that precede the compressed buffers listed in ``vector``."""
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
    """Return the position of the field in ``slot`` of the table, or None if it is absent."""
    vtable = table - _I32.unpack_from(data, table)[0]
    if vtable < 0 or 4 + 2 * slot >= _U16.unpack_from(data, vtable)[0]:
        return None
    at = _U16.unpack_from(data, vtable + 4 + 2 * slot)[0]
    return table + at if at else None


_HINT: Final = "The file is damaged; copy it again, or read it with recover=True."
_END_SIZE: Final = 64
"""Room for the end of an Arrow IPC stream, and for the padding of its messages."""

ARROW_ERRORS: Final = (
    pa.ArrowException,
    OSError,
    MemoryError,
    ValueError,
    KeyError,
    OverflowError,
    StopIteration,
    RuntimeError,  # from pyarrow-hotfix, for an extension type that is pickled code (pyarrow below 21)
)
"""The errors that Arrow raises for invalid bytes."""


def encode_batch(batch: pa.RecordBatch, compression: Compression = Compression.LZ4) -> tuple[pa.Buffer | bytes, int]:
    """The encoded payload of ``batch``, and its uncompressed size. Raises :class:`WriteError` above 1 GiB."""
    check_size(pa.ipc.get_record_batch_size(batch) + batch.schema.serialize().size + _END_SIZE)
    stream = stream_of(batch)
    check_size(stream.size)
    return (compress(stream) if compression == Compression.LZ4 else stream), stream.size


def stream_of(batch: pa.RecordBatch) -> pa.Buffer:
    """A batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    _write(batch, sink)
    return sink.getvalue()


def stream_pieces(batch: pa.RecordBatch, *, after: int = 0) -> list[pa.Buffer]:
    """The same Arrow IPC stream as consecutive pieces: columns are not copied.

    The first ``after`` bytes, the schema for example, are omitted; a piece must end there.
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
    """Collects what Arrow writes, like a file."""

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
        """Do nothing: there is no buffer."""


def _write(batch: pa.RecordBatch, sink: Any) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)


def check_size(size: int) -> None:
    """Raise :class:`WriteError` if a chunk's stream of ``size`` bytes is too large for any reader."""
    if size > MAX_CHUNK_UNCOMPRESSED + _END_SIZE:
        raise WriteError(
            f"a chunk of {size:,} bytes is larger than the limit of {MAX_CHUNK_UNCOMPRESSED:,}",
            hint="Split it into chunks of fewer rows.",
        )


def has_dictionary(datatype: pa.DataType) -> bool:
    """Return True if the type has dictionaries, which are separate messages."""
    if pa.types.is_dictionary(datatype):
        return True
    return any(has_dictionary(datatype.field(i).type) for i in range(datatype.num_fields))


def decode_batch(data: bytes | memoryview, *, path: str, offset: int | None, what: str) -> pa.RecordBatch:
    """The first batch of an Arrow IPC stream, with all buffers and offsets checked.

    The full validation prevents a hostile offset from reading outside a buffer. It takes a few percent of the time of
    decompression. Raises :class:`ReadError`.
    """
    try:
        batch = read_batch(pa.py_buffer(data))
        batch.validate(full=True)
        _check_names(batch.schema)
        return batch
    except ReadError:  # a RuntimeError, too
        raise
    except ARROW_ERRORS as error:
        reason = "it has no record batch" if isinstance(error, StopIteration) else first_line(error)
        raise ReadError(
            f"{what} is not a whole Arrow stream: {reason}", path=path, offset=offset, hint=_HINT
        ) from error


def decode_alike(streams: Sequence[bytes | memoryview]) -> list[pa.RecordBatch]:
    """The first batches of Arrow IPC streams with the same schema message, which is read once.

    Each is checked like in :func:`decode_batch`. Raises one of :data:`ARROW_ERRORS` if a stream is incomplete, or has a
    batch of another kind: then decode each by itself.
    """
    head = head_of(streams[0])
    opening = pa.ipc.read_message(pa.py_buffer(head))
    if opening.type != "schema":
        raise ValueError("it does not begin with a schema")
    schema = pa.ipc.read_schema(opening)
    _check_names(schema)
    if any(map(has_dictionary, schema.types)):
        raise ValueError("its dictionaries are separate messages")
    return [_batch_after(stream, len(head), schema) for stream in streams]


def _batch_after(stream: bytes | memoryview, start: int, schema: pa.Schema) -> pa.RecordBatch:
    message = pa.ipc.read_message(pa.py_buffer(stream).slice(start))
    if message.type != "record batch":
        raise ValueError("no batch follows its schema")
    check_message(message)
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate(full=True)
    return batch


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
    """The first line of an error's message: pyarrow-hotfix adds the whole pickle."""
    return str(error).partition("\n")[0].rstrip(":") or repr(error)


def _check_names(schema: pa.Schema) -> None:
    """Raise ``ValueError`` if a name is not UTF-8: Arrow would raise only when the name is read."""
    for field in schema:
        field.name  # noqa: B018
        _check_nested_names(field.type)


def _check_nested_names(datatype: pa.DataType) -> None:
    for i in range(datatype.num_fields):
        field = datatype.field(i)
        field.name  # noqa: B018
        _check_nested_names(field.type)


END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""The last bytes of an Arrow IPC stream."""
_ID_DIGITS: Final = 32
_MOST_SHAPES: Final = 4096
_MOST_TYPES: Final = 16
"""The limit for shapes that differ only in the types of components."""


class _Room:
    """A thread's memory, in which it encodes one chunk after another, and the shapes of its chunks."""

    def __init__(self) -> None:
        self.shapes: dict[tuple[object, ...], list[ChunkShape]] = {}
        self._buffer = bytearray()

    def bytes(self, size: int) -> bytearray:
        """Return at least ``size`` bytes, the same in each call."""
        if len(self._buffer) < size:
            self._buffer = bytearray(2 * size)
        return self._buffer


class Encoded(NamedTuple):
    """The payload of a chunk as consecutive ``pieces``, and its uncompressed size in bytes.

    Pieces may be the chunk's own columns.
    """

    pieces: Sequence[Bytes]
    uncompressed_size: int
    compression: Compression

    @property
    def size(self) -> int:
        """Bytes of all pieces."""
        return sum(map(len, self.pieces))


def encode_chunk(data: ChunkData, compression: Compression = Compression.LZ4) -> Encoded:
    """Encode a chunk. Raises :class:`WriteError` above 1 GiB.

    Before compression, the bytes are those of :func:`encode_batch` for the chunk's record batch. With ``LZ4``, a chunk
    of 128 KiB or more that would not become a sixth smaller is not compressed.
    """
    shape = _shape_of(data) if compression == Compression.LZ4 else None
    if shape is None or shape.message is None:
        stream, size = encode_batch(data_to_batch(data), compression)
        return Encoded([stream], size, compression)
    taken = _taken(shape, data)
    layout = shape.layout
    if taken is not None and layout is not None and layout.key == taken.key:
        return encode_stream(joined_stream(layout, _digits(data.chunk_id), taken.buffers), compression)
    batch = pa.RecordBatch.from_arrays(arrays_of(data), schema=shape.schema)
    head = len(shape.message)
    if head + pa.ipc.get_record_batch_size(batch) >= LEAST:
        return _encode_large(batch, _message(shape, data))
    body = memoryview(batch.serialize()).cast("B")
    stop = head + len(body)
    size = stop + len(END_OF_STREAM)
    stream = memoryview(lasting(_Room).bytes(size))[:size]
    stream[:head] = _message(shape, data)
    stream[head:stop] = body
    stream[stop:] = END_OF_STREAM
    if taken is not None:
        if taken.key == shape.key:
            shape.layout = _layout_of(shape, taken, stream, head)
        shape.key = taken.key
    return Encoded([compress(stream)], size, Compression.LZ4)


def encode_stream(stream: bytes, compression: Compression = Compression.LZ4) -> Encoded:
    """Encode a small chunk that is an Arrow IPC stream already."""
    if compression != Compression.LZ4:
        return Encoded([stream], len(stream), compression)
    return Encoded([compress(stream)], len(stream), compression)


def _taken(shape: ChunkShape, data: ChunkData) -> Taken | None:
    """Return the buffers of a chunk, or None if they need a batch."""
    if shape.takers is None or not data.num_rows:
        return None
    return take(shape.takers, arrays_of(data), data.num_rows)


def arrays_of(data: ChunkData) -> list[pa.Array]:
    """The columns of a chunk in the order of its batch."""
    return [data.row_ids, *[t.times for t in data.timelines], *[c.values for c in data.components]]


def take(takers: Sequence[Taker], columns: Sequence[pa.Array], rows: int) -> Taken | None:
    """Return the buffers of columns of so many rows, or None if one has nulls, is a slice, or has no value."""
    buffers: list[pa.Buffer] = []
    sizes = [rows]
    for taker, column in zip(takers, columns, strict=True):
        if not taker(column, rows, buffers, sizes):
            return None
    return Taken(buffers, tuple(sizes))


def taker_of(datatype: pa.DataType) -> Taker | None:
    """Return the function that takes a column's buffers, or None if it does not support the type."""
    if pa.types.is_primitive(datatype) or pa.types.is_fixed_size_binary(datatype):
        return _take_plain
    if pa.types.is_string(datatype) or pa.types.is_binary(datatype):
        return _take_bytes
    inner = [taker_of(datatype.field(i).type) for i in range(datatype.num_fields)]
    takers = [taker for taker in inner if taker is not None]
    if not inner or len(takers) < len(inner):
        return None
    if pa.types.is_list(datatype):
        return _list_taker(takers[0])
    if pa.types.is_fixed_size_list(datatype) and datatype.list_size:
        return _array_taker(takers[0], datatype.list_size)
    return _struct_taker(takers) if pa.types.is_struct(datatype) else None


def _take_plain(values: pa.Array, count: int, buffers: list[pa.Buffer], sizes: list[int]) -> bool:  # noqa: ARG001
    if values.offset or values.null_count:
        return False
    buffer = values.buffers()[1]
    if buffer is None:
        return False
    buffers.append(buffer)
    sizes.append(buffer.size)
    return True


def _take_bytes(values: pa.Array, count: int, buffers: list[pa.Buffer], sizes: list[int]) -> bool:
    if values.offset or values.null_count:
        return False
    _, offsets, content = values.buffers()
    if offsets is None or content is None or _OFFSET.unpack_from(offsets)[0]:
        return False
    buffers += (offsets, content)
    sizes += (offsets.size, content.size, _OFFSET.unpack_from(offsets, 4 * count)[0])
    return sizes[-1] > 0


def _list_taker(taker: Taker) -> Taker:
    def take_lists(values: pa.Array, count: int, buffers: list[pa.Buffer], sizes: list[int]) -> bool:
        if values.offset or values.null_count:
            return False
        offsets = values.buffers()[1]
        if offsets is None or _OFFSET.unpack_from(offsets)[0]:
            return False
        stop = _OFFSET.unpack_from(offsets, 4 * count)[0]
        buffers.append(offsets)
        sizes += (offsets.size, stop)
        return stop > 0 and taker(values.values, stop, buffers, sizes)

    return take_lists


def _array_taker(taker: Taker, size: int) -> Taker:
    def take_arrays(values: pa.Array, count: int, buffers: list[pa.Buffer], sizes: list[int]) -> bool:
        return not (values.offset or values.null_count) and taker(values.values, count * size, buffers, sizes)

    return take_arrays


def _struct_taker(takers: Sequence[Taker]) -> Taker:
    def take_structs(values: pa.Array, count: int, buffers: list[pa.Buffer], sizes: list[int]) -> bool:
        if values.offset or values.null_count:
            return False
        return all(taker(values.field(i), count, buffers, sizes) for i, taker in enumerate(takers))

    return take_structs


def joined_stream(layout: StreamLayout, digits: bytes, buffers: Sequence[Bytes]) -> bytes:
    """Return a chunk's stream, by its layout, in a third of Arrow's time."""
    pieces: list[Bytes] = [layout.between[0], digits, layout.between[1]]
    for buffer, size, after in zip(buffers, layout.sizes, layout.between[2:], strict=True):
        pieces += (buffer if len(buffer) == size else memoryview(buffer)[:size], after)
    return b"".join(pieces)


def _layout_of(shape: ChunkShape, taken: Taken, stream: memoryview, start: int) -> StreamLayout | None:
    """Return the layout of a stream whose batch begins at ``start``, or None if it has other buffers than ``taken``."""
    body = start + 8 + int.from_bytes(stream[start + 4 : start + 8], "little")
    places = [(body + offset, size) for offset, size in _buffer_spans(stream[start + 8 : body]) if size]
    if len(places) != len(taken.buffers):
        return None
    starts = [shape.at, *[at for at, _ in places], len(stream)]
    ends = [0, shape.at + _ID_DIGITS, *[at + size for at, size in places]]
    between = [bytes(stream[end:at]) for end, at in zip(ends, starts, strict=True)]
    layout = StreamLayout(taken.key, tuple(size for _, size in places), tuple(between), len(stream))
    digits = bytes(stream[shape.at : shape.at + _ID_DIGITS])
    return layout if joined_stream(layout, digits, taken.buffers) == stream else None


def _buffer_spans(metadata: memoryview) -> list[tuple[int, int]]:
    """Return offset and size of each buffer of a batch, from the message before it."""
    table = _follow(metadata, _field(metadata, _follow(metadata, 0), _MESSAGE_HEADER))
    vector = _follow(metadata, _field(metadata, table, _BATCH_BUFFERS))
    return [_SPAN.unpack_from(metadata, vector + 4 + 16 * i) for i in range(_U32.unpack_from(metadata, vector)[0])]


def _encode_large(batch: pa.RecordBatch, message: bytes) -> Encoded:
    pieces = [pa.py_buffer(message), *stream_pieces(batch, after=len(message))]
    size = sum(piece.size for piece in pieces)
    check_size(size)
    compressed = compress_pieces(pieces)
    if compressed is None:
        return Encoded(pieces, size, Compression.NONE)
    return Encoded(compressed, size, Compression.LZ4)


def _message(shape: ChunkShape, data: ChunkData) -> bytes:
    """The schema, with the chunk's own id in it."""
    assert shape.message is not None
    return shape.message[: shape.at] + _digits(data.chunk_id) + shape.message[shape.at + _ID_DIGITS :]


def _digits(chunk_id: bytes) -> bytes:
    return tuid_text(chunk_id, "").encode()


def _shape_of(data: ChunkData) -> ChunkShape:
    types = [c.values.type for c in data.components]
    key = (
        data.entity_path,
        data.ids_ascend,
        *[(t.name, t.kind, t.is_sorted) for t in data.timelines],
        *[c.descriptor for c in data.components],
    )
    room = lasting(_Room)
    shapes = room.shapes.get(key)
    if shapes is None:
        if len(room.shapes) >= _MOST_SHAPES:
            room.shapes.clear()
        shapes = room.shapes[key] = []
    for shape in shapes:
        if alike(shape.types, types):
            return shape
    if len(shapes) >= _MOST_TYPES:
        shapes.clear()
    shapes.append(_new_shape(data, types))
    return shapes[-1]


def _new_shape(data: ChunkData, types: Sequence[pa.DataType]) -> ChunkShape:
    schema = batch_schema(data)
    unusable = ChunkShape(schema, None, 0, types)
    if any(map(has_dictionary, schema.types)):
        return unusable
    message = bytes(schema.serialize())
    digits = _digits(data.chunk_id)
    if message.count(digits) != 1:  # an entity with the id in its name, for example
        return unusable
    takers = [taker_of(datatype) for datatype in schema.types]
    all_takers = [taker for taker in takers if taker is not None]
    usable = all_takers if len(all_takers) == len(takers) else None
    return ChunkShape(schema, message, message.index(digits), types, usable)


_CONTINUED: Final = b"\xff\xff\xff\xff"
_PREFIX: Final = b"chunk_"
_ID_SIZE: Final = len(_PREFIX) + 32
_LARGEST_SCHEMA: Final = 1 << 16
_MOST_SCHEMAS: Final = 1024
_MOST_TRIES: Final = 8

_Key = tuple[int, bytes]
"""The place of the id in a schema message, and the message without the id."""


@dataclass(slots=True)
class _KnownSchema:
    """A schema, and where its columns go.

    ``batch_head`` is the checked head of an uncompressed batch: an equal head is not checked again. ``places`` are the
    places of the columns after such a head, from its second occurrence on.
    """

    schema: pa.Schema
    layout: BatchLayout
    batch_head: bytes = b""
    places: ColumnPlaces | None = None
    tries: int = 0


class _KnownSchemas(dict[_Key, _KnownSchema]):
    """The schemas that a thread has seen."""


def decode_chunk(stream: bytes | memoryview, *, path: str, offset: int | None, what: str) -> ChunkData:
    """The chunk in an Arrow IPC stream. Every buffer and offset is checked, like in :func:`decode_batch`.

    Raises :class:`ReadError` for an invalid stream, ``ValueError`` for a batch that is no chunk.
    """
    head = head_of(stream)
    key = _key_of(head)
    shape = lasting(_KnownSchemas).get(key) if key is not None else None
    if key is not None and shape is not None:
        chunk = _decoded(stream, head, key[0], shape)
        if chunk is not None:
            return chunk
    batch = decode_batch(stream, path=path, offset=offset, what=what)
    data, layout = data_with_layout(batch)
    if key is not None and shape is None and layout is not None:
        _keep(head, key, batch.schema, layout, data)
    return data


def head_of(stream: bytes | memoryview) -> bytes:
    """Return the schema message at the start of a stream; empty for an unusual start."""
    if stream[:4] != _CONTINUED:
        return b""
    stop = 8 + int.from_bytes(stream[4:8], "little")
    return b"" if stop > min(len(stream), _LARGEST_SCHEMA) else bytes(stream[:stop])


def _key_of(head: bytes) -> _Key | None:
    """Return the key of a schema message, or None without a message or an id in it."""
    at = head.find(_PREFIX, 8)
    return None if at < 0 or at + _ID_SIZE > len(head) else (at, head[:at] + head[at + _ID_SIZE :])


def _decoded(stream: bytes | memoryview, head: bytes, at: int, shape: _KnownSchema) -> ChunkData | None:
    """Return the chunk, or None for anything unusual or wrong, which takes the full checks."""
    start = len(head)
    batch_head = bytes(stream[start : start + 8 + int.from_bytes(stream[start + 4 : start + 8], "little")])
    was_seen = batch_head == shape.batch_head
    try:
        chunk_id = bytes.fromhex(head[at + len(_PREFIX) : at + _ID_SIZE].decode("ascii"))
        message = pa.ipc.read_message(pa.py_buffer(stream).slice(start))
        if len(chunk_id) != 16 or message.type != "record batch":
            return None
        if not was_seen and not check_message(message):
            shape.batch_head = batch_head
        batch = pa.ipc.read_record_batch(message, shape.schema)
        batch.validate(full=True)
    except ARROW_ERRORS:
        return None
    chunk = shape.layout.chunk(batch, chunk_id)
    is_known = shape.places is not None and shape.places.head == batch_head
    if was_seen and chunk is not None and not is_known and shape.tries < _MOST_TRIES:
        shape.tries += 1
        shape.places = _places(stream, batch_head, start, shape, chunk)
    return chunk


def places_in(stream: bytes | memoryview) -> tuple[ColumnPlaces, bytes] | None:
    """Return the places of a chunk's columns in its stream, and its id, or None if the stream must be checked.

    No check is needed if :func:`decode_chunk` has checked a chunk with the same schema, batch head and list offsets.
    """
    head = head_of(stream)
    key = _key_of(head)
    shape = lasting(_KnownSchemas).get(key) if key is not None else None
    places = None if shape is None else shape.places
    if places is None or key is None or not places.fit(stream, len(head)):
        return None
    at = key[0]
    try:
        chunk_id = bytes.fromhex(head[at + len(_PREFIX) : at + _ID_SIZE].decode("ascii"))
    except ValueError:
        return None
    return (places, chunk_id) if len(chunk_id) == 16 else None


def _places(
    stream: bytes | memoryview, batch_head: bytes, start: int, shape: _KnownSchema, chunk: ChunkData
) -> ColumnPlaces | None:
    """Return the column places of a decoded chunk, or None for types, orders or nulls that need decoding."""
    target = _shape_of(chunk)
    ascends = chunk.ids_ascend and all(line.is_sorted for line in chunk.timelines)
    if target.takers is None or not ascends or len(stream) >= LEAST:
        return None
    base = start + len(batch_head)
    spans = iter([(base + offset, size) for offset, size in _buffer_spans(memoryview(batch_head)[8:])])
    order = [0, *[i for i, _, _ in shape.layout.timelines], *[i for i, _ in shape.layout.components]]
    arrays = dict(zip(order, arrays_of(chunk), strict=True))
    readers: dict[int, ColumnReader] = {}
    for i in range(len(order)):
        reader = reader_of(arrays[i], spans)
        if reader is None:
            return None
        readers[i] = reader
    columns = []
    for i, taker in zip(order, target.takers, strict=True):
        taken = take([taker], [arrays[i]], chunk.num_rows)
        if taken is None or len(taken.buffers) != len(readers[i].spans):
            return None
        columns.append(ColumnPlace(readers[i], taker, arrays[i].type, taken.key[1:]))
    return ColumnPlaces.of(chunk, batch_head, columns, stream, target)


def _keep(head: bytes, key: _Key, schema: pa.Schema, layout: BatchLayout, data: ChunkData) -> None:
    """Remember a schema, if the key omits the chunk's own id, and its columns need no conversion."""
    at, _ = key
    digits = head[at + len(_PREFIX) : at + _ID_SIZE]
    is_plain = not any(has_dictionary(t) or isinstance(t, pa.BaseExtensionType) for t in schema.types)
    is_id = digits == tuid_text(data.chunk_id, "").encode() and head.count(digits) == 1
    if is_plain and is_id:
        shapes = lasting(_KnownSchemas)
        if len(shapes) >= _MOST_SCHEMAS:
            shapes.clear()
        shapes[key] = _KnownSchema(schema, layout)
