"""Bits out of bytes, most significant first."""

from __future__ import annotations


class BitReader:
    """Reads fields of a video header. Every method raises ``ValueError`` when the bytes end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def bits(self, count: int) -> int:
        """An unsigned number of ``count`` bits."""
        end = self._position + count
        if end > 8 * len(self._data):
            raise ValueError(f"the header ends after {len(self._data)} bytes")
        first, last = self._position // 8, (end + 7) // 8
        self._position = end
        return int.from_bytes(self._data[first:last], "big") >> (8 * last - end) & ((1 << count) - 1)

    def flag(self) -> bool:
        """One bit."""
        return self.bits(1) == 1

    def unsigned(self, most: int = 0xFFFF_FFFE) -> int:
        """An Exp-Golomb code; one above ``most`` is an error."""
        zeros = 0
        while not self.flag():
            zeros += 1
            if zeros > 32:
                raise ValueError("an Exp-Golomb code has more than 32 leading zeros")
        value = (1 << zeros) - 1 + self.bits(zeros)
        if value > most:
            raise ValueError(f"a field is {value}, and at most {most} is allowed")
        return value

    def signed(self) -> int:
        """A signed Exp-Golomb code."""
        code = self.unsigned()
        return (code + 1) // 2 if code % 2 else -(code // 2)
