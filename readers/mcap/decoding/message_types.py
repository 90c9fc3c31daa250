"""The types a ROS message is made of, as a tree, and their Arrow types."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class Primitive:
    """A number of fixed width. ``code`` is its numpy type on the wire, without byte order."""

    name: str
    code: str
    arrow: pa.DataType

    @cached_property
    def size(self) -> int:
        """Bytes on the wire; also its alignment."""
        return int(self.code[1:])

    @cached_property
    def value(self) -> np.dtype[Any]:
        """The numpy type of one value in memory; of a bool, that of its byte."""
        return np.dtype(PRIMITIVES[self.name].code)

    @cached_property
    def wire(self) -> dict[str, np.dtype[Any]]:
        """The numpy type of one value on the wire, by byte order."""
        return {order: np.dtype(f"{order}{self.code}") for order in "<>"}

    @cached_property
    def is_bool(self) -> bool:
        """Whether only 0 and 1 are values."""
        return bool(self.arrow == pa.bool_())

    @property
    def least(self) -> int:
        """The fewest bytes one takes, padding aside."""
        return self.size


@dataclass(frozen=True)
class Text:
    """A string; ``wide`` ones are UTF-16 on the wire. Bounds are not enforced."""

    wide: bool = False

    @property
    def arrow(self) -> pa.DataType:
        """A string."""
        return pa.string()

    @property
    def least(self) -> int:
        """The fewest bytes one takes: its length."""
        return 4


@dataclass(frozen=True)
class Sequence:
    """Many elements of one type: as many as the wire says, or exactly ``length``."""

    element: Node
    length: int | None = None

    @cached_property
    def arrow(self) -> pa.DataType:
        """A list, never one of fixed size."""
        return pa.list_(self.element.arrow)

    @cached_property
    def least(self) -> int:
        """The fewest bytes one takes, padding aside."""
        return 4 if self.length is None else self.length * self.element.least


@dataclass(frozen=True)
class Struct:
    """A message type. One without fields takes one meaningless byte, as IDL demands, or none if not ``filled``."""

    name: str
    fields: tuple[tuple[str, Node], ...]
    filled: bool = True

    @property
    def has_filler(self) -> bool:
        """Whether that byte is there."""
        return self.filled and not self.fields

    @cached_property
    def arrow(self) -> pa.DataType:
        """A struct with a column for each field."""
        return pa.struct([pa.field(name, node.arrow) for name, node in self.fields])

    @cached_property
    def least(self) -> int:
        """The fewest bytes it can take on the wire: what bounds a declared element count."""
        return sum(node.least for _, node in self.fields) or int(self.filled)


Node = Primitive | Text | Sequence | Struct

PRIMITIVES: Final[dict[str, Primitive]] = {
    primitive.name: primitive
    for primitive in (
        Primitive("bool", "u1", pa.bool_()),
        Primitive("byte", "u1", pa.uint8()),
        Primitive("char", "i1", pa.int8()),
        Primitive("int8", "i1", pa.int8()),
        Primitive("uint8", "u1", pa.uint8()),
        Primitive("int16", "i2", pa.int16()),
        Primitive("uint16", "u2", pa.uint16()),
        Primitive("int32", "i4", pa.int32()),
        Primitive("uint32", "u4", pa.uint32()),
        Primitive("int64", "i8", pa.int64()),
        Primitive("uint64", "u8", pa.uint64()),
        Primitive("float32", "f4", pa.float32()),
        Primitive("float64", "f8", pa.float64()),
    )
}

TIME: Final = Struct("builtin_interfaces/Time", (("sec", PRIMITIVES["int32"]), ("nanosec", PRIMITIVES["uint32"])))
"""``Time`` and ``Duration`` of ``builtin_interfaces``, known even when no section of a schema defines them."""


class Wire(NamedTuple):
    """How messages lie in bytes: ``header`` bytes come first; numbers lie at multiples of their size, but of no more
    than ``max_align``, counted from there. ``ended`` texts have a final NUL, ``exact`` messages end where their last
    field does.
    """

    header: int
    max_align: int
    ended: bool
    exact: bool


CDR: Final = Wire(4, 8, ended=True, exact=False)
"""Version 1 of it, as ROS 2 writes it."""

ROS1_WIRE: Final = Wire(0, 1, ended=False, exact=True)
"""The serialization of ROS 1: little-endian, nothing but the values and the counts before what varies in size."""


def is_wide(node: Node) -> bool:
    """Whether a ``wstring`` occurs anywhere in the type."""
    if isinstance(node, Text):
        return node.wide
    if isinstance(node, Sequence):
        return is_wide(node.element)
    return isinstance(node, Struct) and any(is_wide(child) for _, child in node.fields)
