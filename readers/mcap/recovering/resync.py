"""Finding the next records behind a damaged place."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import numpy as np
from mcap import records as library

from ....engine.errors import ReadError
from ....engine.limits import MAX_SCHEMA_BYTES, MIB
from ..file import McapFile
from ..records import (
    ATTACHMENT,
    CHANNEL,
    CHUNK,
    CHUNK_HEAD_MAX,
    DATA_END,
    DATA_END_SIZE,
    HEAD,
    MESSAGE,
    MESSAGE_FIXED,
    MESSAGE_INDEX,
    METADATA,
    SCHEMA,
    parse_chunk_head,
    parse_record,
)
from ..registry import Registry

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
        """Where the first believable record at or behind ``at`` begins; None when there is none.

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
                if begin + place < only_chunks_until and window[place] != CHUNK:
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
        """Where the next chunk of the index begins; the end where there is none."""
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
        """Where the record at ``at`` ends, -1 if it is beyond doubt, None if it is no record."""
        try:
            opcode, length = self._file.head_at(at, self._end)
            if opcode == CHUNK:
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
        if opcode == MESSAGE:
            channel = int.from_bytes(self._file.read_up_to(at + HEAD.size, 2), "little")
            return length >= MESSAGE_FIXED and (channel in self._registry.channels or not self._registry.channels)
        if opcode in (SCHEMA, CHANNEL):
            if length > MAX_SCHEMA_BYTES:
                return False
            body = self._file.read_at(at + HEAD.size, length, what="a record")
            read = library.Schema.read if opcode == SCHEMA else library.Channel.read
            parse_record(read, opcode, body, path=self._file.path, offset=at)
            return True
        if opcode == MESSAGE_INDEX:
            return length >= 6 and (length - 6) % 16 == 0
        if opcode == DATA_END:
            return length == DATA_END_SIZE - HEAD.size
        return opcode in (ATTACHMENT, METADATA) and length >= 8


def _places(window: np.ndarray, left: int) -> list[int]:
    """Where in ``window`` a record head could be: a kind that the data section has, and a length within ``left``."""
    count = len(window) - HEAD.size + 1
    if count <= 0:
        return []
    opcode = window[:count]
    kinds = (opcode >= SCHEMA) & (opcode <= MESSAGE_INDEX) | (opcode == ATTACHMENT) | (opcode == METADATA)
    kinds |= opcode == DATA_END
    # the upper three bytes of a length of less than a terabyte are zero
    for byte in (8, 7, 6):
        kinds &= window[byte : count + byte] == 0
    places = np.flatnonzero(kinds)
    lengths = np.zeros(len(places), np.int64)
    for byte in range(5):
        lengths |= window[places + 1 + byte].astype(np.int64) << (8 * byte)
    found: list[int] = places[lengths <= left - places - HEAD.size].tolist()
    return found
