"""NAL units in a byte stream (ITU-T H.264 and H.265, Annex B)."""

from __future__ import annotations

from collections.abc import Iterator

_START = b"\x00\x00\x01"


def nal_units(sample: bytes) -> Iterator[tuple[int, int]]:
    """Where each NAL unit of ``sample`` begins (at its header byte) and ends.

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


def raw_payload(unit: bytes) -> bytes:
    """A NAL unit without the bytes that were put in to keep start codes out of it."""
    return unit.rstrip(b"\x00").replace(b"\x00\x00\x03", b"\x00\x00")
