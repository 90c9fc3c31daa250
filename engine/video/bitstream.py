"""Video codecs: how to find key frames in Annex B form, in open bitstream units, and in VP8 and VP9 headers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

_START = b"\x00\x00\x01"


def nal_units(sample: bytes) -> Iterator[tuple[int, int]]:
    """Yield the offsets at which each NAL unit of ``sample`` begins (with its header byte) and ends.

    >>> list(nal_units(b"\\x00\\x00\\x00\\x01\\x67\\x42\\x00\\x00\\x01\\x65"))
    [(4, 6), (9, 10)]
    """
    start = sample.find(_START)
    while start >= 0:
        begin = start + 3
        start = sample.find(_START, begin)
        end = len(sample) if start < 0 else start
        if begin < end:
            yield begin, end


def is_annex_b(sample: bytes) -> bool:
    """Return True if ``sample`` begins with a start code.

    >>> is_annex_b(b"\\x00\\x00\\x01\\x65"), is_annex_b(b"\\x00\\x00\\x00\\x02\\x65\\x88")
    (True, False)
    """
    return sample.startswith((b"\x00" + _START, _START))


def length_prefixed_to_annex_b(sample: bytes, length_prefix_size: int = 4) -> bytes:
    """Convert NAL units with length prefixes, as in MP4, to NAL units with start codes.

    ``length_prefix_size`` is 1, 2 or 4 bytes. Raises ``ValueError`` for another size, and if the sample ends inside a
    length or a unit.

    >>> length_prefixed_to_annex_b(b"\\x00\\x02\\x65\\x88", length_prefix_size=2)
    b'\\x00\\x00\\x00\\x01e\\x88'
    """
    if length_prefix_size not in (1, 2, 4):
        raise ValueError(f"Bad video data: Bad length prefix size: {length_prefix_size}")
    out = bytearray()
    at = 0
    while at < len(sample):
        begin = at + length_prefix_size
        if begin > len(sample):
            raise ValueError("Bad video data: Not enough bytes to fit the length prefix")
        at = begin + int.from_bytes(sample[at:begin], "big")
        if at > len(sample):
            raise ValueError("Bad video data: Video sample data ends with incomplete NAL unit.")
        out += b"\x00" + _START + sample[begin:at]
    return bytes(out)


def raw_payload(unit: bytes) -> bytes:
    """Return a NAL unit without the bytes that prevent start codes inside it."""
    return unit.rstrip(b"\x00").replace(b"\x00\x00\x03", b"\x00\x00")


class BitReader:
    """Reads fields of a video header. Every method raises ``ValueError`` at the end of the bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def bits(self, count: int) -> int:
        """An unsigned number of ``count`` bits."""
        end = self._position + count
        if end > 8 * len(self._data):
            raise ValueError(f"the header ends after {len(self._data)} bytes")
        first, last = self._position // 8, (end + 7) // 8
        self._position = end
        return int.from_bytes(self._data[first:last], "big") >> (8 * last - end) & ((1 << count) - 1)

    def flag(self) -> bool:
        """One bit."""
        return self.bits(1) == 1

    def unsigned(self, most: int = 0xFFFF_FFFE) -> int:
        """An Exp-Golomb code. A value above ``most`` is an error."""
        zeros = 0
        while not self.flag():
            zeros += 1
            if zeros > 32:
                raise ValueError("an Exp-Golomb code has more than 32 leading zeros")
        value = (1 << zeros) - 1 + self.bits(zeros)
        if value > most:
            raise ValueError(f"a field is {value}, and at most {most} is allowed")
        return value

    def signed(self) -> int:
        """A signed Exp-Golomb code."""
        code = self.unsigned()
        return (code + 1) // 2 if code % 2 else -(code // 2)


_IDR_SLICE = 5
_H264_PARAMETERS = 7
_SMALL = 1024
_WITH_CHROMA_FORMAT = frozenset((44, 83, 86, 100, 110, 118, 122, 128, 134, 135, 138, 139, 244))


