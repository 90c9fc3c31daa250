"""One LZ4 block put together of stretches that were compressed by themselves and of others that were not at all.

A block is a row of sequences: literal bytes, then a match, which repeats bytes from at most 64 KiB before. The last
sequence has literals only. So a block can go on behind another's end: the literals at the end of the one, whatever
raw bytes come between, and the literals at the beginning of the other are the literals of one sequence. Format:
https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import lz4.block

ACCELERATION: Final = 2
"""On recordings of robots a fifth faster than 1, and two percent larger."""

_LONG: Final = 15
"""A count in half a byte; from here on, bytes of 255 and one of less are added to it."""

_FEW_LAST: Final = range(5, _LONG)
_MANY: Final = bytes((_LONG << 4,))
_MOST_LAST: Final = _LONG + 254
_NO_END: Final = _LONG + 239
"""Literals of one more end in a count that looks like the beginning of this one."""

_CUTS: Final = 32


class Stretch(NamedTuple):
    """Compressed bytes, taken apart: ``sequences`` between the first literals' count and the last's.

    They begin with ``first`` literals, whose match has ``match`` in its half of the byte before them; ``last`` follows
    them. They say ``size`` bytes; what came behind these was left out.
    """

    first: int
    match: int
    sequences: memoryview
    last: memoryview
    size: int

    @property
    def compressed_size(self) -> int:
        """Bytes that it takes in a block, without counts of literals."""
        return len(self.sequences) + len(self.last)


def compress_stretch(data: memoryview) -> Stretch | None:
    """Compress ``data`` but for a few bytes at its end; None where that can't be taken apart, or gains nothing."""
    for cut in range(min(_CUTS, len(data))):
        part = data[: len(data) - cut]
        if not _ends(part):
            break
    else:
        return None
    block = memoryview(lz4.block.compress(part, store_size=False, acceleration=ACCELERATION))
    ends = _ends(block)
    if not ends or ends[0] == _NO_END:
        return None
    last = ends[0]
    first, at = _count(block)
    stop = len(block) - last - len(_counted(last, 0))
    if at > stop:
        return None
    return Stretch(first, block[0] & _LONG, block[at:stop], block[len(block) - last :], len(part))


def _ends(data: memoryview) -> list[int]:
    """How many literals, 5 to 269, ``data`` may end in, if it is an LZ4 block: smallest first.

    Bytes in front of them have to say so. Where the raw bytes say so nowhere, only the block's own do.
    """
    tail = bytes(data[-_MOST_LAST - 2 :])
    size = len(tail)
    found = [n for n in _FEW_LAST if n < size and tail[-n - 1] == n << 4]
    at = tail.rfind(_MANY, 0, size - _LONG - 1)
    while at >= 0:
        if tail[at + 1] == size - at - 2 - _LONG:
            found.append(size - at - 2)
        at = tail.rfind(_MANY, 0, at)
    return found


def _count(block: memoryview) -> tuple[int, int]:
    """The literals of the first sequence of a block: how many, and where they begin."""
    count, at = block[0] >> 4, 1
    if count == _LONG:
        while block[at] == 255:
            count, at = count + 255, at + 1
        count, at = count + block[at], at + 1
    return count, at


def _counted(literals: int, match: int) -> bytes:
    """What begins a sequence of so many literals."""
    if literals < _LONG:
        return bytes((literals << 4 | match,))
    full, rest = divmod(literals - _LONG, 255)
    return bytes((_LONG << 4 | match,)) + b"\xff" * full + bytes((rest,))


class BlockBuilder:
    """Puts a block together; what is given to it is not copied."""

    def __init__(self) -> None:
        self._pieces: list[bytes | memoryview] = []
        self._literals: list[memoryview] = []
        self._count = 0

    def add_raw(self, data: memoryview) -> None:
        """Go on with bytes as they are."""
        self._literals.append(data)
        self._count += len(data)

    def add(self, stretch: Stretch) -> None:
        """Go on with what is compressed."""
        self._pieces += [_counted(self._count + stretch.first, stretch.match), *self._literals, stretch.sequences]
        self._literals, self._count = [stretch.last], len(stretch.last)

    def finish(self) -> Sequence[bytes | memoryview]:
        """The pieces of the block. A block of LZ4 ends in five literals or more: at least as many must be its last."""
        return [*self._pieces, _counted(self._count, 0), *self._literals]
