"""A position that moves through the records of a file, and the CRC of what it has passed."""

from __future__ import annotations

from typing import Final

from zlib_ng.zlib_ng import crc32

from ...engine.limits import MIB
from .file import McapFile
from .records import HEAD
from .scan import Bytes

_STEP: Final = MIB


class Cursor:
    """Reads from ``start`` to ``end``. With ``checksum``, ``crc`` is the CRC-32 of the file up to ``at``."""

    def __init__(self, file: McapFile, start: int, end: int, *, checksum: bool) -> None:
        self._file = file
        self._checksum = checksum
        self.at = start if not checksum else 0
        self.end = end
        self.crc = 0
        if checksum:
            self.skip(start)

    def peek_head(self) -> tuple[int, int]:
        """Opcode and body length of the record that begins here."""
        return self._file.head_at(self.at, self.end)

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        data = self._file.read_at(self.at, size, what="a record")
        self._passed(data)
        return data

    def take_record(self, length: int) -> bytes:
        """The body of the record that begins here, ``length`` bytes."""
        return self.take(HEAD.size + length)[HEAD.size :]

    def take_into(self, out: Bytes) -> None:
        """Fill ``out`` with the next bytes."""
        self._file.read_into(self.at, out.data, what="a record")
        self._passed(out.data)

    def took(self, data: Bytes) -> None:
        """Move on over bytes that were read from here already."""
        self._passed(data.data)

    def skip(self, size: int) -> None:
        """Move on over ``size`` bytes; they are read for the checksum only."""
        if not self._checksum:
            self.at += size
            return
        for begin in range(0, size, _STEP):
            self.take(min(_STEP, size - begin))

    def skip_record(self, length: int) -> None:
        """Move on over the record that begins here."""
        self.skip(HEAD.size + length)

    def _passed(self, data: bytes | memoryview) -> None:
        if self._checksum:
            self.crc = crc32(data, self.crc)
        self.at += len(data)
