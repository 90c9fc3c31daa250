"""FlatBuffers messages as columns, by the binary schema (``.bfbs``) in the file.

A schema is itself a FlatBuffer. Its own schema is ``reflection.fbs`` of the FlatBuffers project; this module contains
the necessary part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ....engine.limits import MAX_CELLS, MAX_NESTING, MAX_SCHEMA_BYTES, MAX_SCHEMA_FIELDS, MIB
from .columns import (
    Faults,
    MessageDecoder,
    Piece,
    SchemaError,
    bitmap,
    gather,
    lists,
    names_of,
    not_utf8,
    numbers_of,
    offsets_of,
    pick,
    spread,
    texts_of,
)

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
    """A number, a bool, or a value of an enum with ``names`` by number."""

    code: str
    is_bool: bool = False
    names: tuple[tuple[int, str], ...] | None = None

    @cached_property
    def wire(self) -> np.dtype[Any]:
        """The numpy type."""
        return np.dtype(f"<{self.code}")

    @property
    def size(self) -> int:
        """The bytes that it takes inline."""
        return self.wire.itemsize

    @cached_property
    def number(self) -> pa.DataType:
        """The Arrow type of the number."""
        return pa.bool_() if self.is_bool else SCALARS[self.code]

    @cached_property
    def arrow(self) -> pa.DataType:
        """A number; for an enum, name (null if it has none) and number, as for protobuf's enums."""
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
    """Members at fixed ``places``, inline; it has ``size`` bytes."""

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
        """The bytes of all elements."""
        return self.element.size * self.length

    @cached_property
    def arrow(self) -> pa.DataType:
        """A list."""
        return pa.list_(self.element.arrow)

    @cached_property
    def leaves(self) -> int:
        """Columns times elements, as each value has all elements."""
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
        """Columns that do not depend on the data."""
        return 1


