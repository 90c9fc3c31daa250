"""Key frames of AV1, in open bitstream units."""

from __future__ import annotations

from collections.abc import Iterator

_SEQUENCE_HEADER = 1
_FRAMES = frozenset((3, 6))


def is_keyframe(sample: bytes) -> bool:
    """Whether the sample has a sequence header and a new frame of type "key"."""
    has_sequence = has_key = False
    for kind, begin, end in _units(sample):
        if kind == _SEQUENCE_HEADER:
            has_sequence = True
        elif kind in _FRAMES and begin < end:
            # Three bits: show_existing_frame, and two of frame_type.
            has_key = has_key or sample[begin] & 0xE0 == 0
    return has_sequence and has_key


def _units(sample: bytes) -> Iterator[tuple[int, int, int]]:
    """Type, begin and end of each unit; ends at one that does not say its size, or says more than there is."""
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
