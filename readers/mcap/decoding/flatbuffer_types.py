"""The types a FlatBuffers message is made of, as a tree, and their Arrow types."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

SCALARS: Final[dict[str, pa.DataType]] = {
    "u1": pa.uint8(),
    "i1": pa.int8(),
    "u2": pa.uint16(),
    "i2": pa.int16(),
    "u4": pa.uint32(),
    "i4": pa.int32(),
    "u8": pa.uint64(),
    "i8": pa.int64(),
    "f4": pa.float32(),
    "f8": pa.float64(),
}
"""By numpy's code without byte order; FlatBuffers are little-endian."""


@dataclass(frozen=True)
class FlatNumber:
    """A number, a bool, or a value of an enum, whose ``names`` by number are then known."""

    code: str
    is_bool: bool = False
    names: tuple[tuple[int, str], ...] | None = None

    @cached_property
    def wire(self) -> np.dtype[Any]:
        """The numpy type."""
        return np.dtype(f"<{self.code}")

    @property
    def size(self) -> int:
        """Bytes where it lies: inline."""
        return self.wire.itemsize

    @cached_property
    def number(self) -> pa.DataType:
        """The Arrow type of the number."""
        return pa.bool_() if self.is_bool else SCALARS[self.code]

    @cached_property
    def arrow(self) -> pa.DataType:
        """A number; of an enum, its name (null if it has none) and number, as protobuf's enums become."""
        if self.names is None:
            return self.number
        return pa.struct([pa.field("name", pa.string()), pa.field("value", self.number)])

    @property
    def leaves(self) -> int:
        """Columns."""
        return 1 if self.names is None else 2


@dataclass(frozen=True)
class FlatText:
    """A string, referred to."""

    size: int = 4

    @property
    def arrow(self) -> pa.DataType:
        """A string."""
        return pa.string()

    @property
    def leaves(self) -> int:
        """Columns."""
        return 1


@dataclass(frozen=True)
class FlatStruct:
    """Members at fixed ``places``, inline; ``size`` bytes."""

    name: str
    members: tuple[tuple[str, FlatNode], ...]
    places: tuple[int, ...]
    size: int

    @cached_property
    def arrow(self) -> pa.DataType:
        """A struct."""
        return pa.struct([pa.field(name, node.arrow) for name, node in self.members])

    @cached_property
    def leaves(self) -> int:
        """Columns, at least 1."""
        return sum(node.leaves for _, node in self.members) + 1


@dataclass(frozen=True)
class FlatArray:
    """``length`` elements, inline, in structs only."""

    element: FlatNode
    length: int

    @cached_property
    def size(self) -> int:
        """Bytes of all."""
        return self.element.size * self.length

    @cached_property
    def arrow(self) -> pa.DataType:
        """A list."""
        return pa.list_(self.element.arrow)

    @cached_property
    def leaves(self) -> int:
        """Columns, times elements: all are there in each value."""
        return self.element.leaves * self.length


@dataclass(frozen=True)
class FlatVector:
    """Elements, referred to."""

    element: FlatNode
    size: int = 4

    @cached_property
    def arrow(self) -> pa.DataType:
        """A list."""
        return pa.list_(self.element.arrow)

    @property
    def leaves(self) -> int:
        """Columns of what does not depend on the data."""
        return 1


@dataclass(frozen=True)
class FlatField:
    """A field of a table: its place in the vtable counts from ``slot``. A number that is not there is ``default``, or
    null where that is None, as everything else is. ``selector`` is the slot of the type, if the field is a union.
    """

    name: str
    slot: int
    node: FlatNode
    default: float | None = None
    selector: int = 0


@dataclass(frozen=True)
class FlatTable:
    """A table, referred to."""

    name: str
    fields: tuple[FlatField, ...]
    size: int = 4

    @cached_property
    def arrow(self) -> pa.DataType:
        """A struct."""
        return pa.struct([pa.field(entry.name, entry.node.arrow) for entry in self.fields])

    @cached_property
    def leaves(self) -> int:
        """Columns, at least 1."""
        return sum(entry.node.leaves for entry in self.fields) + 1


@dataclass(frozen=True)
class FlatUnion:
    """One of ``members``, tables or strings, by the number of its type; referred to."""

    members: tuple[tuple[int, str, FlatNode], ...] = field(default_factory=tuple)
    size: int = 4

    @cached_property
    def arrow(self) -> pa.DataType:
        """A struct with a child for each member, of which at most one is not null."""
        return pa.struct([pa.field(name, node.arrow) for _, name, node in self.members])

    @cached_property
    def leaves(self) -> int:
        """Columns, at least 1."""
        return sum(node.leaves for _, _, node in self.members) + 1


FlatNode = FlatNumber | FlatText | FlatStruct | FlatArray | FlatVector | FlatTable | FlatUnion
