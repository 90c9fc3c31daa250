"""The index of plain MP4 and QuickTime files (ISO/IEC 14496-12 and -15), read with numpy; nothing in it is trusted.

In a plain file, samples are shown in decoding order. It has one index, one sample description, and a codec that is read
here. For any other file, :func:`read_video` raises the reason, and PyAV reads the file.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import ReadError, UnsupportedError
from ..limits import check_limit
from ..storage.positional import PositionalFile
from .bitstream import DETECTORS, without_repeats
from .parameters import PictureFormat, av1_picture, h264_picture, h265_picture, vp9_picture
from .samples import SampleBatch, Ticks, offsets_of

HINT: Final = "The file is truncated or damaged; copy it again."
CODECS: Final = {"h264": 0x61766331, "hevc": 0x68657631, "av1": 0x61763031, "vp8": 0x76703038, "vp9": 0x76703039}
"""FFmpeg's names, and the four characters in ``VideoStream:codec``."""

_BOX_HEAD: Final = 16
_SMALL_INDEX: Final = 16 << 20
_MOST_BOXES: Final = 1_000_000
_MOST_CHILDREN: Final = 10_000
_MOST_SAMPLES: Final = 1 << 22
_WINDOW_BYTES: Final = 4 << 20
_WINDOW_SAMPLES: Final = 1 << 13
_LARGEST_SAMPLE: Final = 128 << 20
_MOST_LOOKS: Final = 1_000
_ROUNDS: Final = 64
_LAST_TICK: Final = 1 << 62
_FREE_BYTES: Final = 1 << 20
_BOXES: Final = frozenset(
    (
        b"ftyp",
        b"moov",
        b"mdat",
        b"free",
        b"skip",
        b"wide",
        b"pnot",
        b"styp",
        b"sidx",
        b"moof",
        b"uuid",
        b"meta",
        b"pdin",
    )
)
"""Boxes with which an MP4 or QuickTime file may begin (ISO/IEC 14496-12, 4.3)."""
_PLAIN: Final = {
    b"": frozenset((b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide")),
    b"moov": frozenset((b"mvhd", b"trak", b"udta", b"meta", b"iods", b"free")),
    b"trak": frozenset((b"tkhd", b"edts", b"mdia", b"udta", b"free")),
    b"edts": frozenset((b"elst",)),
    b"mdia": frozenset((b"mdhd", b"hdlr", b"minf", b"free")),
    b"minf": frozenset((b"vmhd", b"hdlr", b"dinf", b"stbl", b"free")),
    b"dinf": frozenset((b"dref",)),
    b"stbl": frozenset((b"stsd", b"stts", b"stss", b"stsc", b"stsz", b"stco", b"co64", b"sdtp", b"free")),
    b"stsd": frozenset((b"avcC", b"hvcC", b"av1C", b"vpcC", b"pasp", b"btrt", b"colr", b"fiel")),
}
"""The boxes that a plain file may have in each box."""
_ENTRIES: Final = {
    b"avc1": ("h264", b"avcC"),
    b"avc3": ("h264", b"avcC"),
    b"hvc1": ("hevc", b"hvcC"),
    b"hev1": ("hevc", b"hvcC"),
    b"av01": ("av1", b"av1C"),
    b"vp09": ("vp9", b"vpcC"),
}
_OTHER_TRACKS: Final = {b"soun": "audio"}
_RATE_OF_ONE: Final = 1 << 16
_DESCRIBED: Final = 78
_VP9_HEAD: Final = 32
_START: Final = b"\0\0\0\1"
_IDR: Final = 5
_RANDOM_ACCESS: Final = range(16, 24)
_H264_SEQUENCE: Final = 7
_H264_PICTURE: Final = 8
_H265_DELIMITER: Final = 35
_H265_SEQUENCE: Final = 33
_H265_SETS: Final = {32, 33, 34}
_H265_MESSAGES: Final = {39, 40}

Span = tuple[int, int]
"""The bounds of a box's content."""


class NotPlainError(ValueError):
    """The file needs PyAV, or is damaged in a way that PyAV reports."""


class EditsError(NotPlainError):
    """The edit list is damaged or implausible."""

    is_unsupported = False


class SpeedError(EditsError):
    """A part of the video is shown at another speed."""

    is_unsupported = True


class Boxes(NamedTuple):
    """The top-level boxes: their kinds, and the content of ``moov``, if it has a usual size.

    ``may_reorder`` is False if samples are certainly shown in decoding order: there are no fragments, and no
    composition times (``ctts``) in the index.
    """

    kinds: frozenset[bytes]
    movie: bytes | None
    may_reorder: bool


def read_boxes(file: PositionalFile) -> Boxes:
    """Check that the file is a sequence of complete boxes, and an MP4 or QuickTime file.

    Raises ``UnsupportedError`` for another kind of file, and ``ReadError`` with the offset of a truncated box.
    """
    at = 0
    kinds: set[bytes] = set()
    indexes: list[bytes | None] = []
    for _ in range(_MOST_BOXES):
        if at == file.size:
            break
        head = file.read(at, min(_BOX_HEAD, file.size - at), what="the head of a box")
        kind = head[4:8]
        if at == 0 and kind not in _BOXES:
            raise UnsupportedError(
                f"this is not an MP4 or QuickTime file: it begins with {head[:8]!r}",
                path=file.path,
                offset=0,
                hint="Supported: MP4, QuickTime, Matroska and WebM files.",
            )
        size = int.from_bytes(head[:4], "big")
        least = 8
        if size == 1 and len(head) == _BOX_HEAD:
            size, least = int.from_bytes(head[8:], "big"), _BOX_HEAD
        elif size == 0:
            size = file.size - at
        if size < least or size > file.size - at:
            raise ReadError(
                f"box {kind!r} has {size:,} bytes, but {file.size - at:,} are left",
                path=file.path,
                offset=at,
                hint=HINT,
            )
        kinds.add(kind)
        if kind == b"moov":
            is_small = size <= _SMALL_INDEX and not any(indexes)
            indexes.append(file.read(at + least, size - least, what="the index") if is_small else None)
        at += size
    else:
        raise ReadError(f"the file has more than {_MOST_BOXES:,} boxes", path=file.path, offset=at, hint=HINT)
    if not file.size:
        raise ReadError("the file is empty", path=file.path, offset=0, hint=HINT)
    may_reorder = b"moof" in kinds or any(index is None or b"ctts" in index or b"cmov" in index for index in indexes)
    return Boxes(frozenset(kinds), indexes[0] if len(indexes) == 1 else None, may_reorder)


@dataclass(frozen=True, slots=True)
class PlainVideo:
    """A video track of a plain file: the same facts as from PyAV, and its index. Samples are not read yet.

    ``begins`` and ``sizes`` (of shape ``(n,)``) are in bytes, and ``times`` are in ticks. ``is_marked`` is true for key
    frames of the index. ``length_size`` is the size of the lengths before NAL units, or 0 for other codecs.
    """

    facts: dict[str, Any]
    begins: Ticks
    sizes: Ticks
    times: Ticks
    is_marked: npt.NDArray[np.bool_]
    length_size: int
    sets: tuple[bytes, ...]
    """The parameter sets of the sample description."""

    def batches(
        self, file: PositionalFile, start: Fraction | None, end: Fraction | None
    ) -> Iterator[tuple[SampleBatch, int]]:
        """Yield samples from the last key frame before ``start`` to ``end`` (seconds), with the number of false marks.

        Raises ``ReadError`` with the offset of a damaged sample.
        """
        base = Fraction(*self.facts["time_base"])
        count = len(self.times)
        last = count if end is None else _first_at(self.times, end / base)
        first = 0 if start is None else _first_at(self.times, start / base)
        if first >= last:
            return
        first = self._lead(file, first) if start is not None else 0
        while first < last:
            stop = self._window(first, last)
            yield self._batch(file, first, stop)
            first = stop

    def _lead(self, file: PositionalFile, row: int) -> int:
        """Return the last key frame at or before a sample, or the first sample if many marked ones are none."""
        marked = np.flatnonzero(self.is_marked[: row + 1])
        for place in marked[: -_MOST_LOOKS - 1 : -1].tolist():
            batch, _ = self._batch(file, place, place + 1)
            if batch.is_keyframe[0]:
                return int(place)
        return 0

    def _window(self, first: int, last: int) -> int:
        """Return the end of the samples to read with ``first``, so that about one window is read."""
        rows = slice(first, min(last, first + _WINDOW_SAMPLES))
        begins, sizes = self.begins[rows], self.sizes[rows]
        spans = np.maximum.accumulate(begins + sizes) - np.minimum.accumulate(begins)
        return first + max(int(np.searchsorted(spans, _WINDOW_BYTES, side="right")), 1)

    def _batch(self, file: PositionalFile, first: int, last: int) -> tuple[SampleBatch, int]:
        begins, sizes = self.begins[first:last], self.sizes[first:last]
        largest = int(sizes.argmax())
        size, place = int(sizes[largest]), int(begins[largest])
        check_limit(size, _LARGEST_SAMPLE, path=file.path, offset=place, what="the length of a sample")
        low, high = int(begins.min()), int((begins + sizes).max())
        data = file.read(low, high - low, what="a part of the video")
        if not (begins[1:] == begins[:-1] + sizes[:-1]).all():
            pairs = zip((begins - low).tolist(), sizes.tolist(), strict=True)
            data = b"".join([data[begin : begin + size] for begin, size in pairs])
        offsets = offsets_of(sizes)
        is_keyframe = np.zeros(last - first, np.bool_)
        out = memoryview(data)
        try:
            if self.length_size:
                out, offsets = self._annex_b(data, offsets, is_keyframe, first)
            else:
                self._detect(data, offsets, is_keyframe, first)
        except _SampleError as error:
            place = int(self.begins[error.row])
            raise ReadError(str(error), path=file.path, offset=place, hint=HINT) from error
        times = self.times[first:last]
        claimed = int((self.is_marked[first:last] & ~is_keyframe).sum())
        return SampleBatch(times, times, is_keyframe, offsets, out), claimed

    def _detect(self, data: bytes, offsets: Ticks, is_keyframe: npt.NDArray[np.bool_], first: int) -> None:
        ends = offsets.tolist()
        for row in range(len(is_keyframe)):
            is_keyframe[row] = self._is_keyframe(data[ends[row] : ends[row + 1]], first + row)

    def _is_keyframe(self, sample: bytes, row: int) -> bool:
        try:
            return DETECTORS[CODECS[self.facts["codec"]]](sample)
        except ValueError as error:
            raise _SampleError(row, f"a key frame cannot be read: {error}") from error

    def _annex_b(
        self, data: bytes, offsets: Ticks, is_keyframe: npt.NDArray[np.bool_], first: int
    ) -> tuple[memoryview, Ticks]:
        """Put start codes before NAL units, and parameter sets into key frames."""
        out, rows = _with_start_codes(data, offsets, self._may_begin) if self.length_size == 4 else (None, None)
        changed: dict[int, bytes] = {}
        ends = offsets.tolist()
        for row in range(len(is_keyframe)) if rows is None else rows:
            try:
                units = _units(data[ends[row] : ends[row + 1]], self.length_size)
            except ValueError as error:
                raise _SampleError(first + row, f"sample {first + row:,}: {error}") from error
            made = b"".join([_START + unit for unit in self._with_sets(units)])
            is_keyframe[row] = self._is_keyframe(made, first + row)
            changed[row] = without_repeats(made) if is_keyframe[row] and self.facts["codec"] == "hevc" else made
        return _replaced(memoryview(data) if out is None else out, offsets, changed)

    def _may_begin(self, headers: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        """Return whether NAL units are of pictures at which a decoder may start, given their first bytes."""
        kinds = headers & 31 if self.facts["codec"] == "h264" else headers >> 1 & 63
        wanted = [_IDR] if self.facts["codec"] == "h264" else _RANDOM_ACCESS
        may_begin: npt.NDArray[np.bool_] = np.isin(kinds, np.array(wanted, np.uint8))
        return may_begin

    def _with_sets(self, units: list[bytes]) -> list[bytes]:
        """Return a key frame's units after the sets of the sample description, so that the sample's own sets win."""
        is_h264 = self.facts["codec"] == "h264"
        kinds = [unit[0] & 31 if is_h264 else unit[0] >> 1 & 63 for unit in units]
        begin = next((row for row, kind in enumerate(kinds) if kind in ((_IDR,) if is_h264 else _RANDOM_ACCESS)), None)
        if begin is None:
            return units
        if is_h264:
            head = kinds.index(_H264_PICTURE) if _H264_PICTURE in kinds[:begin] else begin
            missing = [unit for unit in self.sets if unit[0] & 31 not in kinds[:begin]]
            early = [unit for unit in missing if unit[0] & 31 == _H264_SEQUENCE]
            late = [unit for unit in missing if unit[0] & 31 != _H264_SEQUENCE]
        else:
            head = int(kinds[0] == _H265_DELIMITER)
            early = [unit for unit in self.sets if unit[0] >> 1 & 63 in _H265_SETS]
            late = [unit for unit in self.sets if unit[0] >> 1 & 63 not in _H265_SETS]
        return [*units[:head], *early, *units[head:begin], *late, *units[begin:]]


class _SampleError(Exception):
    """A sample is damaged."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


def _units(sample: bytes, length_size: int) -> list[bytes]:
    """Return the NAL units of a sample, except empty ones. Raises ``ValueError`` for a truncated unit."""
    units = []
    at = 0
    while at < len(sample):
        begin = at + length_size
        at = begin + int.from_bytes(sample[at:begin], "big")
        if at > len(sample):
            raise ValueError("a NAL unit does not end within it")
        if at > begin:
            units.append(sample[begin:at])
    return units


def _with_start_codes(
    data: bytes, offsets: Ticks, may_begin: Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.bool_]]
) -> tuple[memoryview, list[int]]:
    """Replace lengths of 4 bytes by start codes, and return the samples that need individual treatment.

    Such samples may be key frames, are damaged, or have very many units.
    """
    out = np.frombuffer(data, np.uint8).copy()
    at, ends = offsets[:-1].copy(), offsets[1:]
    rows = np.arange(len(at))
    special = np.zeros(len(at), np.bool_)
    for _ in range(_ROUNDS):
        is_whole = at + 5 <= ends
        special[rows[~is_whole]] = True
        rows, at, ends = rows[is_whole], at[is_whole], ends[is_whole]
        if not len(rows):
            break
        length = np.zeros(len(at), np.int64)
        for place in range(4):
            length = length << 8 | out[at + place]
            out[at + place] = place == 3
        after = at + 4 + length
        is_odd = (length == 0) | (after > ends) | may_begin(out[at + 4])
        special[rows[is_odd]] = True
        goes_on = ~is_odd & (after < ends)
        rows, at, ends = rows[goes_on], after[goes_on], ends[goes_on]
    special[rows] = True
    return out.data, np.flatnonzero(special).tolist()


def _replaced(data: memoryview, offsets: Ticks, changed: dict[int, bytes]) -> tuple[memoryview, Ticks]:
    """Return samples, with the ``changed`` ones replaced."""
    if not changed:
        return data, offsets
    sizes = np.diff(offsets)
    parts: list[memoryview | bytes] = []
    at = 0
    for row, sample in sorted(changed.items()):
        parts += [data[at : offsets[row]], sample]
        at = int(offsets[row + 1])
        sizes[row] = len(sample)
    return memoryview(b"".join([*parts, data[at:]])), offsets_of(sizes)


def _first_at(times: Ticks, ticks: Fraction) -> int:
    """Return the first sample at or after a time."""
    ceiling = max(min(-(-ticks.numerator // ticks.denominator), 1 << 62), -(1 << 62))
    return int(np.searchsorted(times, ceiling))


def read_video(file: PositionalFile, boxes: Boxes, track: int) -> PlainVideo:
    """Read the index of a video track. Raises :class:`NotPlainError`."""
    if boxes.movie is None or boxes.may_reorder or not boxes.kinds <= _PLAIN[b""]:
        what = sorted(boxes.kinds - _PLAIN[b""]) or "B-frames, or an index that is compressed, large, double or missing"
        raise NotPlainError(f"it has {what}")
    data = boxes.movie
    if b"covr" in data:
        raise NotPlainError("it has a cover picture")
    try:
        return _video(file, data, track)
    except (ValueError, IndexError, struct.error) as error:
        raise error if isinstance(error, NotPlainError) else NotPlainError(str(error)) from error


def _video(file: PositionalFile, data: bytes, track: int) -> PlainVideo:
    movie = _children(data, (0, len(data)), b"moov")
    tracks = [_children(data, span, b"trak") for span in movie.get(b"trak", ())]
    kinds = [_handler(data, each) for each in tracks]
    videos = [each for each, kind in zip(tracks, kinds, strict=True) if kind == b"vide"]
    others = {_OTHER_TRACKS.get(kind) for kind in kinds if kind != b"vide"}
    if track >= len(videos) or None in others:
        raise NotPlainError("it has other kinds of tracks")
    media = _children(data, _one(videos[track], b"mdia"), b"mdia")
    information = _children(data, _one(media, b"minf"), b"minf")
    table = _children(data, _one(information, b"stbl"), b"stbl")
    _check_place(data, _children(data, _one(information, b"dinf"), b"dinf"))
    scale, _ = _timescale(data, _one(media, b"mdhd"))
    sizes = _sizes(data, _one(table, b"stsz"), file.size)
    begins = _begins(data, table, sizes)
    if ((begins < 0) | (begins > file.size - sizes)).any():
        raise NotPlainError("a sample does not end within the file")
    times, duration = _times(data, _one(table, b"stts"), len(sizes))
    _check_edits(data, videos[track], _one(movie, b"mvhd"), scale, int(times[-1]))
    codec, picture, length_size, sets = _description(file, data, _one(table, b"stsd"), int(begins[0]), int(sizes[0]))
    rate = Fraction(scale * len(sizes), duration)
    if max(rate.numerator, rate.denominator) >= 1 << 31:
        raise NotPlainError("its rate is an unusual number")
    facts = {
        "codec": codec,
        "width": picture.width,
        "height": picture.height,
        "pixel_format": picture.pixel_format,
        "time_base": [1, scale],
        "rate": [rate.numerator, rate.denominator],
        "video_tracks": len(videos),
        "other_tracks": sorted(filter(None, others)),
        "is_reordered": False,
        "encoder": None,
    }
    return PlainVideo(facts, begins, sizes, times, _marks(data, table, len(sizes)), length_size, sets)


def _children(data: bytes, span: Span, kind: bytes) -> dict[bytes, list[Span]]:
    """Return the boxes in a box, by kind. Raises :class:`NotPlainError` for one that plain files lack there."""
    at, end = span
    out: dict[bytes, list[Span]] = {}
    for _ in range(_MOST_CHILDREN):
        if at + 8 > end:
            break
        size, name = struct.unpack_from(">I4s", data, at)
        if size < 8 or size > end - at or (kind in _PLAIN and name not in _PLAIN[kind]):
            if not size and at + 8 >= end:
                break
            raise NotPlainError(f"it has a box {name!r} in {kind!r}")
        out.setdefault(name, []).append((at + 8, at + size))
        at += size
    else:
        raise NotPlainError(f"it has too many boxes in {kind!r}")
    return out


def _one(boxes: dict[bytes, list[Span]], kind: bytes) -> Span:
    spans = boxes.get(kind, [])
    if len(spans) != 1:
        raise NotPlainError(f"it has {len(spans):,} boxes {kind!r}")
    return spans[0]


def _handler(data: bytes, track: dict[bytes, list[Span]]) -> bytes:
    begin, end = _one(track, b"mdia")
    for name, spans in _children_of_any(data, (begin, end)).items():
        if name == b"hdlr" and len(spans) == 1:
            at, _ = spans[0]
            return data[at + 8 : at + 12]
    raise NotPlainError("it has a track without a kind")


def _children_of_any(data: bytes, span: Span) -> dict[bytes, list[Span]]:
    return _children(data, span, b"any")


def _check_place(data: bytes, place: dict[bytes, list[Span]]) -> None:
    """Check that the samples are in this file."""
    at, end = _one(place, b"dref")
    entries = [(name, span) for name, spans in _children_of_any(data, (at + 8, end)).items() for span in spans]
    if len(entries) != 1:
        raise NotPlainError("it has several data references")
    name, (begin, _) = entries[0]
    if name != b"url " and not (name == b"alis" and data[begin + 3] & 1):
        raise NotPlainError("its data is in another file")


def _timescale(data: bytes, span: Span) -> tuple[int, int]:
    """Return the ticks per second and the duration from a box ``mdhd`` or ``mvhd``."""
    version = data[span[0]]
    if version > 1 or span[1] - span[0] < (20, 32)[version]:
        raise NotPlainError("it has a head of another version")
    scale, duration = struct.unpack_from((">II", ">IQ")[version], data, span[0] + (12, 20)[version])
    if not 0 < scale < 1 << 31:
        raise NotPlainError("it has no time scale")
    return scale, duration


def _numbers(data: bytes, span: Span, columns: int, kind: str = ">u4") -> Ticks:
    """Return the table in a box, of shape ``(entries, columns)``; the number of entries is before them."""
    begin, end = span
    if end - begin < 8 or data[begin]:
        raise NotPlainError("it has a table of another version")
    count = int.from_bytes(data[begin + 4 : begin + 8], "big")
    if count * columns * np.dtype(kind).itemsize > end - begin - 8:
        raise NotPlainError("it has a table that is cut off")
    return np.frombuffer(data, kind, count * columns, begin + 8).astype(np.int64).reshape(count, columns)


def _sizes(data: bytes, span: Span, file_size: int) -> Ticks:
    begin, end = span
    if end - begin < 12 or data[begin]:
        raise NotPlainError("it has a table of another version")
    each, count = struct.unpack_from(">II", data, begin + 4)
    if not 0 < count <= _MOST_SAMPLES:
        raise NotPlainError(f"it has {count:,} samples")
    if each * count > 2 * file_size + _FREE_BYTES or (not each and 4 * count > end - begin - 12):
        raise NotPlainError("its samples are larger than the file, or their sizes are cut off")
    sizes = np.full(count, each, np.int64)
    if not each:
        sizes[:] = np.frombuffer(data, ">u4", count, begin + 12)
    if not (sizes > 0).all() or int(sizes.sum()) > 2 * file_size + _FREE_BYTES:
        raise NotPlainError("its samples are empty, or larger than the file")
    return sizes


def _begins(data: bytes, table: dict[bytes, list[Span]], sizes: Ticks) -> Ticks:
    """Return the offsets of samples in the file, from the offsets of their chunks."""
    kind = b"co64" if b"co64" in table else b"stco"
    if b"co64" in table and b"stco" in table:
        raise NotPlainError("it has two tables of chunks")
    chunks = _numbers(data, _one(table, kind), 1, ">u8" if kind == b"co64" else ">u4")[:, 0]
    runs = _numbers(data, _one(table, b"stsc"), 3)
    firsts, each = runs[:, 0] - 1, runs[:, 1]
    if not len(runs) or firsts[0] or (np.diff(firsts) < 1).any() or firsts[-1] >= len(chunks):
        raise NotPlainError("its table of samples in chunks is out of order")
    counts = np.diff(np.append(firsts, len(chunks)))
    if (runs[:, 2] != 1).any() or (each < 1).any() or (each > len(sizes)).any() or (chunks < 0).any():
        raise NotPlainError("its chunks have another sample description, or no samples")
    if int((counts * each).sum()) != len(sizes):
        raise NotPlainError("its chunks have other samples than the index")
    in_chunks = np.repeat(each, counts)
    heads = offsets_of(in_chunks)[:-1]
    behind = offsets_of(sizes)[:-1]
    return np.repeat(chunks - behind[heads], in_chunks) + behind


def _times(data: bytes, span: Span, count: int) -> tuple[Ticks, int]:
    """Return the ticks of samples, and the sum of their durations."""
    runs = _numbers(data, span, 2)
    counts, steps = runs[:, 0], runs[:, 1]
    if int(counts.sum()) != count or (counts < 1).any() or (steps < 1).any() or (steps >= 1 << 31).any():
        raise NotPlainError("its table of times does not match its samples")
    times = offsets_of(np.repeat(steps, counts))
    return times[:-1], int(times[-1])


def _marks(data: bytes, table: dict[bytes, list[Span]], count: int) -> npt.NDArray[np.bool_]:
    if b"stss" not in table:
        return np.ones(count, np.bool_)
    rows = _numbers(data, _one(table, b"stss"), 1)[:, 0] - 1
    if not len(rows) or (np.diff(rows) < 1).any() or rows[0] < 0 or rows[-1] >= count:
        raise NotPlainError("its table of key frames is out of order")
    out = np.zeros(count, np.bool_)
    out[rows] = True
    return out


def _check_edits(data: bytes, track: dict[bytes, list[Span]], head: Span, scale: int, last: int) -> None:
    """Check that the edit list, if any, shows the whole track from its beginning."""
    if b"edts" not in track:
        return
    begin, end = _one(_children(data, _one(track, b"edts"), b"edts"), b"elst")
    version, count = data[begin], int.from_bytes(data[begin + 4 : begin + 8], "big")
    if version > 1 or count != 1 or end - begin < (20, 28)[version]:
        raise NotPlainError("it has an edit list")
    duration, time, rate = struct.unpack_from((">IiI", ">QqI")[version], data, begin + 8)
    if time or rate != _RATE_OF_ONE or duration * scale // _timescale(data, head)[0] <= last:
        raise NotPlainError("it has an edit list")


class ShownFrames(NamedTuple):
    """The frames of a track in display order, with or without an edit list. Arrays have the shape ``(n,)``, in ticks.

    ``shown`` are display times in order, from the start of the presentation, and ``media`` are the times of these
    frames in the file, which begins at ``first``. A second has ``scale`` ticks. ``is_apart``: there are several
    separate parts.
    """

    shown: Ticks
    media: Ticks
    first: int
    scale: int
    is_apart: bool

    def nanoseconds(self) -> tuple[Ticks, Ticks]:
        """Return the display times, and the times in the file counted from its first frame."""
        return _as_nanoseconds(self.shown, self.scale), _as_nanoseconds(self.media - self.first, self.scale)


def shown_frames(movie: bytes, track: int) -> ShownFrames:
    """Return the frames of a video track in display order, from its index. Raises :class:`NotPlainError`."""
    try:
        boxes = _movie_boxes(movie)
        video = _video_tracks(movie, boxes)[track]
        media = _children_of_any(movie, _one(video, b"mdia"))
        table = _children_of_any(movie, _one(_children_of_any(movie, _one(media, b"minf")), b"stbl"))
        scale, _ = _timescale(movie, _one(media, b"mdhd"))
        times = _composition(movie, table)
        edits = _edits(movie, video, _one(boxes, b"mvhd"), scale)
    except (ValueError, IndexError, struct.error) as error:
        raise error if isinstance(error, NotPlainError) else NotPlainError(str(error)) from error
    order = np.sort(times)
    rows: list[Ticks] = []
    shifts: list[int] = []
    count = 0
    for shift, first, last in edits:
        part = np.arange(np.searchsorted(order, first), np.searchsorted(order, last))
        count += len(part)
        if count > _MOST_SAMPLES:
            raise EditsError("its edit list repeats frames too often")
        if len(part):
            rows.append(part)
            shifts.append(shift)
    if not rows:
        raise EditsError("its edit list shows no frame")
    is_apart = len(set(shifts)) > 1 or any(after[0] != before[-1] + 1 for before, after in pairwise(rows))
    shown = np.concatenate([order[part] + shift for part, shift in zip(rows, shifts, strict=True)])
    return ShownFrames(shown, order[np.concatenate(rows)], int(order[0]), scale, is_apart)


def _as_nanoseconds(ticks: Ticks, scale: int) -> Ticks:
    times = [(2 * tick * 1_000_000_000 + scale) // (2 * scale) for tick in ticks.tolist()]
    if max(map(abs, times)) >= 1 << 63:
        raise EditsError("a frame is shown at a time beyond 64 bits of nanoseconds")
    return np.array(times, np.int64)


def _movie_boxes(movie: bytes) -> dict[bytes, list[Span]]:
    return _children_of_any(movie, (0, len(movie)))


def _video_tracks(movie: bytes, boxes: dict[bytes, list[Span]]) -> list[dict[bytes, list[Span]]]:
    tracks = [_children_of_any(movie, span) for span in boxes.get(b"trak", ())]
    return [each for each in tracks if _handler(movie, each) == b"vide"]


def _composition(data: bytes, table: dict[bytes, list[Span]]) -> Ticks:
    """Return the display ticks of samples in decoding order, without the edit list."""
    begin, end = _one(table, b"stsz")
    count = int.from_bytes(data[begin + 8 : begin + 12], "big")
    if end - begin < 12 or not 0 < count <= _MOST_SAMPLES:
        raise NotPlainError(f"it has {count:,} samples")
    times, _ = _times(data, _one(table, b"stts"), count)
    if b"ctts" not in table:
        return times
    begin, end = _one(table, b"ctts")
    entries = int.from_bytes(data[begin + 4 : begin + 8], "big")
    if 8 * entries > end - begin - 8:
        raise NotPlainError("it has a table that is cut off")
    runs = np.frombuffer(data, [("count", ">u4"), ("shift", ">i4")], entries, begin + 8)
    if int(runs["count"].astype(np.int64).sum()) != count:
        raise NotPlainError("its table of shifts does not match its samples")
    return times + np.repeat(runs["shift"].astype(np.int64), runs["count"])


def _edits(data: bytes, track: dict[bytes, list[Span]], head: Span, scale: int) -> list[tuple[int, int, int]]:
    """Return the shown parts: the shift of each in ticks, its first tick, and the tick after its last."""
    if b"edts" not in track:
        return [(0, -_LAST_TICK, _LAST_TICK)]
    begin, end = _one(_children_of_any(data, _one(track, b"edts")), b"elst")
    version, count = data[begin], int.from_bytes(data[begin + 4 : begin + 8], "big")
    if version > 1:
        raise EditsError(f"its edit list has version {version}")
    form = struct.Struct((">IiI", ">QqI")[version])
    if form.size * count > end - begin - 8:
        raise EditsError("its edit list is cut off")
    movie_scale, _ = _timescale(data, head)
    parts: list[tuple[int, int, int]] = []
    at = 0
    for number in range(count):
        duration, first, rate = form.unpack_from(data, begin + 8 + number * form.size)
        ticks = duration * scale // movie_scale
        if first >= 0:
            if rate != _RATE_OF_ONE:
                raise SpeedError("an edit list that shows a part at another speed")
            is_open = not duration and number == count - 1
            parts.append((at - first, first, _LAST_TICK if is_open else first + ticks))
        at += ticks
        if max(at, first + ticks) > _LAST_TICK:
            raise EditsError("its edit list has times beyond 62 bits")
    return parts


def rotation(movie: bytes, track: int) -> str | None:
    """Return how a video track is rotated or mirrored for display, from the matrix in its head, or None."""
    try:
        begin, _ = _one(_video_tracks(movie, _movie_boxes(movie))[track], b"tkhd")
        a, b, _, c, d = struct.unpack_from(">5i", movie, begin + (52 if movie[begin] else 40))
    except (ValueError, IndexError, struct.error):
        return None
    if a * d - b * c < 0:
        return "mirrored"
    degrees = round(math.degrees(math.atan2(b, a))) % 360
    return f"turned by {degrees} degrees clockwise" if degrees else None


def _description(
    file: PositionalFile, data: bytes, span: Span, begin: int, size: int
) -> tuple[str, PictureFormat, int, tuple[bytes, ...]]:
    """Return the codec, the picture format, the size of NAL unit lengths, and the parameter sets."""
    entries = _children_of_any(data, (span[0] + 8, span[1]))
    if len(entries) != 1 or int.from_bytes(data[span[0] + 4 : span[0] + 8], "big") != 1:
        raise NotPlainError("it has several descriptions of samples")
    name = next(iter(entries))
    at, end = _one(entries, name)
    if name not in _ENTRIES:
        raise NotPlainError(f"it has samples {name!r}")
    if int.from_bytes(data[at + 6 : at + 8], "big") != 1:
        raise NotPlainError("its data is in another place")
    codec, kind = _ENTRIES[name]
    boxes = _children(data, (at + _DESCRIBED, end), b"stsd")
    configuration = data[slice(*_one(boxes, kind))]
    length_size, sets = 0, tuple[bytes, ...]()
    if codec == "h264":
        length_size, sets = _avc_sets(configuration)
        picture = h264_picture(sets[0])
    elif codec == "hevc":
        length_size, sets = _hevc_sets(configuration)
        picture = h265_picture(next(unit for unit in sets if unit[0] >> 1 & 63 == _H265_SEQUENCE))
    elif codec == "av1":
        picture = av1_picture(configuration)
    else:
        picture = vp9_picture(file.read(begin, min(size, _VP9_HEAD), what="a sample"))
    if picture[:2] != struct.unpack_from(">HH", data, at + 24):
        raise NotPlainError("its pictures differ in size from their description")
    for begin, end in boxes.get(b"colr", ()):
        if data[begin : begin + 4] == b"nclx" and data[end - 1] & 128 and picture.pixel_format == "yuv420p":
            raise NotPlainError("its colours have the full range")
    return codec, picture, length_size, sets


def _avc_sets(configuration: bytes) -> tuple[int, tuple[bytes, ...]]:
    """Return the length size and the parameter sets of a box ``avcC`` (ISO/IEC 14496-15, 5.3.3.1)."""
    at, sets = 5, list[bytes]()
    for mask, kind in ((31, 7), (255, 8)):
        count = configuration[at] & mask
        at += 1
        for _ in range(count):
            unit, at = _prefixed(configuration, at)
            if unit[0] & 31 != kind:
                raise NotPlainError("its parameter sets are mixed")
            sets.append(unit)
        if not count:
            raise NotPlainError("its description has no parameter sets")
    return _length_size(configuration[0], configuration[4]), tuple(sets)


def _hevc_sets(configuration: bytes) -> tuple[int, tuple[bytes, ...]]:
    """Return the length size and the parameter sets of a box ``hvcC`` (ISO/IEC 14496-15, 8.3.3.1)."""
    at, sets = 23, list[bytes]()
    for _ in range(configuration[22]):
        count = int.from_bytes(configuration[at + 1 : at + 3], "big")
        at += 3
        for _ in range(count):
            unit, at = _prefixed(configuration, at)
            if len(unit) < 3 or unit[0] >> 1 & 63 not in _H265_SETS | _H265_MESSAGES:
                raise NotPlainError("its description has other units than parameter sets and messages")
            sets.append(unit)
    if not {unit[0] >> 1 & 63 for unit in sets} >= _H265_SETS:
        raise NotPlainError("its description lacks parameter sets")
    return _length_size(configuration[0], configuration[21]), tuple(sets)


def _length_size(version: int, field: int) -> int:
    size = (field & 3) + 1
    if version != 1 or size == 3:
        raise NotPlainError("its NAL units have lengths of another size")
    return size


def _prefixed(data: bytes, at: int) -> tuple[bytes, int]:
    end = at + 2 + int.from_bytes(data[at : at + 2], "big")
    if end > len(data) or end < at + 3:
        raise NotPlainError("its parameter sets are cut off")
    return data[at + 2 : end], end
