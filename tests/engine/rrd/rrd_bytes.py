"""Small recordings, and the bytes of damaged ones, for the tests of the container."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random

import lz4.block
import numpy as np
import pyarrow as pa
from chunkmill.engine.chunk import Chunk, ComponentDescriptor
from chunkmill.engine.rrd import RrdWriter, StoreEntry
from chunkmill.engine.rrd.messages import (
    MESSAGE_HEADER_SIZE,
    ArrowMsg,
    MessageKind,
    RrdFooter,
    SetStoreInfo,
    message_header,
    parse_stream_footer,
    stream_footer,
    stream_header,
)

STORE = StoreEntry("recording", "app", "rec")
SCALARS = ComponentDescriptor("Scalars:scalars", "rerun.archetypes.Scalars", "rerun.components.Scalar")


def scalars(entity: str = "/arm", start: int = 0, rows: int = 4, timeline: str = "frame") -> Chunk:
    """A chunk of ``rows`` scalars on one sequence timeline."""
    values = pa.array([[float(i)] for i in range(rows)], pa.list_(pa.float64()))
    times = pa.array(np.arange(start, start + rows), pa.int64())
    return Chunk.build(entity, {timeline: times}, [(SCALARS, values)])


def static(entity: str = "/calibration") -> Chunk:
    return Chunk.build(entity, {}, [(ComponentDescriptor("K"), pa.array([[1.0, 2.0]], pa.list_(pa.float64())))])


def image(size: int = 400_000, start: int = 0) -> Chunk:
    """A chunk of one row whose payload does not compress, large enough for a copy by the kernel."""
    pixels = pa.array(np.random.default_rng(start).integers(0, 256, size, dtype=np.uint8))
    rows = pa.ListArray.from_arrays([0, 1], pa.ListArray.from_arrays([0, size], pixels))
    return Chunk.build("/camera", {"frame": pa.array([start])}, [(ComponentDescriptor("Image:buffer"), rows)])


TIMES = [pa.int64(), pa.timestamp("ns"), pa.duration("ns")]
VALUES: list[pa.DataType] = [
    pa.float64(),
    pa.int8(),
    pa.bool_(),
    pa.float16(),
    pa.timestamp("ns"),
    pa.decimal128(9, 2),
    pa.binary(3),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.null(),
    pa.list_(pa.int16()),
    pa.list_(pa.float32(), 3),
    pa.list_(pa.list_(pa.string())),
    pa.struct([pa.field("x", pa.float64()), pa.field("text", pa.string())]),
    pa.struct([pa.field("x", pa.list_(pa.uint8())), pa.field("y", pa.list_(pa.bool_(), 2))]),
]


def a_value(datatype: pa.DataType, random: Random, size: int, *, nulls: bool) -> object:
    """Any value; texts and lists have ``size`` elements."""
    if pa.types.is_null(datatype) or (nulls and random.random() < 0.2):
        return None
    if pa.types.is_struct(datatype):
        return {field.name: a_value(field.type, random, size, nulls=nulls) for field in datatype}
    if pa.types.is_fixed_size_list(datatype):
        return [a_value(datatype.value_type, random, size, nulls=nulls) for _ in range(datatype.list_size)]
    if pa.types.is_list(datatype):
        return [a_value(datatype.value_type, random, size, nulls=nulls) for _ in range(size)]
    if pa.types.is_boolean(datatype):
        return random.random() < 0.5
    if pa.types.is_fixed_size_binary(datatype):
        return random.randbytes(3)
    if pa.types.is_binary(datatype):
        return random.randbytes(size)
    number = random.randrange(100)
    if pa.types.is_string(datatype) or pa.types.is_large_string(datatype):
        return f"{number:0{size}}"[:size]
    return (
        Decimal(number) if pa.types.is_decimal(datatype) else np.float16(number) if datatype == pa.float16() else number
    )


def a_column(
    datatype: pa.DataType, rows: int, random: Random, *, nulls: bool, is_slice: bool, varies: bool
) -> pa.Array:
    lengths = [random.randrange(4) if varies else 2 for _ in range(rows + 2 * is_slice)]
    lists = [
        None if nulls and random.random() < 0.2 else [a_value(datatype, random, size, nulls=nulls) for _ in range(size)]
        for size in lengths
    ]
    column = pa.array(lists, pa.list_(datatype))
    return column.slice(1, rows) if is_slice else column


def write_rrd(path: Path, chunks: list[Chunk], store: StoreEntry = STORE) -> Path:
    with RrdWriter(path) as writer:
        writer.begin_store(store)
        for chunk in chunks:
            writer.append(store, chunk)
        writer.finish()
    return path


def rrd_bytes(*chunks: Chunk, store: StoreEntry = STORE) -> bytes:
    file = io.BytesIO()
    writer = RrdWriter(file, path="memory")
    writer.begin_store(store)
    for chunk in chunks:
        writer.append(store, chunk)
    writer.finish()
    return file.getvalue()


def frame(kind: int, payload: bytes) -> bytes:
    return struct.pack("<QQ", kind, len(payload)) + payload


def frames(data: bytes) -> list[tuple[int, bytes]]:
    """Kind and payload of every message of a stream, the end message last."""
    found, at = [], 12
    while at < len(data) and (not found or found[-1][0] != MessageKind.END):
        kind, size = struct.unpack_from("<QQ", data, at)
        found.append((kind, data[at + 16 : at + 16 + size]))
        at += 16 + size
    return found


def without_footer(data: bytes) -> bytes:
    """The same recording as older writers leave it: nothing after the last chunk but an empty end message."""
    return join([f for f in frames(data) if f[0] != MessageKind.END], end=frame(MessageKind.END, b""))


def join(messages: list[tuple[int, bytes]], *, end: bytes = b"", header: bytes | None = None) -> bytes:
    return (header or stream_header()) + b"".join(frame(k, p) for k, p in messages) + end


def with_arrow_msg(change: Callable[[object], None]) -> bytes:
    """A legacy recording of one chunk whose ``ArrowMsg`` was changed."""
    messages = []
    for kind, payload in frames(rrd_bytes(scalars()))[:-1]:
        if kind == MessageKind.ARROW_MSG:
            message = ArrowMsg.FromString(payload)
            change(message)
            payload = message.SerializeToString()
        messages.append((kind, payload))
    return join(messages, end=frame(MessageKind.END, b""))


def with_store_info(change: Callable[[object], None]) -> bytes:
    """A legacy recording of one chunk whose ``SetStoreInfo`` was changed."""
    messages = []
    for kind, payload in frames(rrd_bytes(scalars()))[:-1]:
        if kind == MessageKind.SET_STORE_INFO:
            message = SetStoreInfo.FromString(payload)
            change(message)
            payload = message.SerializeToString()
        messages.append((kind, payload))
    return join(messages, end=frame(MessageKind.END, b""))


def with_footer(data: bytes, change: Callable[[object], None]) -> bytes:
    """``data`` with its ``RrdFooter`` changed, and the checksum right again."""
    found = parse_stream_footer(data[-32:])
    assert found is not None
    footer = RrdFooter.FromString(data[found.start : found.start + found.length])
    change(footer)
    payload = footer.SerializeToString()
    head = data[: found.start - MESSAGE_HEADER_SIZE]
    return head + message_header(MessageKind.END, len(payload)) + payload + stream_footer(found.start, payload)


def with_manifest(data: bytes, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> bytes:
    """``data`` with the columns of its first manifest changed, and without digests, as others write it."""

    def change_footer(footer: object) -> None:
        footer.manifests[0].ClearField("chunk_digests")  # type: ignore[attr-defined]
        part = footer.manifests[0].data  # type: ignore[attr-defined]
        stream = lz4.block.decompress(part.payload, uncompressed_size=part.uncompressed_size)
        stream = ipc(change(pa.ipc.open_stream(stream).read_next_batch()))
        part.payload, part.uncompressed_size = lz4.block.compress(stream, store_size=False), len(stream)

    return with_footer(data, change_footer)


def undigested(data: bytes) -> bytes:
    """``data`` without the digests of its chunks."""

    def change_footer(footer: object) -> None:
        for manifest in footer.manifests:  # type: ignore[attr-defined]
            manifest.ClearField("chunk_digests")

    return with_footer(data, change_footer)


def with_sorbet_schema(data: bytes, change: Callable[[pa.Schema], pa.Schema]) -> bytes:
    """``data`` with the union schema of its first manifest changed."""

    def change_footer(footer: object) -> None:
        manifest = footer.manifests[0]  # type: ignore[attr-defined]
        schema = pa.ipc.open_stream(manifest.sorbet_schema.arrow_schema).schema
        manifest.sorbet_schema.arrow_schema = ipc_schema(change(schema))

    return with_footer(data, change_footer)


def ipc(*batches: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def ipc_schema(schema: pa.Schema) -> bytes:
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, schema).close()
    return sink.getvalue().to_pybytes()


def drop_columns(batch: pa.RecordBatch, *suffixes: str) -> pa.RecordBatch:
    return batch.select([i for i, n in enumerate(batch.schema.names) if not n.endswith(suffixes)])


def content(chunk: Chunk) -> tuple[object, ...]:
    """What must survive a round trip, all of it."""
    batch = chunk.to_record_batch()
    return batch.schema.metadata, [(f, f.metadata) for f in batch.schema], batch.to_pydict()