@dataclass(frozen=True)
class FlatField:
    """A field of a table: its place in the vtable counts from ``slot``. A missing number is ``default``, or null if
    that is None; any other missing value is null. ``selector`` is the slot of the type, if the field is a union.
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
    """One of ``members``, which are tables or strings, by the number of its type; referred to."""

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


_CELL: Final = 8
"""The bytes of the budget that each value takes."""


class OverBudgetError(Exception):
    """Messages refer to the same bytes so often that the decoded data is far larger than the messages."""


class FlatRows(NamedTuple):
    """The places of values, as int64 arrays of one length: ``place`` in the data, ``start`` and ``end`` of the message,
    and the message's index, ``owner``.
    """

    place: np.ndarray
    start: np.ndarray
    end: np.ndarray
    owner: np.ndarray

    def at(self, chosen: np.ndarray) -> FlatRows:
        """Return the rows that a mask or indices select."""
        return FlatRows(*(column[chosen] for column in self))


class FlatColumns:
    """Builds arrays from one buffer. ``faults`` collects (owners, text); values of these owners are invalid.

    Only a message's own bytes are read for it. ``budget`` bounds the bytes of the arrays.
    """

    def __init__(self, data: np.ndarray, budget: int) -> None:
        self._data = data
        self._budget = budget
        self.faults: list[tuple[np.ndarray, str]] = []

    def root(self, node: FlatTable, rows: FlatRows) -> pa.Array:
        """Return one table for each message; the messages begin at ``rows.place``."""
        return self._followed(node, rows, "")

    def _spend(self, amount: int) -> None:
        self._budget -= amount
        if self._budget < 0:
            raise OverBudgetError

    def _word(self, places: np.ndarray, code: str) -> np.ndarray:
        kind = np.dtype(f"<{code}")
        return pick(self._data, kind.itemsize, places).view(kind).astype(np.int64)

    def _check(self, rows: FlatRows, good: np.ndarray, what: str) -> np.ndarray:
        """Return ``good``; where it is false, record a fault of the message."""
        if not good.all():
            self.faults.append((rows.owner[~good], what))
        return good

    def _followed(self, node: FlatNode, rows: FlatRows, path: str) -> pa.Array:
        """Build the values to which the offsets at ``rows`` refer; null for places outside of the message."""
        inside = (rows.place >= rows.start) & (rows.place + 4 <= rows.end)
        chosen = np.flatnonzero(self._check(rows, inside, f"{path}: it is outside the message"))
        targets = rows.at(chosen)
        offsets = self._word(targets.place, "u4")
        target = targets.place + offsets
        good = (offsets > 0) & (target + 4 <= targets.end)
        self._check(targets, good, f"{path}: it refers to bytes outside the message")
        chosen, targets = chosen[good], targets.at(good)._replace(place=target[good])
        if isinstance(node, FlatTable):
            values, some = self._tables(node, targets, path)
        elif isinstance(node, FlatStruct):
            some = self._check(targets, targets.place + node.size <= targets.end, f"{path}: it does not fit")
            values = self._inline(node, targets.at(some), path)
        elif isinstance(node, FlatText):
            values, some = self._texts(targets, path)
        else:
            assert isinstance(node, FlatVector)
            values, some = self._vectors(node, targets, path)
        return spread(values, chosen[some], len(rows.place))

    def _tables(self, node: FlatTable, rows: FlatRows, path: str) -> tuple[pa.Array, np.ndarray]:
        """Return the tables at the places of ``rows``, and a mask of the rows that have a table."""
        some = np.ones(len(rows.place), np.bool_)
        vtable = rows.place - self._word(rows.place, "i4")
        some &= self._check(rows, (vtable >= rows.start) & (vtable + 4 <= rows.end), f"{path}: its vtable is outside")
        rows, vtable = rows.at(some), vtable[some]
        length, inline = self._word(vtable, "u2"), self._word(vtable + 2, "u2")
        good = (length >= 4) & (vtable + length <= rows.end) & (rows.place + inline <= rows.end)
        self._check(rows, good, f"{path}: its vtable does not fit")
        some[some] = good
        rows, vtable, length, inline = rows.at(good), vtable[good], length[good], inline[good]
        self._spend(_CELL * node.leaves * len(rows.place))
        children = []
        for entry in node.fields:
            where = f"{path}.{entry.name}" if path else entry.name
            offset = self._slot(entry.slot, vtable, length)
            fits = (offset == 0) | (offset + entry.node.size <= inline)
            offset[~self._check(rows, fits, f"{where}: it does not fit")] = 0
            present = np.flatnonzero(offset)
            at = rows.at(present)._replace(place=rows.place[present] + offset[present])
            if isinstance(entry.node, FlatUnion):
                kinds = self._selectors(entry, rows, vtable, length, inline)
                children.append(self._unions(entry.node, at, kinds[present], present, len(vtable), where))
            elif isinstance(entry.node, FlatNumber):
                children.append(self._numbers_or_default(entry, at, present, len(vtable), where))
            else:
                children.append(spread(self._values(entry.node, at, where), present, len(vtable)))
        return pa.Array.from_buffers(node.arrow, len(vtable), [None], null_count=0, children=children), some

    def _slot(self, slot: int, vtable: np.ndarray, length: np.ndarray) -> np.ndarray:
        """Return the offset in each table, from ``slot`` of its vtable; 0 if the table lacks the field."""
        offset = np.zeros(len(vtable), np.int64)
        present = slot + 2 <= length
        offset[present] = self._word(vtable[present] + slot, "u2")
        return offset

    def _selectors(
        self, entry: FlatField, rows: FlatRows, vtable: np.ndarray, length: np.ndarray, inline: np.ndarray
    ) -> np.ndarray:
        offset = self._slot(entry.selector, vtable, length)
        present = (offset > 0) & (offset < inline)
        kinds = np.zeros(len(vtable), np.int64)
        kinds[present] = self._data[(rows.place + offset)[present]]
        return kinds

    def _unions(
        self, node: FlatUnion, at: FlatRows, kinds: np.ndarray, present: np.ndarray, count: int, path: str
    ) -> pa.Array:
        """Return unions; null if the schema does not know the member's type."""
        children = []
        for number, name, member in node.members:
            chosen = np.flatnonzero(kinds == number)
            children.append(spread(self._followed(member, at.at(chosen), f"{path}.{name}"), present[chosen], count))
        valid = np.zeros(count, np.bool_)
        valid[present] = np.isin(kinds, [number for number, _, _ in node.members])
        return pa.Array.from_buffers(node.arrow, count, [bitmap(valid)], children=children)

    def _values(self, node: FlatNode, rows: FlatRows, path: str) -> pa.Array:
        """Build values whose places and inline bytes are known to be inside their messages."""
        if isinstance(node, FlatNumber | FlatStruct | FlatArray):
            return self._inline(node, rows, path)
        return self._followed(node, rows, path)

    def _inline(self, node: FlatNode, rows: FlatRows, path: str) -> pa.Array:
        if isinstance(node, FlatNumber):
            return self._numbers(node, pick(self._data, node.size, rows.place).view(node.wire), rows.owner, path)
        if isinstance(node, FlatArray):
            counts = np.full(len(rows.place), node.length, np.int64)
            every = _repeated(rows, counts, node.element.size)
            values = self._inline(node.element, every, f"{path}[]")
            return lists(node.arrow, counts, values)
        assert isinstance(node, FlatStruct)
        children = [
            self._inline(child, rows._replace(place=rows.place + place), f"{path}.{name}")
            for (name, child), place in zip(node.members, node.places, strict=True)
        ]
        return pa.Array.from_buffers(node.arrow, len(rows.place), [None], null_count=0, children=children)

    def _numbers_or_default(
        self, entry: FlatField, at: FlatRows, present: np.ndarray, count: int, path: str
    ) -> pa.Array:
        node = entry.node
        assert isinstance(node, FlatNumber)
        stored = pick(self._data, node.size, at.place).view(node.wire)
        if len(present) == count:
            return self._numbers(node, stored, at.owner, path)
        if entry.default is None:
            return spread(self._numbers(node, stored, at.owner, path), present, count)
        values = np.full(count, entry.default, node.wire)
        values[present] = stored
        owner = np.zeros(count, np.int64)
        owner[present] = at.owner
        return self._numbers(node, values, owner, path)

    def _numbers(self, node: FlatNumber, values: np.ndarray, owner: np.ndarray, path: str) -> pa.Array:
        if node.is_bool:
            wrong = values > 1
            if wrong.any():
                self.faults.append((owner[wrong], f"{path}: a bool is neither 0 nor 1"))
        numbers = numbers_of(node.number, values)
        if node.names is None:
            return numbers
        names, _ = names_of(values, dict(node.names))
        return pa.Array.from_buffers(node.arrow, len(values), [None], null_count=0, children=[names, numbers])

    def _texts(self, rows: FlatRows, path: str) -> tuple[pa.Array, np.ndarray]:
        lengths = self._word(rows.place, "u4")
        some = self._check(rows, rows.place + 4 + lengths <= rows.end, f"{path}: the string does not fit")
        rows, lengths = rows.at(some), lengths[some]
        self._spend(int(lengths.sum()) + _CELL * len(lengths))
        payload = gather(self._data, rows.place + 4, lengths)
        offsets = offsets_of(lengths)
        wrong = not_utf8(payload, offsets)
        if len(wrong):
            self.faults.append((rows.owner[wrong], f"{path}: the text is not UTF-8"))
        return texts_of(payload, offsets), some

    def _vectors(self, node: FlatVector, rows: FlatRows, path: str) -> tuple[pa.Array, np.ndarray]:
        element, counts = node.element, self._word(rows.place, "u4")
        size = element.size
        some = self._check(rows, counts * size <= rows.end - rows.place - 4, f"{path}: the vector does not fit")
        rows, counts = rows.at(some)._replace(place=rows.place[some] + 4), counts[some]
        elements = int(counts.sum())
        if isinstance(element, FlatNumber) and element.names is None:
            self._spend(elements * size)
            values = self._numbers(
                element,
                gather(self._data, rows.place, counts * size).view(element.wire),
                np.repeat(rows.owner, counts) if element.is_bool else rows.owner,
                f"{path}[]",
            )
        else:
            self._spend(_CELL * elements * (element.leaves + 4))
            values = self._values(element, _repeated(rows, counts, size), f"{path}[]")
        return lists(node.arrow, counts, values), some


