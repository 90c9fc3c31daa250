"""A file that one chunk after the other is read from, kept open between them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from .positional import PositionalFile

_WINDOW: Final = 1 << 18
_SMALL: Final = 1 << 16


class KeptFile(PositionalFile):
    """A local file that stays open when who uses it is done; small pieces that lie close together are read at once."""

    __slots__ = ("_filled", "_found", "_next", "_start", "_window")

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._found = _identity(os.fstat(self.fileno()))
        self._window = bytearray()
        self._start = self._next = self._filled = 0

    def read(self, offset: int, size: int, *, what: str) -> bytes:
        """Exactly ``size`` bytes from ``offset``; ``what`` names them in errors."""
        at = offset - self._start
        if not 0 <= at <= self._filled - size:
            follows = 0 <= offset - self._next < _SMALL
            if not follows or size > _SMALL or not self._fill(offset) >= size:
                self._next = offset + size
                return super().read(offset, size, what=what)
            at = 0
        self._next = offset + size
        return bytes(memoryview(self._window)[at : at + size])

    def _fill(self, offset: int) -> int:
        """Read what lies from ``offset`` on into the window, whose memory is used again; gives how much it holds."""
        self._window = self._window or bytearray(_WINDOW)
        self._start = offset
        try:
            self._filled = os.preadv(self.fileno(), [self._window], offset)
        except OSError:
            self._filled = 0
        return self._filled

    def is_still(self, path: str) -> bool:
        """Whether this is what ``path`` names now, unchanged."""
        try:
            return path == self.path and _identity(os.stat(path)) == self._found  # noqa: PTH116 (for every chunk)
        except OSError:
            return False

    def close(self) -> None:
        """Nothing; :func:`keeping_open` closes it."""

    def close_indeed(self) -> None:
        """Close the file."""
        super().close()


class _Keeping(threading.local):
    depth = 0
    file: KeptFile | None = None


_keeping = _Keeping()


@contextmanager
def keeping_open() -> Iterator[None]:
    """In the block, the local file that this thread opened last stays open for the next to ask for it."""
    _keeping.depth += 1
    try:
        yield
    finally:
        _keeping.depth -= 1
        if not _keeping.depth:
            _let_go()


def kept_or_opened(path: str) -> PositionalFile:
    """A local file, opened or still open, to be used until the next is asked for. Raises as :class:`PositionalFile`."""
    if not _keeping.depth:
        return PositionalFile(path)
    if _keeping.file is None or not _keeping.file.is_still(path):
        _let_go()
        _keeping.file = KeptFile(path)
    return _keeping.file


def _let_go() -> None:
    file, _keeping.file = _keeping.file, None
    if file is not None:
        file.close_indeed()


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
