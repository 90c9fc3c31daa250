"""What of a damaged chunk can still be had: its records up to where they break."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, NamedTuple

import lz4.frame
import pyarrow as pa

from ....engine.errors import ReadError
from ....engine.limits import FREE_EXPANSION, MAX_CHUNK_UNCOMPRESSED, MAX_COMPRESSION_RATIO
from ..records import CHANNEL, HEAD, MESSAGE, MESSAGE_FIXED, SCHEMA, ChunkHead
from ..registry import Registry

_STEP: Final = 64 * 1024


def decompress_beginning(head: ChunkHead, data: bytes) -> bytearray:
    """The records of a chunk as far as its data decompresses, at most as many bytes as it declares."""
    most = min(head.uncompressed_size, MAX_CHUNK_UNCOMPRESSED, max(FREE_EXPANSION, len(data) * MAX_COMPRESSION_RATIO))
    if head.compression == "zstd":
        return _zstd(data, most)
    if head.compression == "lz4":
        return _lz4(data, most)
    return bytearray(data[:most]) if head.compression == "" else bytearray()


class Saved(NamedTuple):
    """Whole records: the offsets of the messages among them, where they end, and why they end there, if too early."""

    offsets: list[int]
    end: int
    stop: str | None


def whole_records(records: bytearray, registry: Registry, *, offset: int) -> Saved:
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
                registry.add(opcode, bytes(records[body : body + length]), offset=offset)
            except ReadError as error:
                return Saved(offsets, at, error.message)
        elif opcode < 0x80:
            return Saved(offsets, at, "what is in it are no records from there on")
        at = body + length
    return Saved(offsets, at, None)


def _zstd(data: bytes, most: int) -> bytearray:
    records = bytearray()
    with suppress(OSError, RuntimeError), pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        while len(records) < most and (part := stream.read(min(_STEP, most - len(records)))):
            records += part
    return records


def _lz4(data: bytes, most: int) -> bytearray:
    records = bytearray()
    decompressor = lz4.frame.LZ4FrameDecompressor()
    with suppress(RuntimeError, EOFError):
        for begin in range(0, len(data), _STEP):
            piece: bytes = data[begin : begin + _STEP]
            while len(records) < most and (
                part := decompressor.decompress(piece, max_length=min(_STEP, most - len(records)))
            ):
                records += part
                piece = b""
            if decompressor.eof or len(records) == most:
                break
    return records
