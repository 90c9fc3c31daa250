"""Memory for decompressed records, taken again when nobody looks at it any more."""

from __future__ import annotations

import weakref
from typing import Final, NamedTuple

import numpy as np

from ...engine.limits import MIB
from ...engine.task_context import lasting
from .scan import Bytes

_MOST_KEPT: Final = 2
_LARGEST_KEPT: Final = 40 * MIB


class _Kept(NamedTuple):
    memory: Bytes
    lent: weakref.ref[Bytes]


class _Arenas:
    """The memory that a thread has kept."""

    def __init__(self) -> None:
        self.kept: list[_Kept] = []


def take_arena(size: int) -> Bytes:
    """``size`` bytes (uint8, 1-D) of any content, that are nobody else's as long as anything refers to them.

    The system clears memory before it gives it, page by page, which costs as much as a fifth of decompressing into it.
    So a thread keeps up to two arenas of 40 MiB at most, and lends them again once the array that was lent, all views
    of it, and all Arrow buffers and memoryviews over those are gone.

    >>> first = take_arena(100)
    >>> view = first[10:20].data
    >>> del first
    >>> view[:] = bytes(range(10))
    >>> take_arena(100)[:] = 255
    >>> bytes(view) == bytes(range(10))
    True
    """
    arenas = lasting(_Arenas)
    kept = arenas.kept
    for i, (memory, lent) in enumerate(kept):
        if len(memory) >= size and lent() is None:
            kept[i], arena = _lend(memory, size)
            return arena
    if size > _LARGEST_KEPT:
        return np.empty(size, np.uint8)
    lending, arena = _lend(np.empty(size, np.uint8), size)
    arenas.kept = [*kept[1 - _MOST_KEPT :], lending]
    return arena


def _lend(memory: Bytes, size: int) -> tuple[_Kept, Bytes]:
    # Over a memoryview, the base of every view of the arena is the arena; over an array it would be that array.
    arena: Bytes = np.frombuffer(memory.data, np.uint8, count=size)
    return _Kept(memory, weakref.ref(arena)), arena
