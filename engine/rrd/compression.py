"""Compression of payloads. Columns that would not shrink, such as noise and images, stay uncompressed.

In a payload, ids, times and names shrink, and most measurements don't. LZ4 spends most of its time on the latter, so
one LZ4 block is assembled from separately compressed stretches and raw ones.

A block is a row of sequences: literal bytes, then a match, which repeats bytes from at most 64 KiB before. The last
sequence has literals only. So two blocks can be joined, with raw bytes between them: the first block's last literals,
the raw bytes, and the second block's first literals make up the literals of one sequence. Format:
https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import lz4.block
import pyarrow as pa

from ..errors import ReadError, UnsupportedError
from ..limits import check_expansion, check_limit


class Compression(IntEnum):
    """The compression of the payload of one message."""

    UNSPECIFIED = 0
    NONE = 1
    LZ4 = 2


_ACCELERATION: Final = 2
"""On robot recordings, compression is a fifth faster than with 1, and its output two percent larger."""

_LONG: Final = 15
"""The largest count in half a byte; bytes of 255, and a smaller last one, are added to it."""

_FEW_LAST: Final = range(5, _LONG)
_MANY: Final = _LONG << 4
_FULL: Final = 255
_MOST_LAST: Final = 1 << 15
_CUTS: Final = 4


class Stretch(NamedTuple):
    """Compressed bytes, taken apart: ``sequences`` between the first literals' count and the last's.

    ``first`` is the count of the first literals; ``match`` is the half byte for the match after them. ``last`` are the
    last literals. They all expand to ``size`` bytes; bytes after these were omitted.
    """

    first: int
    match: int
    sequences: memoryview
    last: memoryview
    size: int

    @property
    def compressed_size(self) -> int:
        """The bytes of the stretch in a block, without counts of literals."""
        return len(self.sequences) + len(self.last)


def compress(data: pa.Buffer | bytes | memoryview) -> bytes:
    """``data`` as one LZ4 block without a size before it."""
    return bytes(lz4.block.compress(data, store_size=False, acceleration=_ACCELERATION))


def compress_stretch(data: memoryview) -> Stretch | None:
    """Compress ``data``, or all but a few bytes at its end; None if the block can't be split, or gains nothing."""
    for cut in range(min(_CUTS, len(data))):
        part = data[: len(data) - cut]
        block = memoryview(compress(part))
        last = _last_literals(block)
        if last is None:
            return None
        begin = _counted(last, 0)
        # Otherwise, literals may be mistaken for a count of literals.
        if part[len(part) - last - len(begin) : len(part) - last] != begin:
            return _taken_apart(block, last, len(begin), len(part))
    return None


def _taken_apart(block: memoryview, last: int, begin: int, size: int) -> Stretch | None:
    first, at = _count(block)
    stop = len(block) - last - begin
    return Stretch(first, block[0] & _LONG, block[at:stop], block[len(block) - last :], size) if at <= stop else None


def _last_literals(block: memoryview) -> int | None:
    """The smallest number of last literals that fits the count before them, or None for none, or very many.

    It is wrong only if the data have the same bytes there, as block and data end alike. A count whose last byte might
    begin another count is not used, either.
    """
    tail = bytes(block[-_MOST_LAST:])
    size = len(tail)
    for count in _FEW_LAST:
        if count < size and tail[-count - 1] == count << 4:
            return count
    at = tail.rfind(_MANY, 0, size - _LONG - 1)
    while at > 0:
        end = at + 1
        while end < size and tail[end] == _FULL:
            end += 1
        count = size - end - 1
        if end < size and count == _LONG + _FULL * (end - at - 1) + tail[end]:
            return None if tail[at - 1] in (_MANY, _FULL) else count
        at = tail.rfind(_MANY, 0, at)
    return None


def _count(block: memoryview) -> tuple[int, int]:
    """The number of literals of a block's first sequence, and where they begin."""
    count, at = block[0] >> 4, 1
    if count == _LONG:
        while block[at] == _FULL:
            count, at = count + _FULL, at + 1
        count, at = count + block[at], at + 1
    return count, at


def _counted(literals: int, match: int) -> bytes:
    """The beginning of a sequence: its count of literals, and the match's half byte."""
    if literals < _LONG:
        return bytes((literals << 4 | match,))
    full, rest = divmod(literals - _LONG, _FULL)
    return bytes((_LONG << 4 | match,)) + b"\xff" * full + bytes((rest,))


