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


def is_annex_b(sample: bytes) -> bool:
    """Whether ``sample`` begins with a start code.

    >>> is_annex_b(b"\\x00\\x00\\x01\\x65"), is_annex_b(b"\\x00\\x00\\x00\\x02\\x65\\x88")
    (True, False)
    """
    return sample.startswith((b"\x00" + _START, _START))


def length_prefixed_to_annex_b(sample: bytes, length_prefix_size: int = 4) -> bytes:
    """NAL units behind their lengths, as MP4 has them, with start codes instead.

    ``length_prefix_size`` is that of a length in bytes: 1, 2 or 4. Raises ``ValueError`` for another, and where the
    sample ends inside a length or a unit.

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
    """A NAL unit without the bytes that were put in to keep start codes out of it."""
    return unit.rstrip(b"\x00").replace(b"\x00\x00\x03", b"\x00\x00")
