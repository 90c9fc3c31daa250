"""The recordings that are damaged: small, of every shape, and the same bytes each time they are made."""

from __future__ import annotations

import io
import itertools
import random
import struct
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from chunkmill.engine.chunk import Chunk, ComponentDescriptor, tuid
from chunkmill.engine.optimisation import merging
from chunkmill.engine.rrd import Compression, RrdWriter, StoreEntry
from chunkmill.engine.rrd import writer as rrd_writer
from chunkmill.engine.rrd.messages import (
    STREAM_FOOTER_SIZE,
    STREAM_HEADER_SIZE,
    MessageKind,
    message_header,
    parse_stream_footer,
    stream_footer,
)
from chunkmill.engine.stream import LazyChunkStream
from fuzz_encodings import encoded_messages
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from mcap.writer import CompressionType, IndexType, Writer
from mutation import LengthField, from_varint

_RANGE = tuple[int, int]


@dataclass(frozen=True)
class Source:
    """A recording, or one file of a store.

    ``lengths`` are its length fields, ``unguarded`` the ranges in which its format has nothing that tells right bytes
    from wrong ones. ``seal`` makes the checksums of damaged bytes right again, as an attacker would. ``suffix`` is
    that of its name, where that matters.
    """

    name: str
    data: bytes
    lengths: tuple[LengthField, ...] = ()
    unguarded: tuple[_RANGE, ...] = ()
    seal: Callable[[bytes], bytes] | None = None
    suffix: str = ""


@contextmanager
def _same_ids() -> Iterator[None]:
    """Ids count from one and the clock stands still, so that two runs make the same bytes."""
    numbers = itertools.count(1)
    names = random.Random(0)
    with ExitStack() as stack:
        for module in (tuid, rrd_writer, merging):
            stack.enter_context(
                patch.object(module, "mint", lambda rows=0: struct.pack(">QQ", 1_700_000_000, next(numbers) << 20))
            )
        stack.enter_context(patch.object(uuid, "uuid4", lambda: uuid.UUID(int=names.getrandbits(128), version=4)))
        stack.enter_context(patch("time.time", lambda: 1_700_000_000.25))
        stack.enter_context(patch("time.perf_counter", lambda: 0.25))
        yield


# --- chunks


def chunks() -> list[Chunk]:
    """Scalars, text, nested lists, structs, nulls, bytes that do not compress, a static chunk, one without rows."""
    frames = pa.array(np.arange(12), pa.int64())
    stamps = pa.array(np.arange(12) * 10**9, pa.timestamp("ns"))
    noise = np.random.default_rng(5)
    scalar = pa.array([[float(i)] for i in range(12)], pa.list_(pa.float64()))
    text = pa.array([None if i % 3 == 0 else [f"row {i} é", ""] for i in range(12)], pa.list_(pa.string()))
    point = pa.list_(pa.list_(pa.float32(), 3))
    points = pa.array([[noise.random(3, np.float32).tolist()] * (i % 3) for i in range(12)], point)
    pose = pa.array([[{"x": i, "ok": None if i == 4 else bool(i % 2)}] for i in range(12)])
    blob = pa.array([[noise.bytes(700)] for _ in range(3)], pa.list_(pa.binary()))
    big = pa.array([[noise.bytes(70_000)]], pa.list_(pa.binary()))
    scalars = ComponentDescriptor("Scalars:scalars", "rerun.archetypes.Scalars", "rerun.components.Scalar")
    return [
        Chunk.build("/arm/joint", {"frame": frames, "log_time": stamps}, [(scalars, scalar)]),
        Chunk.build("/log", {"log_time": stamps}, [(ComponentDescriptor("TextLog:text"), text)]),
        Chunk.build("/lidar", {"frame": frames}, [(ComponentDescriptor("P:positions"), points), (scalars, scalar)]),
        Chunk.build("/pose", {"frame": frames}, [(ComponentDescriptor("pose"), pose)]),
        Chunk.build("/camera", {"frame": frames[:3]}, [(ComponentDescriptor("Image:buffer"), blob)]),
        Chunk.build("/camera", {"frame": pa.array([40])}, [(ComponentDescriptor("Image:buffer"), big)]),
        Chunk.build("/calibration", {}, [(ComponentDescriptor("K"), scalar[:1])]),
        Chunk.build("/empty", {"frame": frames[:0]}, [(scalars, scalar[:0])]),
    ]


# --- RRD


def rrd_sources() -> list[Source]:
    """LZ4 and uncompressed, with a footer and without; two stores; one with a payload that is read in pieces."""
    with _same_ids():
        small, big = [c for c in chunks() if c.header.entity_path != "/camera"], chunks()
        first, second = StoreEntry("recording", "app", "one"), StoreEntry("blueprint", "app", "two")
        lz4 = _written_rrd({first: small, second: small[:1]}, Compression.LZ4)
        plain = _written_rrd({first: small}, Compression.NONE)
        whole = {"lz4": lz4, "plain": plain, "pieces": _written_rrd({first: big}, Compression.LZ4)}
    legacy = {f"{name}-legacy": _without_footer(data) for name, data in whole.items() if name != "pieces"}
    return [_rrd_source(name, data) for name, data in {**whole, **legacy}.items()]


