"""Chunks and manifests that were read of files lately, verified and decoded: they are read again and again.

A query over 100 small segments reads thousands of chunks: each takes 55 us to be decoded (2 cores), and one to be found
here. What is kept is bounded in bytes. A file is known by its path, size, modification time and inode, so that one that
was changed or is gone is read anew, and fails as it would.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable
from random import Random
from typing import Final, Generic, TypeVar

from ..limits import MIB
from ..objects import is_url

T = TypeVar("T")

RECENT_BYTES: Final = 64 * MIB
"""The most that is kept of chunks, and of manifests."""
_OBJECT: Final = 4096
"""Bytes that the objects of a chunk take beside its values."""


class Recent(Generic[T]):
    """Things by their keys, of no more than so many bytes in all and each; threads may use it together.

    Where there is no room any more, one that is drawn by lot goes: of what is asked for in turns, and is a little more
    than fits, the oldest is always the next that is asked for.
    """

    def __init__(self, most_bytes: int = RECENT_BYTES, largest: int = RECENT_BYTES // 256) -> None:
        self._most = most_bytes
        self._largest = largest
        self._bytes = 0
        self._things: dict[Hashable, tuple[T, int]] = {}
        self._keys: list[Hashable] = []
        self._lots = Random(0)  # noqa: S311 (nobody guesses it)
        self._lock = threading.Lock()

    def find(self, key: Hashable) -> T | None:
        """The thing of a key, if it is kept."""
        with self._lock:
            found = self._things.get(key)
            return None if found is None else found[0]

    def keep(self, key: Hashable, thing: T, size: int) -> None:
        """Keep a thing of ``size`` bytes, unless it is large: then reading it is what takes its time."""
        size += _OBJECT
        if size > self._largest:
            return
        with self._lock:
            if key in self._things:
                return
            while self._keys and self._bytes + size > self._most:
                self._drop_one()
            self._things[key] = thing, size
            self._keys.append(key)
            self._bytes += size

    def _drop_one(self) -> None:
        at = self._lots.randrange(len(self._keys))
        self._keys[at], self._keys[-1] = self._keys[-1], self._keys[at]
        self._bytes -= self._things.pop(self._keys.pop())[1]


def state_of(path: str) -> tuple[str, int, int, int] | None:
    """The path, size, modification time and inode of a file; None where it is none, or an object of a store."""
    if is_url(path):
        return None
    try:
        status = os.stat(path)  # noqa: PTH116 (a path object takes as long as the call)
    except OSError:
        return None
    return path, status.st_size, status.st_mtime_ns, status.st_ino