def is_h264_keyframe(sample: bytes) -> bool:
    """Return True if a decoder can start here: the sample has an IDR slice and the sequence parameters that it needs.

    Raises ``ValueError`` when those parameters can't be read.
    """
    parameters: bytes | None = None
    has_idr = False
    start = sample.find(_START)
    while start >= 0:
        begin = start + 3
        kind = sample[begin] & 0x1F if begin < len(sample) else 0
        if kind == _IDR_SLICE:
            has_idr = True
            if parameters is not None:
                break
        start = sample.find(_START, begin)
        if kind == _H264_PARAMETERS and parameters is None:
            parameters = sample[begin : len(sample) if start < 0 else start]
    if parameters is None or not has_idr:
        return False
    try:
        (_checked_size if len(parameters) <= _SMALL else picture_size)(parameters)
    except ValueError as error:
        raise ValueError(f"Detected group of picture but failed to extract encoding details: {error}") from None
    return True


def picture_size(unit: bytes) -> tuple[int, int]:
    """Return the width and height in macroblocks (16 pixels) from a sequence parameter set with its header byte."""
    reader = BitReader(raw_payload(unit)[1:])
    profile = reader.bits(8)
    reader.bits(16)  # constraints and level
    reader.unsigned(31)
    if profile in _WITH_CHROMA_FORMAT:
        _skip_chroma_format(reader)
    reader.unsigned(12)
    _skip_picture_order(reader)
    reader.unsigned()
    reader.flag()
    width, height = reader.unsigned(0xFFFF) + 1, reader.unsigned(0xFFFF) + 1
    frames_only = reader.flag()
    if not frames_only:
        reader.flag()
    reader.flag()
    if reader.flag():  # cropping
        for _ in range(4):
            reader.unsigned()
    return width, height * (1 if frames_only else 2)


@lru_cache(maxsize=64)
def _checked_size(unit: bytes) -> tuple[int, int]:
    """The same, cached, for a small set: a video's key frames mostly have equal sets."""
    return picture_size(unit)


def _skip_chroma_format(reader: BitReader) -> None:
    chroma = reader.unsigned(3)
    if chroma == 3:
        reader.flag()
    reader.unsigned(6)
    reader.unsigned(6)
    reader.flag()
    if reader.flag():
        for index in range(12 if chroma == 3 else 8):
            if reader.flag():
                _skip_scaling_list(reader, 16 if index < 6 else 64)


def _skip_scaling_list(reader: BitReader, size: int) -> None:
    scale = 8
    for _ in range(size):
        scale = (scale + reader.signed()) % 256
        if not scale:
            return


def _skip_picture_order(reader: BitReader) -> None:
    order = reader.unsigned(2)
    if order == 0:
        reader.unsigned(12)
    elif order == 1:
        reader.flag()
        reader.signed()
        reader.signed()
        for _ in range(reader.unsigned(255)):
            reader.signed()


_RANDOM_ACCESS = frozenset(range(16, 22))
"""BLA, IDR and CRA pictures (ITU-T H.265, 7.4.2.2); open groups begin with CRA."""
_H265_PARAMETERS = 33


def is_h265_keyframe(sample: bytes) -> bool:
    """Return True if a decoder can start here: the sample has a random access picture and a sequence parameter set."""
    kinds = {sample[begin] >> 1 & 0x3F for begin, _ in nal_units(sample)}
    return _H265_PARAMETERS in kinds and not _RANDOM_ACCESS.isdisjoint(kinds)


H265_OPEN = 21
"""The picture type at the beginning of an open group (CRA)."""

H265_SKIPPED = frozenset((8, 9))
"""The picture types that need the previous group (RASL)."""

H265_END = b"\x00\x00\x01\x48\x01"
"""The end of a sequence. What follows is decoded like the beginning of a stream."""


def h265_picture(sample: bytes) -> int:
    """Return the picture type of an H.265 sample (ITU-T H.265, table 7-1), or -1 if it has no picture."""
    kinds = (sample[begin] >> 1 & 0x3F for begin, _ in nal_units(sample))
    return next((kind for kind in kinds if kind < 32), -1)


def is_vp8_keyframe(sample: bytes) -> bool:
    """Return True if the sample begins with a VP8 key frame header (RFC 6386, 9.1) and its picture has a size."""
    if len(sample) < 10 or sample[0] & 1 or sample[3:6] != b"\x9d\x01\x2a":
        return False
    width, height = (int.from_bytes(sample[i : i + 2], "little") & 0x3FFF for i in (6, 8))
    return width > 0 and height > 0


