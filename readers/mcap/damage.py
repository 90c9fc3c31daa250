"""Damaged places: the next records behind one, and the first records of a chunk that breaks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import lz4.frame
import numpy as np
import pyarrow as pa
from mcap import records as library

from ...engine.errors import ReadError
from ...engine.limits import FREE_EXPANSION, MAX_CHUNK_UNCOMPRESSED, MAX_COMPRESSION_RATIO, MAX_SCHEMA_BYTES, MIB
from .file import McapFile
from .records import (
    CHUNK_HEAD_MAX,
    DATA_END_SIZE,
    HEAD,
    MESSAGE_FIXED,
    ChunkHead,
    Op,
    Registry,
    parse_chunk_head,
    parse_record,
)

_SMALLEST_WINDOW: Final = 4096
_LARGEST_WINDOW: Final = 4 * MIB
_CHAIN: Final = 3
_MOST_TRIES: Final = 100_000
"""Most places and windows that are looked at in one file; behind that only chunks of the index are found."""


class Resync:
    """Looks for records that make sense: of known kind, of believable length, and followed by others.

    ``index`` holds where the summary says that chunks begin, in order, if there is a summary.
    """

    def __init__(self, file: McapFile, registry: Registry, end: int, index: Sequence[int] = ()) -> None:
        self._file = file
        self._registry = registry
        self._end = end
        self._index = index
        self._tries = _MOST_TRIES

    def next_record(self, at: int, *, only_chunks_until: int = 0) -> int | None:
        """Return the place at or behind ``at`` where a believable record begins; None when there is none.

        Up to byte ``only_chunks_until`` records of other kinds are not looked for.
        """
        known = self._next_indexed(at)
        begin, window_size = at, _SMALLEST_WINDOW
        while begin < known and self._tries > 0:
            size = min(window_size, known - begin)
            window = self._file.read_up_to(begin, size + HEAD.size)
            for place in _places(np.frombuffer(window, np.uint8), self._end - begin):
                if place >= size or self._tries == 0:
                    break
                if begin + place < only_chunks_until and window[place] != Op.CHUNK:
                    continue
                self._tries -= 1
                if self.is_believable(begin + place):
                    return begin + place
            self._tries -= 1
            begin += size
            window_size = min(4 * window_size, _LARGEST_WINDOW)
        return known if known < self._end else None

    @property
    def gave_up(self) -> bool:
        """Whether so much was tried that places are passed over without a closer look."""
        return self._tries <= 0

    def _next_indexed(self, at: int) -> int:
        """Return the place of the next chunk of the index; the end where there is none."""
        for offset in self._index[bisect_left(self._index, at) :]:
            if self._is_chunk(offset):
                return offset
        return self._end

    def is_believable(self, at: int) -> bool:
        """Whether records begin at ``at``: one chunk, or a few records in a row, or the end of the file."""
        for _ in range(_CHAIN):
            if at == self._end:
                return True
            after = self._after(at)
            if after is None:
                return False
            if after < 0:
                return True
            at = after
        return True

    def _is_chunk(self, at: int) -> bool:
        return (self._after(at) or 0) < 0

    def _after(self, at: int) -> int | None:
        """Return the end of the record at ``at``, -1 if it is beyond doubt, None if it is no record."""
        try:
            opcode, length = self._file.head_at(at, self._end)
            if opcode == Op.CHUNK:
                return -1 if self._chunk_is_right(at, length) else None
            return at + HEAD.size + length if self._is_right(opcode, length, at) else None
        except ReadError:
            return None

    def _chunk_is_right(self, at: int, length: int) -> bool:
        body = self._file.read_up_to(at + HEAD.size, min(length, CHUNK_HEAD_MAX))
        head = parse_chunk_head(body, length, path=self._file.path, offset=at)
        is_plain = head.compression == "" and head.size == head.uncompressed_size
        return (is_plain or head.compression in ("lz4", "zstd")) and head.data_at + head.size == length

    def _is_right(self, opcode: int, length: int, at: int) -> bool:
        if opcode == Op.MESSAGE:
            channel = int.from_bytes(self._file.read_up_to(at + HEAD.size, 2), "little")
            return length >= MESSAGE_FIXED and (channel in self._registry.channels or not self._registry.channels)
        if opcode in (Op.SCHEMA, Op.CHANNEL):
            if length > MAX_SCHEMA_BYTES:
                return False
            body = self._file.read_at(at + HEAD.size, length, what="a record")
            read = library.Schema.read if opcode == Op.SCHEMA else library.Channel.read
            parse_record(read, opcode, body, path=self._file.path, offset=at)
            return True
        if opcode == Op.MESSAGE_INDEX:
            return length >= 6 and (length - 6) % 16 == 0
        if opcode == Op.DATA_END:
            return length == DATA_END_SIZE - HEAD.size
        return opcode in (Op.ATTACHMENT, Op.METADATA) and length >= 8


def _places(window: np.ndarray, left: int) -> list[int]:
    """Places in ``window`` at which a record may begin: of a kind of the data section, of a length within ``left``."""
    count = len(window) - HEAD.size + 1
    if count <= 0:
        return []
    opcode = window[:count]
    kinds = (opcode >= Op.SCHEMA) & (opcode <= Op.MESSAGE_INDEX) | (opcode == Op.ATTACHMENT) | (opcode == Op.METADATA)
    kinds |= opcode == Op.DATA_END
    # the upper three bytes of a length of less than a terabyte are zero
    for byte in (8, 7, 6):
        kinds &= window[byte : count + byte] == 0
    places = np.flatnonzero(kinds)
    lengths = np.zeros(len(places), np.int64)
    for byte in range(5):
        lengths |= window[places + 1 + byte].astype(np.int64) << (8 * byte)
    found: list[int] = places[lengths <= left - places - HEAD.size].tolist()
    return found


_STEP: Final = 64 * 1024


def decompress_beginning(head: ChunkHead, data: bytes) -> bytearray:
    """The records of a chunk as far as its data decompresses, at most as many bytes as it declares."""
    most = min(head.uncompressed_size, MAX_CHUNK_UNCOMPRESSED, max(FREE_EXPANSION, len(data) * MAX_COMPRESSION_RATIO))
    if head.compression == "zstd":
        return _zstd(data, most)
    if head.compression == "lz4":
        return _lz4(data, most)
    return bytearray(data[:most]) if head.compression == "" else bytearray()


class _Saved(NamedTuple):
    """Whole records: the offsets of the messages among them, where they end, and why they end there, if too early."""

    offsets: list[int]
    end: int
    stop: str | None


def whole_records(records: bytearray, registry: Registry, *, offset: int) -> _Saved:
    """The messages in ``records`` up to the first record that is not whole, or is none.

    Channels and schemas go to ``registry``.
    """
    at = 0
    offsets: list[int] = []
    while at < len(records):
        if len(records) - at < HEAD.size:
            return _Saved(offsets, at, "its last record is cut")
        opcode, length = HEAD.unpack_from(records, at)
        body = at + HEAD.size
        if length > len(records) - body:
            return _Saved(offsets, at, "a record in it runs past its end")
        if opcode == Op.MESSAGE and length >= MESSAGE_FIXED:
            offsets.append(at)
        elif opcode in (Op.SCHEMA, Op.CHANNEL):
            try:
                registry.add(opcode, bytes(records[body : body + length]), offset=offset)
            except ReadError as error:
                return _Saved(offsets, at, error.message)
        elif opcode < 0x80:
            return _Saved(offsets, at, "what is in it are no records from there on")
        at = body + length
    return _Saved(offsets, at, None)


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
