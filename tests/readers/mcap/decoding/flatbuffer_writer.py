"""FlatBuffers written with the project's own builder: messages of a type, and the binary schema that declares it."""

from __future__ import annotations

import struct
from typing import Any

import flatbuffers
from chunkmill.readers.mcap.decoding import flatbuffer
from chunkmill.readers.mcap.decoding.flatbuffer import (
    SCALARS,
    FlatArray,
    FlatField,
    FlatNode,
    FlatNumber,
    FlatStruct,
    FlatTable,
    FlatText,
    FlatUnion,
    FlatVector,
)
from hypothesis import strategies as st

PACK = dict(zip(SCALARS, "BbHhIiQqfd", strict=True))
KINDS = {"u1": 4, "i1": 3, "u2": 6, "i2": 5, "u4": 8, "i4": 7, "u8": 10, "i8": 9, "f4": 11, "f8": 12}


def message(node: FlatTable, value: dict[str, Any], identifier: bytes | None = None) -> bytes:
    """One message."""
    builder = flatbuffers.Builder(64)
    builder.Finish(_write(builder, node, value), file_identifier=identifier)
    return bytes(builder.Output())


def inline(node: FlatNode, value: Any) -> bytes:
    """The bytes of what lies inline."""
    if isinstance(node, FlatNumber):
        return struct.pack(f"<{PACK[node.code]}", value["value"] if node.names is not None else value)
    if isinstance(node, FlatArray):
        return b"".join(inline(node.element, element) for element in value)
    assert isinstance(node, FlatStruct)
    out = bytearray(node.size)
    for (name, child), place in zip(node.members, node.places, strict=True):
        raw = inline(child, value[name])
        out[place : place + len(raw)] = raw
    return bytes(out)


def align(node: FlatNode) -> int:
    if isinstance(node, FlatStruct):
        return max(align(child) for _, child in node.members)
    return align(node.element) if isinstance(node, FlatArray) else node.size


def _place(builder: Any, raw: bytes, alignment: int) -> int:
    builder.Prep(alignment, len(raw))
    for byte in reversed(raw):
        builder.Place(byte, flatbuffers.number_types.Uint8Flags)
    return int(builder.Offset())


