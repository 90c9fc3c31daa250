"""MCAP files made of bytes: right ones, and wrong ones on purpose."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import lz4.frame
import pyarrow as pa
import zstandard
from chunkmill.engine.chunk import Chunk
from chunkmill.readers.mcap import McapSource
from chunkmill.readers.mcap.decoders import DECODERS, FILE_DECODERS, McapOptions

MAGIC = b"\x89MCAP0\r\n"
COMPRESS = {"": bytes, "lz4": lz4.frame.compress, "zstd": zstandard.compress}


def record(opcode: int, body: bytes) -> bytes:
    return struct.pack("<BQ", opcode, len(body)) + body


def text(value: str) -> bytes:
    return struct.pack("<I", len(value.encode())) + value.encode()


def header() -> bytes:
    return record(1, text("profile") + text("library"))


def schema(id_: int, name: str = "s", encoding: str = "opaque", data: bytes = b"{}") -> bytes:
    return record(3, struct.pack("<H", id_) + text(name) + text(encoding) + struct.pack("<I", len(data)) + data)


def channel(id_: int, topic: str = "/t", encoding: str = "opaque", schema_id: int = 0) -> bytes:
    return record(4, struct.pack("<HH", id_, schema_id) + text(topic) + text(encoding) + struct.pack("<I", 0))


def message(channel_id: int, log_time: int, data: bytes = b"data", publish_time: int | None = None) -> bytes:
    publish_time = log_time if publish_time is None else publish_time
    return record(5, struct.pack("<HIQQ", channel_id, 0, log_time, publish_time) + data)


def attachment(data: bytes, crc: int | None = None) -> bytes:
    body = struct.pack("<QQ", 1, 2) + text("name") + text("text/plain") + struct.pack("<Q", len(data)) + data
    return record(9, body + struct.pack("<I", zlib.crc32(body) if crc is None else crc))


class ChunkOf(NamedTuple):
    """A Chunk record with the MessageIndex records behind it, and what its ChunkIndex record says."""

    chunk: bytes
    indexes: bytes
    uncompressed: int
    compression: str
    compressed: int
    channel_ids: tuple[int, ...]

    @property
    def data(self) -> bytes:
        return self.chunk + self.indexes

    def entry(self, offset: int) -> bytes:
        ids = b"".join(struct.pack("<HQ", i, 0) for i in self.channel_ids)
        return record(
            8,
            struct.pack("<QQQQI", 0, 0, offset, len(self.chunk), len(ids))
            + ids
            + struct.pack("<Q", len(self.indexes))
            + text(self.compression)
            + struct.pack("<QQ", self.compressed, self.uncompressed),
        )


def chunk_of(
    records: Sequence[bytes],
    compression: str = "zstd",
    *,
    index: bool = True,
    crc: bool = True,
    data: bytes | None = None,
    size: int | None = None,
) -> ChunkOf:
    """A chunk of whole records. ``data`` and ``size`` replace the compressed bytes and the declared size."""
    raw = b"".join(records)
    packed = COMPRESS[compression](raw) if data is None else data
    declared = len(raw) if size is None else size
    body = struct.pack("<QQQI", 0, 0, declared, zlib.crc32(raw) if crc else 0) + text(compression)
    pairs: dict[int, bytes] = {}
    at = 0
    for r in records:
        if r[0] == 5:
            (id_,) = struct.unpack_from("<H", r, 9)
            pairs[id_] = pairs.get(id_, b"") + r[15:23] + struct.pack("<Q", at)
        at += len(r)
    indexes = [record(7, struct.pack("<HI", id_, len(p)) + p) for id_, p in pairs.items()]
    return ChunkOf(
        record(6, body + struct.pack("<Q", len(packed)) + packed),
        b"".join(indexes) if index else b"",
        declared,
        compression,
        len(packed),
        tuple(pairs) if index else (),
    )


def statistics(messages: int, channels: int, chunks: int) -> bytes:
    return record(11, struct.pack("<QHIIIIQQI", messages, 0, channels, 0, 0, chunks, 0, 0, 0))


def mcap(
    parts: Sequence[bytes | ChunkOf],
    summary: Sequence[bytes] | None = None,
    *,
    data_crc: bool = False,
    entries: bool = True,
) -> bytes:
    """A whole file. With a ``summary``, the chunks among ``parts`` are indexed there (unless ``entries`` is false)."""
    out = bytearray(MAGIC + header())
    found: list[bytes] = []
    for part in parts:
        if isinstance(part, ChunkOf):
            found.append(part.entry(len(out)))
        out += part.data if isinstance(part, ChunkOf) else part
    out += record(15, struct.pack("<I", zlib.crc32(out) if data_crc else 0))
    if summary is None:
        return bytes(out) + record(2, struct.pack("<QQI", 0, 0, 0)) + MAGIC
    begin = len(out)
    section = b"".join(summary) + (b"".join(found) if entries else b"")
    foot = struct.pack("<BQQQ", 2, 20, begin, 0)
    return bytes(out) + section + foot + struct.pack("<I", zlib.crc32(section + foot)) + MAGIC


def written(folder: Path, data: bytes, name: str = "x.mcap") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def chunks_of(path: Path, **options: object) -> list[Chunk]:
    """All chunks of a file, in order; without those of the file level where no decoders are named."""
    options = {"decoders": [d for d in DECODERS if d not in FILE_DECODERS]} | options
    source = McapSource(str(path), McapOptions.checked(**options))  # type: ignore[arg-type]
    return [chunk for split in source.splits() for chunk in source.read(split)]


def times_of(path: Path) -> list[int]:
    """The log times of all messages of a file, sorted."""
    return sorted(t for chunk in chunks_of(path, decoders=["raw"]) for t in log_times(chunk))


def log_times(chunk: Chunk) -> list[int]:
    column: pa.Array = chunk.to_record_batch().column("message_log_time")
    times: list[int] = column.cast("int64").to_pylist()
    return times
