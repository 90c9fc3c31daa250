"""Payloads compressed where that makes them smaller: columns of noise, images and the like stay as they are.

In a payload, ids, times and names shrink, and most measurements don't. LZ4 spends most of its time on what doesn't.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from .lz4_block import BlockBuilder, Stretch, compress, compress_stretch

LEAST: Final = 1 << 17
"""Payloads of fewer bytes are compressed as a whole: that takes no longer than to look at their columns."""

GAIN: Final = 6
"""Compression has to save one byte in so many: to write these takes less time than to compress."""

_SMALL: Final = 1 << 16
"""Pieces of fewer bytes are taken together with their neighbours."""

_PROBED: Final = 1 << 17
"""Of pieces from so many bytes on, windows are tried first."""

_FEW: Final = 1 << 8

_WINDOWS: Final = ((1 << 14, 1 / 2), (1 << 14, 1 / 8), (1 << 14, 7 / 8), (3 << 15, 1 / 2))
"""Bytes, and where their middle is. The last shows what comes again within the 64 KiB that LZ4 looks back."""

Piece = bytes | memoryview


def compress_pieces(pieces: Sequence[pa.Buffer]) -> Sequence[Piece] | None:
    """One LZ4 block of ``pieces``, one after the other; None where it would be hardly smaller than they are.

    Pieces of the block may be those that were given, or parts of them.
    """
    block = BlockBuilder()
    total = size = 0
    for piece in _joined(pieces):
        data = memoryview(piece).cast("B")
        total += len(data)
        stretch = None if _resists(data) else _worth_it(data)
        if stretch is None:
            block.add_raw(data)
            size += len(data)
        else:
            block.add(stretch)
            block.add_raw(data[stretch.size :])
            size += stretch.compressed_size + len(data) - stretch.size
    return block.finish() if _gains(total, size) else None


def _joined(pieces: Sequence[pa.Buffer]) -> Iterator[pa.Buffer]:
    """The pieces, small ones that are neighbours as one."""
    small: list[pa.Buffer] = []
    for piece in pieces:
        if piece.size < _SMALL:
            small.append(piece)
            continue
        if small:
            yield pa.py_buffer(b"".join(small))
            small = []
        yield piece
    if small:
        yield pa.py_buffer(b"".join(small))


def _worth_it(data: memoryview) -> Stretch | None:
    if len(data) < _FEW:
        return None
    stretch = compress_stretch(data)
    return stretch if stretch is not None and _gains(stretch.size, stretch.compressed_size) else None


def _resists(data: memoryview) -> bool:
    """Whether windows of the data do not shrink. Looks at the first only where that one does."""
    return len(data) >= _PROBED and all(_window_resists(data, size, place) for size, place in _WINDOWS)


def _window_resists(data: memoryview, size: int, place: float) -> bool:
    start = max(min(int(len(data) * place) - size // 2, len(data) - size), 0)
    window = data[start : start + size]
    return not _gains(size, len(compress(window)))


def _gains(size: int, compressed: int) -> bool:
    return GAIN * (size - compressed) >= size
