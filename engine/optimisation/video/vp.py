"""Key frames of VP8 and VP9."""

from __future__ import annotations

from .bits import BitReader


def is_vp8_keyframe(sample: bytes) -> bool:
    """Whether the sample begins with a VP8 key frame header (RFC 6386, 9.1) of a picture that has a size."""
    if len(sample) < 10 or sample[0] & 1 or sample[3:6] != b"\x9d\x01\x2a":
        return False
    width, height = (int.from_bytes(sample[i : i + 2], "little") & 0x3FFF for i in (6, 8))
    return width > 0 and height > 0


def is_vp9_keyframe(sample: bytes) -> bool:
    """Whether the sample begins with the uncompressed header of a VP9 key frame."""
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
