"""Thrift's compact protocol, as far as it takes to skip what nobody wants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ...engine.limits import MAX_NESTING

TRUE: Final = 1
BYTE: Final = 3
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
MAP: Final = 11
STRUCT: Final = 12
INTEGERS: Final = (4, 5, 6)

_FALSE, _DOUBLE, _UUID = 2, 7, 13


class ThriftError(ValueError):
    """Bytes that are no Thrift of the compact protocol; ``at`` is where."""

    def __init__(self, why: str, at: int) -> None:
        super().__init__(why)
        self.at = at


class CutThriftError(ThriftError):
    """The bytes end too early."""


class Field(NamedTuple):
    """A field of a struct that the cursor stands before: its number and the type of its value."""

    id: int
    type: int


class Cursor:
    """Reads values from ``data``, from ``at`` on. Raises ``ThriftError``; never looks beyond the end."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def fields(self) -> Iterator[Field]:
        """The fields of a struct; whoever iterates has to read or skip the value of each."""
        last = 0
        while True:
            head = self.byte()
            if head == 0:
                return
            delta, kind = head >> 4, head & 15
            last = last + delta if delta else self.integer()
            yield Field(last, kind)

    def byte(self) -> int:
        """One byte."""
        if self.at >= len(self.data):
            raise CutThriftError("the data ends inside a value", self.at)
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        """An unsigned number of up to 64 bits."""
        at = self.at
        if at < len(self.data) and self.data[at] < 0x80:
            self.at = at + 1
            return self.data[at]
        value = shift = 0
        while shift < 70:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ThriftError("a number has more than 64 bits", self.at)

    def integer(self) -> int:
        """A signed number."""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def binary(self) -> bytes:
        """A string of bytes."""
        size = self.varint()
        begin = self.at
        self._advance(size)
        return self.data[begin : self.at]

    def list_head(self) -> tuple[int, int]:
        """Number and type of the elements of a list or set."""
        head = self.byte()
        size = head >> 4
        if size == 15:
            size = self.varint()
        if size > len(self.data) - self.at:
            raise CutThriftError(f"a list of {size:,} elements cannot fit", self.at)
        return size, head & 15

    def skip(self, kind: int, depth: int = 0) -> None:
        """Pass over a value of a type."""
        if depth > MAX_NESTING:
            raise ThriftError("structures are nested too deep", self.at)
        if kind in (TRUE, _FALSE):
            return
        if kind == BYTE:
            self._advance(1)
        elif kind in INTEGERS:
            self.varint()
        elif kind == _DOUBLE:
            self._advance(8)
        elif kind == BINARY:
            self._advance(self.varint())
        elif kind in (LIST, SET):
            size, element = self.list_head()
            self._skip_elements(size, (element,), depth)
        elif kind == MAP:
            self._skip_map(depth)
        elif kind == STRUCT:
            for field in self.fields():
                self.skip(field.type, depth + 1)
        elif kind == _UUID:
            self._advance(16)
        else:
            raise ThriftError(f"there is no type {kind}", self.at)

    def _skip_map(self, depth: int) -> None:
        size = self.varint()
        if size > len(self.data) - self.at:
            raise CutThriftError(f"a map of {size:,} entries cannot fit", self.at)
        if size:
            kinds = self.byte()
            self._skip_elements(size, (kinds >> 4, kinds & 15), depth)

    def _skip_elements(self, size: int, kinds: tuple[int, ...], depth: int) -> None:
        for _ in range(size):
            for kind in kinds:
                if kind in (TRUE, _FALSE):
                    self._advance(1)  # in a list a boolean takes a byte
                else:
                    self.skip(kind, depth + 1)

    def _advance(self, size: int) -> None:
        if size > len(self.data) - self.at:
            raise CutThriftError("the data ends inside a value", self.at)
        self.at += size
