"""Protobuf message types made on the spot, and strategies for messages of them."""

from __future__ import annotations

import struct
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

F = FieldDescriptor
SCALARS = [kind for kind in range(1, 19) if kind not in (F.TYPE_GROUP, F.TYPE_MESSAGE, F.TYPE_ENUM)]
_BITS = {F.TYPE_INT32: 32, F.TYPE_SINT32: 32, F.TYPE_SFIXED32: 32, F.TYPE_UINT32: 32, F.TYPE_FIXED32: 32}
_UNSIGNED = {F.TYPE_UINT32, F.TYPE_FIXED32, F.TYPE_UINT64, F.TYPE_FIXED64}
_KEYS = [F.TYPE_INT32, F.TYPE_SINT64, F.TYPE_UINT64, F.TYPE_FIXED32, F.TYPE_BOOL, F.TYPE_STRING]


def file_set(file: descriptor_pb2.FileDescriptorProto) -> bytes:
    """The schema data of one file."""
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def message_class(file: descriptor_pb2.FileDescriptorProto, name: str) -> type[Message]:
    """A class for messages of type ``name``."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


@st.composite
def files(draw: st.DrawFn) -> descriptor_pb2.FileDescriptorProto:
    """A file with the message types ``t.M`` and, within it, ``t.N``; every kind of field may occur."""
    proto3 = draw(st.booleans())
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3" if proto3 else "proto2")
    file.enum_type.add(name="E").value.extend(
        descriptor_pb2.EnumValueDescriptorProto(name=name, number=number)
        for name, number in (("E0", 0), ("E1", 1), ("E_NEG", -5), ("E_BIG", 70000))
    )
    _fill(draw, file.message_type.add(name="N"), proto3, nested=False)
    _fill(draw, file.message_type.add(name="M"), proto3, nested=True)
    return file


def _fill(draw: st.DrawFn, message: Any, proto3: bool, *, nested: bool) -> None:
    if draw(st.booleans()):
        message.oneof_decl.add(name="choice")
    numbers = draw(st.lists(st.integers(1, 40), min_size=1, max_size=7, unique=True))
    for index, number in enumerate(numbers):
        field = message.field.add(name=f"f{index}", number=number, label=1)
        form = draw(st.sampled_from(["one", "one", "list", "choice", "optional", "map"]))
        _kind(draw, field, nested=nested)
        if form == "list":
            field.label = 3
            if field.type not in (F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_MESSAGE):
                field.options.packed = draw(st.booleans())
        elif form == "choice" and message.oneof_decl:
            field.oneof_index = 0
        elif form == "map":
            entry = message.nested_type.add(name=f"F{index}Entry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, label=1, type=draw(st.sampled_from(_KEYS)))
            value = entry.field.add(name="value", number=2, label=1, type=field.type)
            if field.type_name:
                value.type_name = field.type_name
            field.label, field.type = 3, F.TYPE_MESSAGE
            field.type_name = f".t.{message.name}.F{index}Entry"
    if message.oneof_decl and not any(field.HasField("oneof_index") for field in message.field):
        del message.oneof_decl[:]


def _kind(draw: st.DrawFn, field: Any, *, nested: bool) -> None:
    kinds = [*SCALARS, F.TYPE_ENUM, F.TYPE_ENUM, *[F.TYPE_MESSAGE] * (4 if nested else 0)]
    field.type = draw(st.sampled_from(kinds))
    if field.type == F.TYPE_ENUM:
        field.type_name = ".t.E"
    elif field.type == F.TYPE_MESSAGE:
        field.type_name = ".t.N"


@st.composite
def messages(draw: st.DrawFn, kind: type[Message]) -> Message:
    """A message of class ``kind``."""
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        if draw(st.integers(0, 3)) == 0:
            continue
        target = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _put_map(draw, target, field.message_type)
        elif hasattr(target, "extend"):
            some = st.lists(_values(field), max_size=4)
            target.extend(draw(some))
        elif field.message_type is not None:
            target.CopyFrom(draw(_values(field)))
            target.SetInParent()
        else:
            setattr(message, field.name, draw(_values(field)))
    return message


def _put_map(draw: st.DrawFn, target: Any, entry: Any) -> None:
    key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
    for name in draw(st.lists(_values(key), max_size=3, unique=True)):
        if value.message_type is not None:
            target[name].CopyFrom(draw(_values(value)))
        else:
            target[name] = draw(_values(value))


def _values(field: Any) -> st.SearchStrategy[Any]:
    if field.type == F.TYPE_MESSAGE:
        return messages(message_factory.GetMessageClass(field.message_type))
    if field.type == F.TYPE_ENUM:
        return st.sampled_from([0, 1, -5, 70000])
    if field.type == F.TYPE_BOOL:
        return st.booleans()
    if field.type == F.TYPE_STRING:
        return st.text(max_size=5)
    if field.type == F.TYPE_BYTES:
        return st.binary(max_size=5)
    if field.type in (F.TYPE_DOUBLE, F.TYPE_FLOAT):
        return st.floats(width=64 if field.type == F.TYPE_DOUBLE else 32, allow_nan=False)
    bits = _BITS.get(field.type, 64)
    if field.type in _UNSIGNED:
        return st.one_of(st.integers(0, 200), st.integers(0, 2**bits - 1))
    return st.one_of(st.integers(-3, 200), st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))


def tag(number: int, wire: int) -> bytes:
    """A field's key."""
    return varint(number << 3 | wire)


def varint(value: int) -> bytes:
    """A number of variable width."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def sized(number: int, payload: bytes) -> bytes:
    """A field of bytes."""
    return tag(number, 2) + varint(len(payload)) + payload


def fixed64(number: int, value: float) -> bytes:
    """A double field."""
    return tag(number, 1) + struct.pack("<d", value)
