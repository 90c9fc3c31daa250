"""A position that moves through the records of a file, the CRC of what it has passed, and the bytes around it."""

from __future__ import annotations

from typing import Final

from zlib_ng.zlib_ng import crc32

from ...engine.limits import MIB
from .file import McapFile, check_begins, check_fits
from .records import HEAD
from .scan import Bytes

_AHEAD: Final = 32 * 1024
_LARGEST: Final = 4 * MIB
_STEP: Final = MIB


class Window:
    """Reads a file by position, each time a little more than is asked for.

    An object in a store is asked for just that: it has windows of its own.
    """

    def __init__(self, file: McapFile) -> None:
        self._file = file
        self._memory = bytearray()
        self._start = 0
        self._data = memoryview(b"")

    def at(self, offset: int, size: int, *, what: str) -> memoryview:
        """Exactly ``size`` bytes from ``offset``; they stay until the next call."""
        begin = offset - self._start
        if begin < 0 or begin + size > len(self._data):
            if not self._move(offset, size):
                return memoryview(self._file.read_at(offset, size, what=what))
            begin = 0
        return self._data[begin : begin + size]

    def known_at(self, offset: int) -> memoryview:
        """What was read from ``offset`` on already; it stays until the next call of :meth:`at`."""
        return self._data[max(offset - self._start, 0) :] if offset >= self._start else memoryview(b"")

    def _move(self, offset: int, size: int) -> bool:
        """Read what lies at ``offset``; false where that is not for a window, or cannot be read."""
        if self._file.is_remote or size > _LARGEST:
            return False
        self._data = memoryview(b"")
        if len(self._memory) < size + _AHEAD:
            self._memory = bytearray(size + size // 4 + _AHEAD)
        read = self._file.read_some(offset, memoryview(self._memory)[: size + _AHEAD])
        self._start, self._data = offset, memoryview(self._memory)[:read].toreadonly()
        return read >= size


class Cursor:
    """Reads from ``start`` to ``end``. With ``checksum``, ``crc`` is the CRC-32 of the file up to ``at``."""

    def __init__(self, file: McapFile, start: int, end: int, *, checksum: bool) -> None:
        self._file = file
        self._window = Window(file)
        self._checksum = checksum
        self.at = start if not checksum else 0
        self.end = end
        self.crc = 0
        if checksum:
            self.skip(start)

    def peek_head(self) -> tuple[int, int]:
        """Opcode and body length of the record that begins here."""
        at, left = self.at, self.end - self.at
        check_begins(left, path=self._file.path, offset=at)
        opcode, length = HEAD.unpack(self._window.at(at, HEAD.size, what="a record"))
        check_fits(opcode, length, left - HEAD.size, path=self._file.path, offset=at)
        return opcode, length

    def peek_body(self, size: int) -> bytes:
        """The first ``size`` bytes of the body of the record that begins here, fewer only at the end of the file."""
        at = self.at + HEAD.size
        return bytes(self._window.at(at, max(0, min(size, self._file.size - at)), what="the file"))

    def view(self, size: int) -> memoryview:
        """The next ``size`` bytes; they stay until the next call of whatever method."""
        data = self._window.at(self.at, size, what="a record")
        self._passed(data)
        return data

    def take_record(self, length: int) -> bytes:
        """The body of the record that begins here, ``length`` bytes."""
        return bytes(self.view(HEAD.size + length)[HEAD.size :])

    def take_known(self, opcode: int) -> list[bytes]:
        """The bodies of the records of ``opcode`` that begin here and follow each other, as far as read already."""
        known = self._window.known_at(self.at)[: self.end - self.at]
        bodies: list[bytes] = []
        at = 0
        while at + HEAD.size <= len(known):
            found, length = HEAD.unpack_from(known, at)
            begin = at + HEAD.size
            if found != opcode or length > len(known) - begin:
                break
            at = begin + length
            bodies.append(bytes(known[begin:at]))
        self._passed(known[:at])
        return bodies

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
            self.view(min(_STEP, size - begin))

    def skip_record(self, length: int) -> None:
        """Move on over the record that begins here."""
        self.skip(HEAD.size + length)

    def _passed(self, data: bytes | memoryview) -> None:
        if self._checksum:
            self.crc = crc32(data, self.crc)
        self.at += len(data)
