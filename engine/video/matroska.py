"""The elements of Matroska and WebM files (RFC 9559), checked before PyAV reads them; nothing in them is trusted.

FFmpeg silently skips damaged parts, and silently reads a truncated file up to its end. So each element is checked for
completeness, and the blocks of each track are counted and compared with the blocks that PyAV reads.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from ..errors import ReadError, UnsupportedError
from ..limits import check_limit
from ..storage.positional import PositionalFile

MAGIC: Final = b"\x1a\x45\xdf\xa3"
HINT: Final = "The file is truncated or damaged; copy it again."

_SEGMENT: Final = 0x18538067
_CLUSTER: Final = 0x1F43B675
_TRACKS: Final = 0x1654AE6B
_SIMPLE_BLOCK: Final = 0xA3
_BLOCK_GROUP: Final = 0xA0
_BLOCK: Final = 0xA1
_FILLING: Final = frozenset((0xEC, 0xBF))
_TRACK: Final = 0xAE
_TRACK_NUMBER: Final = 0xD7
_TRACK_TYPE: Final = 0x83
_PICTURE: Final = 0xE0
_PROJECTION: Final = 0x7670
_ROLL: Final = 0x7675
_VIDEO: Final = 1
_LACED: Final = 0x06
_HEAD: Final = 12
_WINDOW: Final = 1 << 16
_MOST_ELEMENTS: Final = 1 << 22
_MOST_TRACKS_BYTES: Final = 16 << 20
_FLOATS: Final = {4: ">f", 8: ">d"}


class MatroskaTrack(NamedTuple):
    """A video track: its number, which its blocks have, too, and its clockwise rotation for display in degrees."""

    number: int
    rotation: int


class Matroska(NamedTuple):
    """The video tracks in file order, and the number of blocks of each track, by track number.

    The number of blocks is None if some blocks have several frames.
    """

    tracks: tuple[MatroskaTrack, ...]
    blocks: dict[int, int | None]

    def blocks_of(self, track: int) -> int | None:
        """Return the number of blocks of the video track at position ``track``, if known."""
        return self.blocks.get(self.tracks[track].number, 0) if track < len(self.tracks) else None


def read_matroska(file: PositionalFile) -> Matroska:
    """Check all elements. Raises ``ReadError`` with the offset for a truncated element, or a file without a segment."""
    walk = _Walk(file)
    kind, begin, size = walk.element(0)
    if size is None:
        raise _damaged(file, 0, "the head of the file has no size")
    at = begin + size
    while at < file.size:
        kind, begin, size = walk.element(at)
        if kind != _SEGMENT and kind not in _FILLING:
            raise _damaged(file, at, f"element {kind:#x} found where a segment is expected")
        if kind == _SEGMENT:
            walk.segment(begin, file.size if size is None else begin + size)
            return walk.result()
        at = begin + (size or 0)
    raise _damaged(file, at, "the file has no segment")


def _damaged(file: PositionalFile, at: int, message: str) -> ReadError:
    return ReadError(message, path=file.path, offset=at, hint=HINT)


class _Walk:
    """A walk over the elements of a file. Heads of elements are read several at a time."""

    def __init__(self, file: PositionalFile) -> None:
        self._file = file
        self._start = 0
        self._window = b""
        self._count = 0
        self._tracks: list[MatroskaTrack] = []
        self._blocks: Counter[int] = Counter()
        self._laced: set[int] = set()

    def result(self) -> Matroska:
        blocks = {number: None if number in self._laced else count for number, count in self._blocks.items()}
        return Matroska(tuple(self._tracks), blocks)

    def element(self, at: int) -> tuple[int, int, int | None]:
        """Return the kind of the element at an offset, the offset of its content, and its size, if it has one."""
        self._count += 1
        check_limit(self._count, _MOST_ELEMENTS, path=self._file.path, offset=at, what="the number of elements")
        head = self._bytes(at, _HEAD)
        try:
            kind, length = _number(head, 0, 4, keeps_marker=True)
            size, end = _number(head, length, 8, keeps_marker=False)
        except ValueError as error:
            raise _damaged(self._file, at, f"{error} found where an element is expected") from None
        is_unknown = size == (1 << 7 * (end - length)) - 1
        begin = at + end
        if not is_unknown and size > self._file.size - begin:
            left = max(self._file.size - begin, 0)
            if kind not in (_SEGMENT, _CLUSTER):
                raise _damaged(self._file, at, f"element {kind:#x} has {size:,} bytes, but {left:,} are left")
        return kind, begin, None if is_unknown else size

    def segment(self, at: int, end: int) -> None:
        """Walk the elements of a segment, and of its clusters and groups."""
        while at < min(end, self._file.size):
            kind, begin, size = self.element(at)
            if kind in (_CLUSTER, _BLOCK_GROUP):
                if size is not None and begin + size > end:
                    self._check_whole(begin + size, at, kind)
                at = begin
                continue
            if size is None:
                raise _damaged(self._file, at, f"element {kind:#x} has no size")
            if begin + size > end:
                raise _damaged(self._file, at, f"element {kind:#x} does not end within the segment")
            if kind in (_SIMPLE_BLOCK, _BLOCK):
                self._count_block(begin, size)
            elif kind == _TRACKS and not self._tracks:
                self._read_tracks(begin, size)
            at = begin + size
        if at < end:
            raise _damaged(self._file, at, f"the file ends here, and {end - at:,} bytes of its segment are missing")

    def _check_whole(self, end: int, at: int, kind: int) -> None:
        if end > self._file.size:
            self._walk_rest(at, end)
        raise _damaged(self._file, at, f"element {kind:#x} does not end within the segment")

    def _walk_rest(self, at: int, end: int) -> None:
        """Find the truncated element in a truncated cluster."""
        _, at, _ = self.element(at)
        while at < self._file.size:
            kind, begin, size = self.element(at)
            at = begin if kind == _BLOCK_GROUP else begin + (size or 0)
        raise _damaged(self._file, at, f"the file ends here, and {end - at:,} bytes of a cluster are missing")

    def _count_block(self, begin: int, size: int) -> None:
        head = self._bytes(begin, min(size, _HEAD))
        try:
            number, end = _number(head, 0, 8, keeps_marker=False)
            flags = head[end + 2]
        except (ValueError, IndexError):
            raise _damaged(self._file, begin, "a block has no track number") from None
        self._blocks[number] += 1
        if flags & _LACED:
            self._laced.add(number)

    def _read_tracks(self, begin: int, size: int) -> None:
        path = self._file.path
        check_limit(size, _MOST_TRACKS_BYTES, path=path, offset=begin, what="the length of the tracks")
        data = self._file.read(begin, size, what="the tracks")
        try:
            for kind, content in _children(data):
                if kind == _TRACK:
                    self._add_track(content)
        except (ValueError, struct.error):
            raise _damaged(self._file, begin, "the tracks are damaged") from None

    def _add_track(self, data: bytes) -> None:
        fields = dict(_children(data))
        if int.from_bytes(fields.get(_TRACK_TYPE, b""), "big") != _VIDEO:
            return
        projection = dict(_children(dict(_children(fields.get(_PICTURE, b""))).get(_PROJECTION, b"")))
        roll = projection.get(_ROLL, b"")
        degrees = struct.unpack(_FLOATS[len(roll)], roll)[0] if len(roll) in _FLOATS else 0.0
        rotation = round(-degrees) % 360 if math.isfinite(degrees) else 0
        self._tracks.append(MatroskaTrack(int.from_bytes(fields.get(_TRACK_NUMBER, b""), "big"), rotation))

    def _bytes(self, at: int, size: int) -> bytes:
        """Return ``size`` bytes from an offset; fewer only at the end of the file."""
        size = min(size, self._file.size - at)
        if not 0 <= at - self._start <= len(self._window) - size:
            window = min(_WINDOW, self._file.size - at)
            self._window, self._start = self._file.read(at, window, what="the head of an element"), at
        return self._window[at - self._start : at - self._start + size]


def _number(data: bytes, at: int, most: int, *, keeps_marker: bool) -> tuple[int, int]:
    """Return the number of variable length at an offset, and its end. Raises ``ValueError``."""
    first = data[at] if at < len(data) else 0
    length = 9 - first.bit_length()
    if length > most or at + length > len(data):
        raise ValueError(f"{data[at : at + 4]!r}" if at < len(data) else "the end of the file")
    value = int.from_bytes(data[at : at + length], "big")
    return value if keeps_marker else value & (1 << 7 * length) - 1, at + length


def _children(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the kind and content of each element. Raises ``ValueError``."""
    at = 0
    while at < len(data):
        kind, at = _number(data, at, 4, keeps_marker=True)
        size, at = _number(data, at, 8, keeps_marker=False)
        if size > len(data) - at:
            raise ValueError("an element is cut off")
        yield kind, data[at : at + size]
        at += size


def is_matroska(file: PositionalFile) -> bool:
    """Return whether a file's first bytes are Matroska's. Raises ``UnsupportedError`` for another kind of EBML."""
    start = file.read(0, min(64, file.size), what="the head of the file")
    if not start.startswith(MAGIC):
        return False
    if b"matroska" not in start and b"webm" not in start:
        raise UnsupportedError(
            "this EBML file is neither Matroska nor WebM",
            path=file.path,
            offset=0,
            hint="Supported: MP4, QuickTime, Matroska and WebM files.",
        )
    return True
