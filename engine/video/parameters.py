"""The size and pixel format of pictures, from parameter sets in their usual forms."""

from __future__ import annotations

from typing import NamedTuple

from .bitstream import BitReader, raw_payload

_WITH_CHROMA_FORMAT = frozenset((44, 83, 86, 100, 110, 118, 122, 128, 134, 135, 138, 139, 244))
_EXTENDED = 255
_SEQUENCE_HEADER = 1
_RGB = 7
_CHOSEN_PER_FRAME = 2


class PictureFormat(NamedTuple):
    """Width and height in pixels, and FFmpeg's name of the pixel format."""

    width: int
    height: int
    pixel_format: str


class UnusualError(ValueError):
    """Parameters have a form that is not read here."""


def _only(condition: bool, what: str) -> None:
    if not condition:
        raise UnusualError(what)


def h264_picture(unit: bytes) -> PictureFormat:
    """Return the format from a sequence parameter set (ITU-T H.264, 7.3.2.1). Raises ``ValueError``."""
    reader = BitReader(raw_payload(unit)[1:])
    profile = reader.bits(8)
    reader.bits(16)
    reader.unsigned(31)
    if profile in _WITH_CHROMA_FORMAT:
        _only(reader.unsigned() == 1, "its colours are not 4:2:0")
        _only(reader.unsigned() == 0 and reader.unsigned() == 0, "its pixels have more than 8 bits")
        reader.flag()
        _only(not reader.flag(), "it has scaling lists")
    reader.unsigned(12)
    order = reader.unsigned(2)
    _only(order != 1, "its pictures are counted in cycles")
    if order == 0:
        reader.unsigned(12)
    reader.unsigned()
    reader.flag()
    width, height = 16 * (reader.unsigned(0xFFFF) + 1), 16 * (reader.unsigned(0xFFFF) + 1)
    _only(reader.flag(), "it is interlaced")
    reader.flag()
    left, right, top, bottom = _window(reader)
    return PictureFormat(width - left - right, height - top - bottom, _usable(reader))


def _window(reader: BitReader) -> tuple[int, ...]:
    """Return the cropped pixels at the left, right, top and bottom."""
    return tuple(2 * reader.unsigned(0xFFFF) for _ in range(4)) if reader.flag() else (0, 0, 0, 0)


def _usable(reader: BitReader) -> str:
    """Return the pixel format of 8-bit 4:2:0 pictures, from the usability information (Annex E)."""
    if not reader.flag():
        return "yuv420p"
    if reader.flag() and reader.bits(8) == _EXTENDED:
        reader.bits(32)
    if reader.flag():
        reader.flag()
    if reader.flag():
        reader.bits(3)
        return "yuvj420p" if reader.flag() else "yuv420p"
    return "yuv420p"


def h265_picture(unit: bytes) -> PictureFormat:
    """Return the format from a sequence parameter set (ITU-T H.265, 7.3.2.2). Raises ``ValueError``."""
    reader = BitReader(raw_payload(unit)[2:])
    reader.bits(4)
    layers = reader.bits(3)
    reader.bits(1 + 88 + 8)
    if layers:
        present = [(reader.flag(), reader.flag()) for _ in range(layers)]
        reader.bits(2 * (8 - layers))
        for has_profile, has_level in present:
            reader.bits(88 * has_profile + 8 * has_level)
    reader.unsigned(15)
    _only(reader.unsigned() == 1, "its colours are not 4:2:0")
    width, height = reader.unsigned(0xFFFF), reader.unsigned(0xFFFF)
    left, right, top, bottom = _window(reader)
    _only(reader.unsigned() == 0 and reader.unsigned() == 0, "its pixels have more than 8 bits")
    reader.unsigned(12)
    for _ in range(layers + 1 if reader.flag() else 1):
        for _ in range(3):
            reader.unsigned()
    for _ in range(6):
        reader.unsigned()
    _only(not (reader.flag() and reader.flag()), "it has scaling lists")
    reader.bits(2)
    if reader.flag():
        reader.bits(8)
        reader.unsigned()
        reader.unsigned()
        reader.flag()
    for number in range(reader.unsigned(64)):
        _only(not (number and reader.flag()), "its sets of pictures refer to each other")
        for _ in range(reader.unsigned(16) + reader.unsigned(16)):
            reader.unsigned()
            reader.flag()
    _only(not reader.flag(), "it refers to much earlier pictures")
    reader.bits(2)
    return PictureFormat(width - left - right, height - top - bottom, _usable(reader))


def av1_picture(configuration: bytes) -> PictureFormat:
    """Return the format from the sequence header in a box ``av1C``. Raises ``ValueError``."""
    header = configuration[4] if len(configuration) > 6 else 0
    _only(configuration[:1] == b"\x81" and header >> 3 & 15 == _SEQUENCE_HEADER, "it has no sequence header")
    _only(header & 6 == 2 and configuration[5] < 128, "its sequence header has an unusual form")
    reader = BitReader(configuration[6 : 6 + configuration[5]])
    profile = reader.bits(3)
    reader.flag()
    _only(not reader.flag() and not reader.flag(), "its sequence header has an unusual form")
    has_delay = reader.flag()
    for _ in range(reader.bits(5) + 1):
        reader.bits(12)
        if reader.bits(5) > 7:
            reader.flag()
        if has_delay and reader.flag():
            reader.bits(4)
    bits = reader.bits(4) + 1, reader.bits(4) + 1
    width, height = (reader.bits(count) + 1 for count in bits)
    if reader.flag():
        reader.bits(7)
    reader.bits(7)
    has_order = reader.flag()
    if has_order:
        reader.bits(2)
    screen = _CHOSEN_PER_FRAME if reader.flag() else reader.bits(1)
    if screen and not reader.flag():
        reader.flag()
    if has_order:
        reader.bits(3)
    reader.bits(3)
    _only(not reader.flag(), "its pixels have more than 8 bits")
    _only(profile == 0 and not reader.flag(), "its colours are not 4:2:0")
    if reader.flag():
        reader.bits(24)
    _only(not reader.flag(), "its colours have the full range")
    return PictureFormat(width, height, "yuv420p")


def vp9_picture(sample: bytes) -> PictureFormat:
    """Return the format from the header of a VP9 key frame. Raises ``ValueError``."""
    reader = BitReader(sample)
    _only(reader.bits(6) == 0b100000, "it has another profile, or does not begin with a key frame")
    reader.bits(2)
    _only(reader.bits(24) == 0x498342, "it does not begin with a key frame")
    _only(reader.bits(3) != _RGB and not reader.flag(), "its colours have another colour space or the full range")
    return PictureFormat(reader.bits(16) + 1, reader.bits(16) + 1, "yuv420p")
