"""Copying a range of one file into another inside the kernel, so that the bytes never enter this process."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final

from ..errors import ReadError
from .positional import PositionalFile

_MOST_AT_ONCE: Final = 1 << 30
_PIECE: Final = 1 << 20
_NOT_HERE: Final = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM, errno.ETXTBSY}
)

_Copy = Callable[[int, int, int, int], int]
"""``(source, target, offset, size)`` copies some bytes to where ``target`` stands and gives their number."""


def _by_range(source: int, target: int, offset: int, size: int) -> int:
    return os.copy_file_range(source, target, size, offset_src=offset)


def _by_sendfile(source: int, target: int, offset: int, size: int) -> int:
    return os.sendfile(target, source, offset, size)


def _by_hand(source: int, target: int, offset: int, size: int) -> int:
    data = memoryview(os.pread(source, min(size, _PIECE), offset))
    done = 0
    while done < len(data):
        done += os.write(target, data[done:])
    return done


def copy_range(source: PositionalFile, offset: int, size: int, target: int) -> None:
    """Append ``size`` bytes at ``offset`` of ``source`` to where the descriptor ``target`` stands.

    Uses the best way that the two file systems have. Raises :class:`ReadError` when the source ends early, and
    ``OSError`` as the target does.
    """
    ways: list[_Copy] = [_by_hand, _by_sendfile, _by_range]
    while size > 0:
        try:
            done = ways[-1](source.fileno(), target, offset, min(size, _MOST_AT_ONCE))
        except OSError as error:
            if error.errno not in _NOT_HERE or len(ways) == 1:
                raise
            done = 0
        if done == 0:
            if len(ways) == 1:
                raise ReadError(
                    "the file shrank while it was copied",
                    path=source.path,
                    offset=offset,
                    hint="Another program writes to it; run again when that is done.",
                )
            ways.pop()
        offset += done
        size -= done


def start_writing_back(handle: int, offset: int, size: int) -> None:
    """Let the operating system begin to write what lies in its cache of a file, without waiting for it."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(handle, offset, size, os.POSIX_FADV_DONTNEED)