def _repeated(rows: FlatRows, counts: np.ndarray, size: int) -> FlatRows:
    """Return one row for each of ``counts`` consecutive elements of ``size`` bytes."""
    first = np.cumsum(counts) - counts
    index = np.arange(int(counts.sum())) - np.repeat(first, counts)
    every = FlatRows(*(np.repeat(column, counts) for column in rows))
    return every._replace(place=every.place + index * size)


_UTYPE, _BOOL, _STRING, _VECTOR, _OBJECT, _UNION, _ARRAY = 1, 2, 13, 14, 15, 16, 17
_NUMBERS: Final = {1: "u1", 2: "u1", 3: "i1", 4: "u1", 5: "i2", 6: "u2", 7: "i4", 8: "u4", 9: "i8", 10: "u8"} | {
    11: "f4",
    12: "f8",
}
_IDENTIFIER: Final = b"BFBS"
_LARGEST_STRUCT: Final = 1 << 16


def _table(title: str, /, **fields: tuple[int, FlatNode, float | None]) -> FlatTable:
    entries = (FlatField(field, 4 + 2 * index, node, default) for field, (index, node, default) in fields.items())
    return FlatTable(title, tuple(entries))


_FLAG: Final = FlatNumber("u1", is_bool=True)
_TYPE: Final = _table(
    "Type",
    base_type=(0, FlatNumber("i1"), 0),
    element=(1, FlatNumber("i1"), 0),
    index=(2, FlatNumber("i4"), -1),
    fixed_length=(3, FlatNumber("u2"), 0),
)
_FIELD: Final = _table(
    "Field",
    name=(0, FlatText(), None),
    type=(1, _TYPE, None),
    id=(2, FlatNumber("u2"), 0),
    offset=(3, FlatNumber("u2"), 0),
    default_integer=(4, FlatNumber("i8"), 0),
    default_real=(5, FlatNumber("f8"), 0),
    deprecated=(6, _FLAG, 0),
    optional=(11, _FLAG, 0),
    offset64=(13, _FLAG, 0),
)
_OBJECT_TABLE: Final = _table(
    "Object",
    name=(0, FlatText(), None),
    fields=(1, FlatVector(_FIELD), None),
    is_struct=(2, _FLAG, 0),
    bytesize=(4, FlatNumber("i4"), 0),
)
_ENUM_VALUE: Final = _table(
    "EnumVal", name=(0, FlatText(), None), value=(1, FlatNumber("i8"), 0), union_type=(3, _TYPE, None)
)
_ENUM: Final = _table("Enum", name=(0, FlatText(), None), values=(1, FlatVector(_ENUM_VALUE), None))
_SCHEMA: Final = _table(
    "Schema",
    objects=(0, FlatVector(_OBJECT_TABLE), None),
    enums=(1, FlatVector(_ENUM), None),
    root_table=(4, _table("Object", name=(0, FlatText(), None)), None),
)


