"""Whether LZ4 would make a payload smaller, found out on a part of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import lz4.block

LEAST: Final = 1 << 17
"""Payloads of fewer bytes are compressed without asking: that takes no longer than to find out."""

GAIN: Final = 8
"""Compression has to save one byte in so many, as file systems that compress with LZ4 ask of it, too."""

_WINDOW: Final = 1 << 15
_PLACES: Final = (1 / 2, 1 / 4, 3 / 4, 1 / 8, 7 / 8)


def resists(pieces: Sequence[memoryview]) -> bool:
    """Whether the bytes of ``pieces``, one after the other, are not worth to be compressed: images, noise.

    Looks at windows of 32 KiB, and only at the first where that one shrinks. All have to resist.
    """
    stops = list(accumulate(map(len, pieces)))
    total = stops[-1] if stops else 0
    if total < LEAST:
        return False
    return all(_resists(_window(pieces, stops, int(total * place))) for place in _PLACES)


def _window(pieces: Sequence[memoryview], stops: Sequence[int], middle: int) -> memoryview:
    """About ``_WINDOW`` bytes around ``middle``, of the one piece that it lies in."""
    index = next(i for i, stop in enumerate(stops) if middle < stop)
    piece = pieces[index]
    at = middle - (stops[index] - len(piece))
    start = max(min(at - _WINDOW // 2, len(piece) - _WINDOW), 0)
    return piece[start : start + _WINDOW]


def _resists(window: memoryview) -> bool:
    size = len(lz4.block.compress(window, store_size=False))
    return GAIN * (len(window) - size) < len(window)