def is_vp9_keyframe(sample: bytes) -> bool:
    """Return True if the sample begins with the uncompressed header of a VP9 key frame."""
    reader = BitReader(sample[:8])
    try:
        if reader.bits(2) != 2:
            return False
        low, high = reader.flag(), reader.flag()
        if low and high:
            reader.flag()
        shows_existing, is_inter = reader.flag(), reader.flag()
        reader.bits(2)
        return not shows_existing and not is_inter and reader.bits(24) == 0x498342
    except ValueError:
        return False


_H265_PARAMETER_SETS = frozenset((32, 33, 34))
_H265_PICTURE_SET = 34


def without_repeats(sample: bytes) -> bytes:
    """Remove from an H.265 sample the parameter sets that repeat the current ones, as containers' sets do."""
    units = [sample[begin:end].rstrip(b"\0") for begin, end in nal_units(sample)]
    kept: list[bytes] = []
    in_force: dict[tuple[int, int], bytes] = {}
    for unit in units:
        kind = unit[0] >> 1 & 0x3F if unit else 0
        if kind in _H265_PARAMETER_SETS:
            key = kind, _picture_set_id(unit) if kind == _H265_PICTURE_SET else 0
            if in_force.get(key) == unit:
                continue
            in_force[key] = unit
        kept.append(unit)
    return sample if len(kept) == len(units) else b"".join(b"\0" + _START + unit for unit in kept)


def _picture_set_id(unit: bytes) -> int:
    try:
        return BitReader(unit[2:10]).unsigned()
    except ValueError:
        return -1


_SEQUENCE_HEADER = 1
_FRAMES = frozenset((3, 6))


def is_av1_keyframe(sample: bytes) -> bool:
    """Return True if the sample has a sequence header and a new frame of type "key"."""
    has_sequence = has_key = False
    for kind, begin, end in _units(sample):
        if kind == _SEQUENCE_HEADER:
            has_sequence = True
        elif kind in _FRAMES and begin < end:
            # Three bits: show_existing_frame, and two of frame_type.
            has_key = has_key or sample[begin] & 0xE0 == 0
    return has_sequence and has_key


def _units(sample: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the type and the bounds of each unit. Stop at a unit without a size, or with a size beyond the end."""
    position = 0
    while position < len(sample):
        header = sample[position]
        if not header & 0x02:
            return
        position += 2 if header & 0x04 else 1
        size, position = _leb128(sample, position)
        if size is None or position + size > len(sample):
            return
        yield header >> 3 & 0x0F, position, position + size
        position += size


def _leb128(sample: bytes, position: int) -> tuple[int | None, int]:
    value = 0
    for index, byte in enumerate(sample[position : position + 8]):
        value |= (byte & 0x7F) << (7 * index)
        if not byte & 0x80:
            return value, position + index + 1
    return None, position


IsKeyframe = Callable[[bytes], bool]
"""Whether a sample is a key frame. May raise ``ValueError`` for a key frame that cannot be read."""
_H264 = 0x61766331
DETECTORS: dict[int, IsKeyframe] = {
    0x61763031: is_av1_keyframe,
    _H264: is_h264_keyframe,
    0x68657631: is_h265_keyframe,
    0x76703038: is_vp8_keyframe,
    0x76703039: is_vp9_keyframe,
}
"""By ``VideoStream:codec``, which is four characters: ``av01``, ``avc1``, ``hev1``, ``vp08`` or ``vp09``."""


def detect_gop_start(sample: bytes, codec: Any) -> bool:
    """Return True if a sample starts a group of pictures, so that a decoder can start at it.

    ``codec`` is Rerun's ``VideoCodec``, or its number in ``VideoStream:codec``. H.264 and H.265 samples are in Annex B
    form.

    Raises ``ValueError`` for an unknown codec, and for a start of a group that cannot be parsed.

    >>> detect_gop_start(b"\\x00\\x00\\x01\\x09", 0x61766331)
    False
    """
    number = getattr(codec, "value", codec)
    if number not in DETECTORS:
        raise ValueError(f"unknown video codec {codec!r}; known codecs are {', '.join(f'{c:#x}' for c in DETECTORS)}")
    try:
        return DETECTORS[number](sample)
    except ValueError as error:
        what = "Failed reading SPS" if number == _H264 else "Failed reading the sample"
        raise ValueError(f"{what}: {error}") from error
