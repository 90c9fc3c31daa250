"""FlatBuffers messages, by the binary schema (``.bfbs``) that stands in the file.

A schema is itself a FlatBuffer, of the schema ``reflection.fbs`` of the FlatBuffers project, which is written down here
as far as it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ....engine.limits import MAX_CELLS, MAX_NESTING, MAX_SCHEMA_BYTES, MAX_SCHEMA_FIELDS, MIB
from .columns import Faults, MessageDecoder, Piece, SchemaError
from .flatbuffer_columns import (
    FlatArray,
    FlatColumns,
    FlatField,
    FlatNode,
    FlatNumber,
    FlatRows,
    FlatStruct,
    FlatTable,
    FlatText,
    FlatUnion,
    FlatVector,
    OverBudgetError,
)

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
    """The table ``schema_name`` of a binary schema; its root table when it has none of that name.

    Deprecated fields are left out. Raises :class:`SchemaError`, also for what is not read: tables that contain
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
        raise SchemaError("it holds more definitions than are read") from None
    if columns.faults:
        raise SchemaError(f"it is damaged: {columns.faults[0][1].lstrip('.: ')}")
    return array.to_pylist()[0]


class _Builder:
    """Turns definitions into types, tables each once; counts what they expand to."""

    def __init__(self, schema: Any) -> None:
        self._objects = [*(schema["objects"] or ())]
        self._enums = [*(schema["enums"] or ())]
        self._done: dict[int, FlatTable | FlatStruct] = {}
        self.by_name = {found["name"]: index for index, found in enumerate(self._objects)}

    def object(self, index: int, above: tuple[int, ...]) -> FlatTable | FlatStruct:
        """The table or struct of that number, which stands in those ``above``."""
        if not 0 <= index < len(self._objects):
            raise SchemaError(f"it has no definition number {index}")
        found = self._objects[index]
        name = found["name"]
        if index in above:
            raise SchemaError(f"{name} contains itself")
        if len(above) >= MAX_NESTING:
            raise SchemaError(f"it nests deeper than {MAX_NESTING} levels")
        if index not in self._done:
            build = self._struct if found["is_struct"] else self._table
            node = build(found, (*above, index))
            if node.leaves > MAX_SCHEMA_FIELDS:
                raise SchemaError(f"{name} expands to more than {MAX_SCHEMA_FIELDS:,} fields")
            self._done[index] = node
        return self._done[index]

    def _struct(self, found: Any, above: tuple[int, ...]) -> FlatStruct:
        size = found["bytesize"]
        members, places = [], []
        for field in sorted(found["fields"] or (), key=lambda field: field["offset"]):
            node = self._node(field, above)
            if not isinstance(node, FlatNumber | FlatStruct | FlatArray):
                raise SchemaError(f"{found['name']}.{field['name']} cannot lie in a struct")
            if not 0 < field["offset"] + node.size <= size <= _LARGEST_STRUCT:
                raise SchemaError(f"{found['name']}.{field['name']} does not fit into its struct")
            members.append((field["name"], node))
            places.append(field["offset"])
        if not members:
            raise SchemaError(f"the struct {found['name']} has no members")
        _check_names(found["name"], [name for name, _ in members])
        return FlatStruct(found["name"], tuple(members), tuple(places), size)

    def _table(self, found: Any, above: tuple[int, ...]) -> FlatTable:
        entries, seen = [], 0
        for field in sorted(found["fields"] or (), key=lambda field: field["id"]):
            if field["deprecated"]:
                continue
            node, slot = self._node(field, above), field["offset"]
            if slot < 4 or field["offset64"]:
                raise SchemaError(f"{found['name']}.{field['name']} lies where it cannot be read")
            selector = slot - 2 if isinstance(node, FlatUnion) else 0
            entries.append(FlatField(field["name"], slot, node, _default(node, field), selector))
            seen += node.leaves
            if seen > MAX_SCHEMA_FIELDS:
                raise SchemaError(f"{found['name']} expands to more than {MAX_SCHEMA_FIELDS:,} fields")
        _check_names(found["name"], [entry.name for entry in entries])
        return FlatTable(found["name"], tuple(entries))

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
                raise SchemaError(f"{field['name']} is an array of what cannot lie in one")
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
        raise SchemaError(f"{name} is of a type that is not read (number {kind})")

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
                continue  # NONE
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
    if node.code == "u8":  # the schema has it as a signed number
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

    Fields come in the order of their ids. Numbers that are not there have their default, or are null if the schema
    calls them optional; tables, structs, strings and vectors that are not there are null. An enum's value becomes its
    name and number; a union a struct with a child for each member, beside its type. Every offset is checked.
    """

    def __init__(self, schema_name: str, schema_data: bytes) -> None:
        self._node = _parse_flatbuffer(schema_name, schema_data)
        super().__init__(schema_name or self._node.name, self._node.arrow)

    def projected(self, keeps: Callable[[str], bool]) -> FlatBufferDecoder:
        """The same for those of the table's own fields that are kept."""
        node = replace(self._node, fields=tuple(entry for entry in self._node.fields if keeps(entry.name)))
        return self._with(_node=node, datatype=node.arrow)

    def _by_column(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, faults: Faults) -> Iterable[Piece]:
        if len(starts) * self._node.leaves > MAX_CELLS:
            why = "messages of its type have more fields than are taken from so many"
            faults |= dict.fromkeys(range(len(starts)), why)
            return ()
        rows = FlatRows(starts, starts, ends, np.arange(len(starts)))
        return self._columnar(data, rows, faults, _LEAST / max(int((ends - starts).sum()), 1))

    def _columnar(self, data: np.ndarray, rows: FlatRows, faults: Faults, share: float) -> Iterator[Piece]:
        """Decode the messages ``rows``; ``share`` is what a byte of a message may become beyond the usual."""
        size, count = int((rows.end - rows.start).sum()), len(rows.owner)
        budget = min(_EXPANSION * size, _FREE) + int(share * size) + 4 * size + 16 * self._node.leaves * count
        columns = FlatColumns(data, budget)
        try:
            values = columns.root(self._node, rows)
        except OverBudgetError:
            if count == 1:
                faults[int(rows.owner[0])] = "it refers to the same bytes so often that it would become far larger"
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
