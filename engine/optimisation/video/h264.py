"""Key frames of H.264 in Annex B form."""

from __future__ import annotations

from .annex_b import nal_units, raw_payload
from .bits import BitReader

_IDR_SLICE = 5
_PARAMETERS = 7
_WITH_CHROMA_FORMAT = frozenset((44, 83, 86, 100, 110, 118, 122, 128, 134, 135, 138, 139, 244))


def is_keyframe(sample: bytes) -> bool:
    """Whether a decoder can start here: the sample has an IDR slice and the sequence parameters that it needs.

    Raises ``ValueError`` when those parameters can't be read.
    """
    parameters: bytes | None = None
    has_idr = False
    for begin, end in nal_units(sample):
        kind = sample[begin] & 0x1F
        if kind == _PARAMETERS and parameters is None:
            parameters = sample[begin:end]
        elif kind == _IDR_SLICE:
            has_idr = True
    if parameters is None or not has_idr:
        return False
    try:
        picture_size(parameters)
    except ValueError as error:
        raise ValueError(f"Detected group of picture but failed to extract encoding details: {error}") from None
    return True


def picture_size(unit: bytes) -> tuple[int, int]:
    """Width and height in macroblocks of 16 pixels, of a sequence parameter set with its header byte."""
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