def _parse_flatbuffer(schema_name: str, schema_data: bytes) -> FlatTable:
    """Return the table ``schema_name`` of a binary schema, or its root table if it has no table of that name.

    Deprecated fields are left out. Raises :class:`SchemaError`, also for unsupported schemas: tables that contain
    themselves, vectors of unions, and 64-bit offsets.
    """
    if len(schema_data) > MAX_SCHEMA_BYTES:
        raise SchemaError(f"the schema of {schema_name} has {len(schema_data):,} bytes, too many")
    if schema_data[4:8] != _IDENTIFIER:
        raise SchemaError("it is not a binary FlatBuffers schema")
    schema = _read(schema_data)
    builder = _Builder(schema)
    root = (schema["root_table"] or {}).get("name")
    for name in (schema_name, root):
        if name is not None and name in builder.by_name:
            node = builder.object(builder.by_name[name], ())
            if not isinstance(node, FlatTable):
                raise SchemaError(f"{name} is not a table")
            return node
    raise SchemaError(f"it does not define {schema_name}, and has no root table")


def _read(schema_data: bytes) -> Any:
    data, zero = np.frombuffer(schema_data, np.uint8), np.zeros(1, np.int64)
    columns = FlatColumns(data, 64 * MAX_SCHEMA_FIELDS * 64)
    try:
        array = columns.root(_SCHEMA, FlatRows(zero, zero, np.array([len(data)]), zero))
    except OverBudgetError:
        raise SchemaError("it has more definitions than allowed") from None
    if columns.faults:
        raise SchemaError(f"it is damaged: {columns.faults[0][1].lstrip('.: ')}")
    return array.to_pylist()[0]