def _written_rrd(stores: dict[StoreEntry, list[Chunk]], compression: Compression) -> bytes:
    file = io.BytesIO()
    writer = RrdWriter(file, path="memory", compression=compression)
    for store, found in stores.items():
        writer.begin_store(store)
        for chunk in found:
            writer.append(store, chunk)
    writer.finish()
    return file.getvalue()


def _frames(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Kind, begin and end of each message's payload, the end message last."""
    at, kind = STREAM_HEADER_SIZE, -1
    while kind != MessageKind.END:
        kind, size = struct.unpack_from("<QQ", data, at)
        yield kind, at + 16, at + 16 + size
        at += 16 + size


def _without_footer(data: bytes) -> bytes:
    *_, (_, begin, _) = _frames(data)
    return data[: begin - 16] + message_header(MessageKind.END, 0)


def _rrd_source(name: str, data: bytes) -> Source:
    footer = parse_stream_footer(data[-STREAM_FOOTER_SIZE:])
    lengths: list[LengthField] = []
    messages: list[_RANGE] = []
    for kind, begin, end in _frames(data):
        lengths.append(LengthField(begin - 8, 8))
        lengths += _protobuf_lengths(data, begin, end, 0)
        if kind != MessageKind.END:
            messages.append((begin, end))
    if footer is not None:
        at = len(data) - STREAM_FOOTER_SIZE
        lengths += [LengthField(at, 8), LengthField(at + 8, 8), LengthField(at + 16, 4), LengthField(at + 28, 4)]
    version_bytes = (4, 9)  # any release may have written the file, and the compression named there decorates
    return Source(name, data, tuple(lengths), (version_bytes, *messages), _seal_rrd if footer else None)


def _protobuf_lengths(data: bytes, begin: int, end: int, depth: int) -> list[LengthField]:
    """The lengths and numbers of a protobuf message, of its submessages too; none if it does not parse as one."""
    found: list[LengthField] = []
    at = begin
    while at < end:
        tag, at = _varint_at(data, at, end)
        if tag & 7 == 1 or tag & 7 == 5:
            at += 8 if tag & 7 == 1 else 4
            continue
        start = at
        value, at = _varint_at(data, at, end)
        if tag == 0 or tag & 7 not in (0, 2) or at > end or (tag & 7 == 2 and value > end - at):
            return []
        found.append(LengthField(start, at - start, varint=True))
        if tag & 7 == 2:
            found += _protobuf_lengths(data, at, at + value, depth + 1) if depth < 3 and value < 4096 else []
            at += value
    return found if at == end else []


def _varint_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    stop = at
    while stop < end - 1 and stop - at < 9 and data[stop] > 0x7F:
        stop += 1
    return from_varint(data[at : stop + 1]), stop + 1


def _seal_rrd(data: bytes) -> bytes:
    footer = parse_stream_footer(data[-STREAM_FOOTER_SIZE:])
    if footer is None:
        return data
    return data[:-STREAM_FOOTER_SIZE] + stream_footer(footer.start, data[footer.start :][: footer.length])


# --- MCAP


def mcap_sources() -> list[Source]:
    """Each compression with CRCs of chunks and of the whole; with an index and without; without chunks."""
    kinds = {"none": CompressionType.NONE, "lz4": CompressionType.LZ4, "zstd": CompressionType.ZSTD}
    sources = [_mcap(name, compression=kind, enable_data_crcs=True) for name, kind in kinds.items()]
    sources += [_mcap(f"{name}-chunk-crcs", compression=kind) for name, kind in kinds.items()]
    sources.append(
        _mcap("unindexed", compression=CompressionType.ZSTD, index_types=IndexType.NONE, enable_data_crcs=True)
    )
    sources.append(_mcap("unchunked", use_chunking=False, enable_data_crcs=True))
    sources.append(_mcap("encodings", compression=CompressionType.NONE))
    sources.append(_mcap("encodings-lz4", compression=CompressionType.LZ4, enable_data_crcs=True))
    return sources


def _mcap(name: str, **options: object) -> Source:
    file = io.BytesIO()
    writer = Writer(file, chunk_size=2048, **options)  # type: ignore[arg-type]
    writer.start(profile="ros2", library="fuzz")
    if name.startswith("encodings"):
        for i, (channel, data) in enumerate(encoded_messages(writer, 63)):
            writer.add_message(channel, log_time=10**9 + i, data=data, publish_time=10**9, sequence=i)
    else:
        _add_common(writer)
    guarded_whole = bool(options.get("enable_data_crcs"))
    if guarded_whole:
        writer.add_attachment(1, 2, "notes.txt", "text/plain", b"attached")
        writer.add_metadata("place", {"site": "north"})
    writer.finish()
    data = file.getvalue()
    lengths, unguarded = _mcap_fields(data)
    return Source(name, data, lengths, () if guarded_whole else unguarded, _seal_mcap)


def _add_common(writer: Writer) -> None:
    ids = [_ros2_channel(writer), _protobuf_channel(writer), writer.register_channel("/raw", "opaque", 0, {"k": "v"})]
    chance = random.Random(3)
    for i in range(60):
        word = f"message {i} é".encode() + b"\0"
        ros = b"\0\1\0\0" + struct.pack("<dI", i / 3, len(word)) + word
        ros += bytes(-len(ros) % 4) + struct.pack("<I3f", 3, i, 0.5, 2)
        proto = b"\x08" + bytes([i + 1]) + b"\x12\x04word" + b"\x1a\x08" + chance.randbytes(8)
        data = (ros, proto, chance.randbytes(40))[i % 3]
        writer.add_message(ids[i % 3], log_time=10**9 + i, data=data, publish_time=10**9 + i // 2, sequence=i)


def _ros2_channel(writer: Writer) -> int:
    text = b"float64 value\nstring word\nfloat32[] values"
    return writer.register_channel("/ros", "cdr", writer.register_schema("fuzz_msgs/msg/Sample", "ros2msg", text))


def _protobuf_channel(writer: Writer) -> int:
    kinds = (("number", F.TYPE_UINT32), ("word", F.TYPE_STRING), ("bytes", F.TYPE_BYTES))
    fields = [F(name=name, number=i, type=kind, label=F.LABEL_OPTIONAL) for i, (name, kind) in enumerate(kinds, 1)]
    message = DescriptorProto(name="Sample", field=fields)
    file = FileDescriptorProto(name="fuzz.proto", package="fuzz", syntax="proto3", message_type=[message])
    schema = FileDescriptorSet(file=[file]).SerializeToString()
    return writer.register_channel("/proto", "protobuf", writer.register_schema("fuzz.Sample", "protobuf", schema))


F = FieldDescriptorProto
_TEXT_FIELDS = {1: (0,), 3: (2,), 4: (4,)}


def _mcap_fields(data: bytes) -> tuple[tuple[LengthField, ...], tuple[_RANGE, ...]]:
    """The lengths of a file without damage, and what no CRC covers when there is none of the whole data section."""
    lengths: list[LengthField] = []
    unguarded: list[_RANGE] = []
    at = 8
    while at < len(data) - 8:
        opcode, size = struct.unpack_from("<BQ", data, at)
        body = at + 9
        lengths.append(LengthField(at + 1, 8))
        lengths += [LengthField(body + i, 4) for i in _TEXT_FIELDS.get(opcode, ())]
        if opcode == 6:
            name = int.from_bytes(data[body + 28 : body + 32], "little")
            lengths += [LengthField(body + 16, 8), LengthField(body + 28, 4), LengthField(body + 32 + name, 8)]
        elif opcode == 8:
            lengths += [LengthField(body + i, 8) for i in (16, 24)] + [LengthField(body + 32, 4)]
        elif opcode == 2:
            lengths += [LengthField(body, 8), LengthField(body + 8, 8)]
        elif opcode == 7:
            lengths.append(LengthField(body + 2, 4))
        elif opcode == 1:
            unguarded.append((body, body + size))
        at = body + size
    return tuple(lengths), tuple(unguarded)


def _seal_mcap(data: bytes) -> bytes:
    """The CRC of the summary made right; that of the data section, and of uncompressed chunks, said not to be there."""
    out = bytearray(data)
    at = 8
    while at + 9 <= len(out) - 8:
        opcode, size = struct.unpack_from("<BQ", out, at)
        if opcode == 6 and at + 37 <= len(out):
            out[at + 33 : at + 37] = bytes(4)
        elif opcode == 15 and at + 13 <= len(out):
            out[at + 9 : at + 13] = bytes(4)
        elif opcode == 2 and at + 29 <= len(out):
            start = int.from_bytes(out[at + 9 : at + 17], "little")
            out[at + 25 : at + 29] = struct.pack("<I", zlib.crc32(out[start : at + 25]))
        at += 9 + size
    return bytes(out)


# --- kept stores


def make_store(folder: Path) -> None:
    """A kept store of two versions."""
    with _same_ids():
        small = [c for c in chunks() if c.header.entity_path != "/camera"]
        for found in (small[:2], small):
            stream = LazyChunkStream.from_iter(found)
            stream.collect(into=folder, application_id="app", recording_id="rec", executor="inline")


def store_files(folder: Path) -> list[Path]:
    """The files of its readers, without the lease, in an order that does not depend on the file system."""
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.parent.name != "lease")
