"""Which codec a stream is in, and how its key frames are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import av1, h264, h265, vp

IsKeyframe = Callable[[bytes], bool]
"""Whether a sample is a key frame. May raise ``ValueError`` for one that claims to be and can't be read."""

_H264 = 0x61766331

DETECTORS: dict[int, IsKeyframe] = {
    0x61763031: av1.is_keyframe,
    _H264: h264.is_keyframe,
    0x68657631: h265.is_keyframe,
    0x76703038: vp.is_vp8_keyframe,
    0x76703039: vp.is_vp9_keyframe,
}
"""By the four characters (``av01``, ``avc1``, ``hev1``, ``vp08``, ``vp09``) that ``VideoStream:codec`` holds."""


def detect_gop_start(sample: bytes, codec: Any) -> bool:
    """Whether a sample starts a group of pictures, so that a decoder can start at it.

    ``codec`` is Rerun's ``VideoCodec``, or the number that ``VideoStream:codec`` holds; H.264 and H.265 samples are in
    Annex B form.

    Raises ``ValueError`` for a codec that is unknown, and for a sample that claims to be one and can't be read.

    >>> detect_gop_start(b"\\x00\\x00\\x01\\x09", 0x61766331)
    False
    """
    number = getattr(codec, "value", codec)
    if number not in DETECTORS:
        raise ValueError(f"unknown video codec {codec!r}; known are {', '.join(f'{c:#x}' for c in DETECTORS)}")
    try:
        return DETECTORS[number](sample)
    except ValueError as error:
        what = "Failed reading SPS" if number == _H264 else "Failed reading the sample"
        raise ValueError(f"{what}: {error}") from error