class _Builder:
    """Turns definitions into types, each table once; counts the columns that they expand to."""

    def __init__(self, schema: Any) -> None:
        self._objects = [*(schema["objects"] or ())]
        self._enums = [*(schema["enums"] or ())]
        self._done: dict[int, FlatTable | FlatStruct] = {}
        self.by_name = {definition["name"]: index for index, definition in enumerate(self._objects)}

    def object(self, index: int, above: tuple[int, ...]) -> FlatTable | FlatStruct:
        """Return the table or struct with number ``index``, which is inside those in ``above``."""
        if not 0 <= index < len(self._objects):
            raise SchemaError(f"it has no definition number {index}")
        definition = self._objects[index]
        name = definition["name"]
        if index in above:
            raise SchemaError(f"{name} contains itself")
        if len(above) >= MAX_NESTING:
            raise SchemaError(f"it nests deeper than {MAX_NESTING} levels")
        if index not in self._done:
            build = self._struct if definition["is_struct"] else self._table
            node = build(definition, (*above, index))
            if node.leaves > MAX_SCHEMA_FIELDS:
                raise SchemaError(f"{name} expands to more than {MAX_SCHEMA_FIELDS:,} fields")
            self._done[index] = node
        return self._done[index]

    def _struct(self, definition: Any, above: tuple[int, ...]) -> FlatStruct:
        size = definition["bytesize"]
        members, places = [], []
        for entry in sorted(definition["fields"] or (), key=lambda entry: entry["offset"]):
            node = self._node(entry, above)
            if not isinstance(node, FlatNumber | FlatStruct | FlatArray):
                raise SchemaError(f"{definition['name']}.{entry['name']} cannot be in a struct")
            if not 0 < entry["offset"] + node.size <= size <= _LARGEST_STRUCT:
                raise SchemaError(f"{definition['name']}.{entry['name']} does not fit into its struct")
            members.append((entry["name"], node))
            places.append(entry["offset"])
        if not members:
            raise SchemaError(f"the struct {definition['name']} has no members")
        _check_names(definition["name"], [name for name, _ in members])
        return FlatStruct(definition["name"], tuple(members), tuple(places), size)

    def _table(self, definition: Any, above: tuple[int, ...]) -> FlatTable:
        entries, seen = [], 0
        for entry in sorted(definition["fields"] or (), key=lambda entry: entry["id"]):
            if entry["deprecated"]:
                continue
            node, slot = self._node(entry, above), entry["offset"]
            if slot < 4 or entry["offset64"]:
                raise SchemaError(f"{definition['name']}.{entry['name']} has an invalid offset")
            selector = slot - 2 if isinstance(node, FlatUnion) else 0
            entries.append(FlatField(entry["name"], slot, node, _default(node, entry), selector))
            seen += node.leaves
            if seen > MAX_SCHEMA_FIELDS:
                raise SchemaError(f"{definition['name']} expands to more than {MAX_SCHEMA_FIELDS:,} fields")
        _check_names(definition["name"], [entry.name for entry in entries])
        return FlatTable(definition["name"], tuple(entries))

    def _node(self, field: Any, above: tuple[int, ...]) -> FlatNode:
        type_ = field["type"]
        if field["name"] is None or type_ is None:
            raise SchemaError("it has a field without a name or a type")
        kind = type_["base_type"]
        if kind == _VECTOR:
            return FlatVector(self._single(type_["element"], type_["index"], above, field["name"]))
        if kind == _ARRAY:
            element = self._single(type_["element"], type_["index"], above, field["name"])
            if not isinstance(element, FlatNumber | FlatStruct) or not type_["fixed_length"]:
                raise SchemaError(f"{field['name']} is an array of an unsupported type")
            return FlatArray(element, type_["fixed_length"])
        if kind == _UNION:
            return self._union(type_["index"], above)
        return self._single(kind, type_["index"], above, field["name"])

    def _single(self, kind: int, index: int, above: tuple[int, ...], name: str) -> FlatNode:
        if kind in _NUMBERS:
            return FlatNumber(_NUMBERS[kind], kind == _BOOL, self._names(index) if index >= 0 else None)
        if kind == _STRING:
            return FlatText()
        if kind == _OBJECT:
            return self.object(index, above)
        raise SchemaError(f"{name} has an unsupported type (number {kind})")

    def _enum(self, index: int) -> list[Any]:
        if not 0 <= index < len(self._enums):
            raise SchemaError(f"it has no enum number {index}")
        values = [*(self._enums[index]["values"] or ())]
        if any(value["name"] is None for value in values):
            raise SchemaError("it has a value without a name")
        return values

    def _names(self, index: int) -> tuple[tuple[int, str], ...]:
        names: dict[int, str] = {}
        for value in self._enum(index):
            names.setdefault(value["value"], value["name"])
        return tuple(sorted(names.items()))

    def _union(self, index: int, above: tuple[int, ...]) -> FlatUnion:
        members = []
        for value in self._enum(index):
            type_ = value["union_type"]
            if type_ is None or not type_["base_type"]:
                continue  # the member NONE
            members.append((value["value"], value["name"], self._single(type_["base_type"], type_["index"], above, "")))
        if any(isinstance(node, FlatNumber) for _, _, node in members):
            raise SchemaError("a union has numbers as members")
        _check_names("a union", [name for _, name, _ in members])
        return FlatUnion(tuple(members))


