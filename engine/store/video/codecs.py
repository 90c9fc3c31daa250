"""Which codec a stream is in, and how its key frames are told."""

from __future__ import annotations

from collections.abc import Callable

from . import av1, h264, h265, vp

IsKeyframe = Callable[[bytes], bool]
"""Whether a sample is a key frame. May raise ``ValueError`` for one that claims to be and can't be read."""

DETECTORS: dict[int, IsKeyframe] = {
    0x61763031: av1.is_keyframe,
    0x61766331: h264.is_keyframe,
    0x68657631: h265.is_keyframe,
    0x76703038: vp.is_vp8_keyframe,
    0x76703039: vp.is_vp9_keyframe,
}
"""By the four characters (``av01``, ``avc1``, ``hev1``, ``vp08``, ``vp09``) that ``VideoStream:codec`` holds."""
