"""Key frames of H.265 in Annex B form."""

from __future__ import annotations

from .annex_b import nal_units

_IDR = frozenset((19, 20))
_PARAMETERS = 33


def is_keyframe(sample: bytes) -> bool:
    """Whether the sample has an IDR picture and a sequence parameter set."""
    kinds = {sample[begin] >> 1 & 0x3F for begin, _ in nal_units(sample)}
    return _PARAMETERS in kinds and not _IDR.isdisjoint(kinds)
