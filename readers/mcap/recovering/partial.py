"""What of a damaged chunk can still be had: its records up to where they break."""

from __future__ import annotations

from typing import Final, NamedTuple

import lz4.frame
import pyarrow as pa

from ....engine.errors import ReadError
from ....engine.limits import FREE_EXPANSION, MAX_CHUNK_UNCOMPRESSED, MAX_COMPRESSION_RATIO
from ..records import CHANNEL, HEAD, MESSAGE, MESSAGE_FIXED, SCHEMA, ChunkHead
from ..registry import Registry

_STEP: Final = 64 * 1024


def decompress_beginning(head: ChunkHead, data: bytes) -> bytes:
    """The records of a chunk as far as its data decompresses, at most as many bytes as it declares."""
    most = min(head.uncompressed_size, MAX_CHUNK_UNCOMPRESSED, max(FREE_EXPANSION, len(data) * MAX_COMPRESSION_RATIO))
    if head.compression == "zstd":
        return _zstd(data, most)
    if head.compression == "lz4":
        return _lz4(data, most)
    return data[:most] if head.compression == "" else b""


class Saved(NamedTuple):
    """Whole records: the offsets of the messages among them, where they end, and why they end there, if too early."""

    offsets: list[int]
    end: int
    stop: str | None


def whole_records(records: bytes, registry: Registry, *, offset: int) -> Saved:
    """The messages in ``records`` up to the first record that is not whole, or is none.

    Channels and schemas go to ``registry``.
    """
    at = 0
    offsets: list[int] = []
    while at < len(records):
        if len(records) - at < HEAD.size:
            return Saved(offsets, at, "its last record is cut")
        opcode, length = HEAD.unpack_from(records, at)
        body = at + HEAD.size
        if length > len(records) - body:
            return Saved(offsets, at, "a record in it runs past its end")
        if opcode == MESSAGE and length >= MESSAGE_FIXED:
            offsets.append(at)
        elif opcode in (SCHEMA, CHANNEL):
            try:
                registry.add(opcode, records[body : body + length], offset=offset)
            except ReadError as error:
                return Saved(offsets, at, error.message)
        elif opcode < 0x80:
            return Saved(offsets, at, "what is in it are no records from there on")
        at = body + length
    return Saved(offsets, at, None)


def _zstd(data: bytes, most: int) -> bytes:
    parts, left = [], most
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            while left and (part := stream.read(min(_STEP, left))):
                parts.append(part)
                left -= len(part)
    except (OSError, RuntimeError):
        pass
    return b"".join(parts)


def _lz4(data: bytes, most: int) -> bytes:
    parts, left = [], most
    decompressor = lz4.frame.LZ4FrameDecompressor()
    try:
        for begin in range(0, len(data), _STEP):
            part = decompressor.decompress(data[begin : begin + _STEP], max_length=left)
            while part:
                parts.append(part)
                left -= len(part)
                part = b"" if decompressor.needs_input or not left else decompressor.decompress(b"", max_length=left)
            if decompressor.eof or not left:
                break
    except (RuntimeError, EOFError):
        pass
    return b"".join(parts)