class BlockBuilder:
    """Assembles a block, without copying its pieces."""

    def __init__(self) -> None:
        self._pieces: list[bytes | memoryview] = []
        self._literals: list[memoryview] = []
        self._count = 0

    def add_raw(self, data: memoryview) -> None:
        """Append raw bytes."""
        self._literals.append(data)
        self._count += len(data)

    def add(self, stretch: Stretch) -> None:
        """Append compressed bytes."""
        self._pieces += [_counted(self._count + stretch.first, stretch.match), *self._literals, stretch.sequences]
        self._literals, self._count = [stretch.last], len(stretch.last)

    def finish(self) -> Sequence[bytes | memoryview]:
        """The pieces of the block. An LZ4 block must end in at least five literals."""
        return [*self._pieces, _counted(self._count, 0), *self._literals]


LEAST: Final = 1 << 17
"""The size below which payloads are compressed as a whole, which is as fast as checking their columns."""

GAIN: Final = 6
"""Compression must save one byte in this many; otherwise writing the bytes is faster than compressing them."""

_SMALL: Final = 1 << 16
"""Pieces of fewer bytes are joined with their neighbours."""

_PROBED: Final = 1 << 17
"""For pieces of at least this size, windows are tried first."""

_FEW: Final = 1 << 8

_WINDOWS: Final = ((1 << 14, 1 / 2), (1 << 14, 1 / 8), (1 << 14, 7 / 8), (3 << 15, 1 / 2))
"""The sizes of windows, and the places of their middles. The last window shows repetition within LZ4's 64 KiB."""

_Bytes = bytes | memoryview


def compress_pieces(pieces: Sequence[pa.Buffer]) -> Sequence[_Bytes] | None:
    """One LZ4 block of ``pieces``, in order, or None if it would be hardly smaller.

    The block's pieces may share memory with ``pieces``.
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
    """The pieces; adjacent small ones are joined."""
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
    """Return True if windows of the data do not shrink. If the first window shrinks, the others are not tried."""
    return len(data) >= _PROBED and all(_window_resists(data, size, place) for size, place in _WINDOWS)


def _window_resists(data: memoryview, size: int, place: float) -> bool:
    start = max(min(int(len(data) * place) - size // 2, len(data) - size), 0)
    window = data[start : start + size]
    return not _gains(size, len(compress(window)))


def _gains(size: int, compressed: int) -> bool:
    return GAIN * (size - compressed) >= size


_LZ4_MAX_RATIO: Final = 255
_LZ4_SLACK: Final = 64
_HINT: Final = "The file is damaged; copy it again, or read it with recover=True."


def check_compression(number: int, *, path: str, offset: int | None) -> Compression:
    """The compression of a message, by number; an unknown number raises :class:`UnsupportedError`."""
    try:
        return Compression(number)
    except ValueError:
        raise UnsupportedError(f"unknown compression {number}", path=path, offset=offset, hint=_HINT) from None


def decompress(
    data: bytes | memoryview,
    compression: Compression,
    uncompressed_size: int,
    *,
    path: str,
    offset: int | None,
    what: str,
) -> bytes | memoryview:
    """Undo the compression of a payload. The declared size is checked before memory is taken."""
    if compression != Compression.LZ4:
        return data
    check_sizes(len(data), compression, uncompressed_size, path=path, offset=offset, what=what)
    try:
        return bytes(lz4.block.decompress(data, uncompressed_size=uncompressed_size))
    except (lz4.block.LZ4BlockError, ValueError, OverflowError, MemoryError) as error:
        raise ReadError(f"{what} cannot be decompressed: {error}", path=path, offset=offset, hint=_HINT) from error


def check_sizes(
    size: int, compression: Compression, uncompressed_size: int, *, path: str, offset: int | None, what: str
) -> None:
    """Raise :class:`ReadError` unless ``size`` bytes can expand to ``uncompressed_size``."""
    if compression == Compression.LZ4:
        cap = size * _LZ4_MAX_RATIO + _LZ4_SLACK
        check_limit(uncompressed_size, cap, path=path, offset=offset, what=f"the uncompressed size of {what}")
        check_expansion(size, uncompressed_size, path=path, offset=offset, what=what)