def _write(builder: Any, node: FlatNode, value: Any) -> int:
    """Write what is referred to; the offset of it."""
    if isinstance(node, FlatText):
        return int(builder.CreateString(value))
    if isinstance(node, FlatStruct):
        return _place(builder, inline(node, value), align(node))
    if isinstance(node, FlatVector):
        return _vector(builder, node.element, value)
    assert isinstance(node, FlatTable)
    written = {
        entry.name: _field(builder, entry.node, value[entry.name])
        for entry in node.fields
        if value[entry.name] is not None and not isinstance(entry.node, FlatNumber | FlatStruct)
    }
    builder.StartObject(max((entry.slot for entry in node.fields), default=4) // 2)
    for entry in node.fields:
        slot, found = entry.slot // 2 - 2, value[entry.name]
        if found is None:
            continue
        if entry.name in written:
            builder.PrependUOffsetTRelativeSlot(slot, written[entry.name], 0)
        else:
            _place(builder, inline(entry.node, found), align(entry.node))
            builder.Slot(slot)
    return int(builder.EndObject())


def _field(builder: Any, node: FlatNode, value: Any) -> int:
    if not isinstance(node, FlatUnion):
        return _write(builder, node, value)
    return next(_write(builder, member, value[name]) for _, name, member in node.members if value[name] is not None)


def _vector(builder: Any, element: FlatNode, value: list[Any]) -> int:
    if isinstance(element, FlatNumber | FlatStruct):
        raw = [inline(element, one) for one in value]
        builder.StartVector(element.size, len(value), align(element))
        for one in reversed(raw):
            for byte in reversed(one):
                builder.Place(byte, flatbuffers.number_types.Uint8Flags)
    else:
        offsets = [_write(builder, element, one) for one in value]
        builder.StartVector(4, len(value), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def schema_of(node: FlatTable) -> bytes:
    """The binary schema that declares ``node``."""
    objects: dict[str, dict[str, Any]] = {}
    enums: list[dict[str, Any]] = []
    _declare(node, objects, enums)
    found = {"objects": list(objects.values()), "enums": enums, "root_table": {"name": node.name}}
    return message(flatbuffer._SCHEMA, found, b"BFBS")


def _declare(node: FlatTable | FlatStruct, objects: dict[str, Any], enums: list[Any]) -> int:
    objects[node.name] = {}
    index = len(objects) - 1
    fields = []
    if isinstance(node, FlatStruct):
        for number, ((name, child), place) in enumerate(zip(node.members, node.places, strict=True)):
            fields.append(_described(name, child, number, place, objects, enums))
    else:
        for entry in node.fields:
            described = _described(entry.name, entry.node, entry.slot // 2 - 2, entry.slot, objects, enums)
            number = isinstance(entry.node, FlatNumber)
            described["optional"] = int(number and entry.default is None)
            if number and entry.default is not None:
                real = entry.node.code[0] == "f"  # type: ignore[union-attr]
                signed = entry.default - (1 << 64) if entry.default >= 1 << 63 and not real else entry.default
                described["default_real" if real else "default_integer"] = signed
            fields.append(described)
    size = node.size if isinstance(node, FlatStruct) else 0
    objects[node.name] |= {
        "name": node.name,
        "fields": fields,
        "is_struct": int(isinstance(node, FlatStruct)),
        "bytesize": size,
    }
    return index


def _described(
    name: str, node: FlatNode, number: int, offset: int, objects: dict[str, Any], enums: list[Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "type": type_of(node, objects, enums),
        "id": number,
        "offset": offset,
        "default_integer": 0,
        "default_real": 0.0,
        "deprecated": 0,
        "optional": 0,
        "offset64": 0,
    }


def type_of(node: FlatNode, objects: dict[str, Any], enums: list[Any]) -> dict[str, Any]:
    plain = {"base_type": 0, "element": 0, "index": -1, "fixed_length": 0}
    if isinstance(node, FlatNumber):
        if node.names is None:
            return plain | {"base_type": 2 if node.is_bool else KINDS[node.code]}
        enums.append({"name": f"E{len(enums)}", "values": [value(name, number) for number, name in node.names]})
        return plain | {"base_type": KINDS[node.code], "index": len(enums) - 1}
    if isinstance(node, FlatText):
        return plain | {"base_type": 13}
    if isinstance(node, FlatTable | FlatStruct):
        return plain | {"base_type": 15, "index": _declare(node, objects, enums)}
    if isinstance(node, FlatUnion):
        members = [value("NONE", 0)]
        members += [value(name, number, type_of(child, objects, enums)) for number, name, child in node.members]
        enums.append({"name": f"E{len(enums)}", "values": members})
        return plain | {"base_type": 16, "index": len(enums) - 1}
    inner = type_of(node.element, objects, enums)
    shared = plain | {"element": inner["base_type"], "index": inner["index"]}
    if isinstance(node, FlatArray):
        return shared | {"base_type": 17, "fixed_length": node.length}
    return shared | {"base_type": 14}


def value(name: str, number: int, type_: Any = None) -> dict[str, Any]:
    return {"name": name, "value": number, "union_type": type_}


# --- random types and values

NAMES = ((0, "Zero"), (1, "One"), (7, "Seven"))
numbers = st.one_of(
    st.sampled_from([FlatNumber(code) for code in SCALARS]),
    st.just(FlatNumber("u1", is_bool=True)),
    st.sampled_from(["u1", "i2", "i8"]).map(
        lambda code: FlatNumber(code, names=((0, "Zero"), (1, "One"), (7, "Seven")))
    ),
)


@st.composite
def structs(draw: st.DrawFn, name: str) -> FlatStruct:
    """Structs of numbers and arrays of them."""
    simple = numbers.filter(lambda node: node.names is None)
    kinds = draw(st.lists(st.one_of(simple, st.builds(FlatArray, simple, st.integers(1, 3))), min_size=1, max_size=3))
    places, place = [], 0
    for kind in kinds:
        place += -place % align(kind)
        places.append(place)
        place += kind.size
    members = tuple((f"m{index}", kind) for index, kind in enumerate(kinds))
    return FlatStruct(name, members, tuple(places), place + -place % max(map(align, kinds)))


@st.composite
def tables(draw: st.DrawFn, name: str = "T", depth: int = 2) -> FlatTable:
    """Tables nested up to ``depth`` deep."""
    fields: list[FlatField] = []
    slot = 4
    for index in range(draw(st.integers(0, 4))):
        label = f"{name}{index}"
        kind = draw(nodes(label, depth))
        if isinstance(kind, FlatUnion):
            names = tuple((number, member) for number, member in [(0, "NONE")] + [m[:2] for m in kind.members])
            fields.append(FlatField(f"f{index}_type", slot, FlatNumber("u1", names=names), 0))
            fields.append(FlatField(f"f{index}", slot + 2, kind, None, slot))
            slot += 4
            continue
        default = None
        if isinstance(kind, FlatNumber) and draw(st.booleans()):
            default = draw(st.sampled_from([0, 1]))
            default = float(default) if kind.code[0] == "f" else default
        fields.append(FlatField(f"f{index}", slot, kind, default))
        slot += 2
    return FlatTable(name, tuple(fields))


def nodes(name: str, depth: int) -> st.SearchStrategy[FlatNode]:
    single: st.SearchStrategy[FlatNode] = st.one_of(numbers, st.just(FlatText()), structs(f"{name}S"))
    if not depth:
        return single
    inner = tables(f"{name}_", depth - 1)
    return st.one_of(
        single,
        inner,
        st.builds(FlatVector, st.one_of(numbers, st.just(FlatText()), structs(f"{name}V"), inner)),
        inner.map(lambda table: FlatUnion(((1, "text", FlatText()), (2, "table", table)))),
    )


def number_values(node: FlatNumber) -> st.SearchStrategy[Any]:
    if node.names is not None:
        named = [{"name": name, "value": number} for number, name in node.names]
        return st.sampled_from([*named, {"name": None, "value": 3}])
    if node.is_bool:
        return st.booleans()
    if node.code[0] == "f":
        return st.floats(width=8 * node.size, allow_nan=False)  # type: ignore[arg-type]
    bits, signed = 8 * node.size, node.code[0] == "i"
    return st.integers(-(1 << bits - 1) if signed else 0, (1 << bits - signed) - 1)


def values(node: FlatNode) -> st.SearchStrategy[Any]:
    """Values of a type, as Python objects."""
    if isinstance(node, FlatNumber):
        return number_values(node)
    if isinstance(node, FlatText):
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
    if isinstance(node, FlatStruct):
        return st.fixed_dictionaries({name: values(child) for name, child in node.members})
    if isinstance(node, FlatArray):
        return st.lists(values(node.element), min_size=node.length, max_size=node.length)
    if isinstance(node, FlatVector):
        return st.lists(values(node.element), max_size=3)
    assert isinstance(node, FlatTable)
    return st.builds(dict, table_values(node))


@st.composite
def table_values(draw: st.DrawFn, node: FlatTable) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in node.fields:
        if isinstance(entry.node, FlatUnion):
            number, label, member = draw(st.sampled_from([(0, "NONE", None), *entry.node.members]))
            found[f"{entry.name}_type"] = {"name": label, "value": number}
            chosen = {name: draw(values(member)) if name == label else None for _, name, _ in entry.node.members}
            found[entry.name] = None if member is None else chosen
        elif isinstance(entry.node, FlatNumber) and entry.default is not None:
            found[entry.name] = draw(values(entry.node))
        else:
            found[entry.name] = draw(st.none() | values(entry.node))
    return found