def _default(node: FlatNode, field: Any) -> float | None:
    if not isinstance(node, FlatNumber) or field["optional"]:
        return None
    if node.code[0] == "f":
        return float(field["default_real"])
    value, info = int(field["default_integer"]), np.iinfo(node.wire)
    if node.code == "u8":  # the schema stores it as a signed number
        value %= 1 << 64
    if not int(info.min) <= value <= int(info.max) or (node.is_bool and not 0 <= value <= 1):
        raise SchemaError(f"the default of {field['name']} does not fit")
    return value


def _check_names(owner: str, names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise SchemaError(f"{owner} has a field twice")


_EXPANSION: Final = 64
_FREE: Final = 256 * MIB
_LEAST: Final = 64 * MIB


class FlatBufferDecoder(MessageDecoder):
    """Decodes FlatBuffers messages of one table, by a binary ``flatbuffer`` schema.

    Fields are in the order of their ids. Missing numbers have their default, or are null if the schema calls them
    optional; missing tables, structs, strings and vectors are null. An enum's value becomes its name and number; a
    union becomes a struct with a child for each member, next to its type. Every offset is checked.
    """

    def __init__(self, schema_name: str, schema_data: bytes) -> None:
        self._node = _parse_flatbuffer(schema_name, schema_data)
        super().__init__(schema_name or self._node.name, self._node.arrow)

    def projected(self, keeps: Callable[[str], bool]) -> FlatBufferDecoder:
        """Return a decoder of only those of the table's own fields that are kept."""
        node = replace(self._node, fields=tuple(entry for entry in self._node.fields if keeps(entry.name)))
        return self._with(_node=node, datatype=node.arrow)

    def _by_column(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, faults: Faults) -> Iterable[Piece]:
        if len(starts) * self._node.leaves > MAX_CELLS:
            why = "messages of this type have too many fields in total"
            faults |= dict.fromkeys(range(len(starts)), why)
            return ()
        rows = FlatRows(starts, starts, ends, np.arange(len(starts)))
        return self._columnar(data, rows, faults, _LEAST / max(int((ends - starts).sum()), 1))

    def _columnar(self, data: np.ndarray, rows: FlatRows, faults: Faults, share: float) -> Iterator[Piece]:
        """Decode the messages ``rows``; ``share`` is the extra budget for each byte of a message."""
        size, count = int((rows.end - rows.start).sum()), len(rows.owner)
        budget = min(_EXPANSION * size, _FREE) + int(share * size) + 4 * size + 16 * self._node.leaves * count
        columns = FlatColumns(data, budget)
        try:
            values = columns.root(self._node, rows)
        except OverBudgetError:
            if count == 1:
                faults[int(rows.owner[0])] = "it refers to the same bytes too often"
                return
            half = np.arange(count) < count // 2
            yield from self._columnar(data, rows.at(half), faults, share)
            yield from self._columnar(data, rows.at(~half), faults, share)
            return
        bad = np.zeros(count, np.bool_)
        first = int(rows.owner[0]) if count else 0
        for owners, what in columns.faults:
            bad[owners - first] = True
            for owner in owners.tolist():
                faults.setdefault(owner, what.lstrip(".: "))
        if bad.any():
            yield rows.owner[~bad], values.filter(pa.array(~bad))
        else:
            yield rows.owner, values
