"""The part of a file that is being read, so that many small records cost one read."""

from __future__ import annotations

from typing import Final

from ...engine.limits import MIB
from .file import McapFile

_AHEAD: Final = 32 * 1024
_LARGEST: Final = 4 * MIB


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
