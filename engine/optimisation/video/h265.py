"""Key frames of H.265 in Annex B form."""

from __future__ import annotations

from .annex_b import nal_units

_RANDOM_ACCESS = frozenset(range(16, 22))
"""BLA, IDR and CRA pictures (ITU-T H.265, 7.4.2.2); open groups begin with CRA."""

_PARAMETERS = 33


def is_keyframe(sample: bytes) -> bool:
    """Whether a decoder can start here: the sample has a random access picture and a sequence parameter set."""
    kinds = {sample[begin] >> 1 & 0x3F for begin, _ in nal_units(sample)}
    return _PARAMETERS in kinds and not _RANDOM_ACCESS.isdisjoint(kinds)
