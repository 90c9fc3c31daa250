"""Converts a protobuf ``FileDescriptorSet`` to the tree of a message's fields and their Arrow types."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from ....engine.limits import MAX_NESTING, MAX_SCHEMA_BYTES, MAX_SCHEMA_FIELDS
from .columns import SchemaError

_EXTENSION: Final = b"ARROW:extension:name"
_ENUM: Final = {_EXTENSION: b"rerun.datatypes.ProtobufEnum"}
_ONEOF: Final = {_EXTENSION: b"rerun.datatypes.ProtobufOneOf"}
_OPAQUE: Final = {_EXTENSION: b"rerun.datatypes.ProtobufSelfReferential"}

_SCALARS: Final[dict[int, pa.DataType]] = {
    FieldDescriptor.TYPE_DOUBLE: pa.float64(),
    FieldDescriptor.TYPE_FLOAT: pa.float32(),
    FieldDescriptor.TYPE_INT64: pa.int64(),
    FieldDescriptor.TYPE_SINT64: pa.int64(),
    FieldDescriptor.TYPE_SFIXED64: pa.int64(),
    FieldDescriptor.TYPE_INT32: pa.int32(),
    FieldDescriptor.TYPE_SINT32: pa.int32(),
    FieldDescriptor.TYPE_SFIXED32: pa.int32(),
    FieldDescriptor.TYPE_UINT64: pa.uint64(),
    FieldDescriptor.TYPE_FIXED64: pa.uint64(),
    FieldDescriptor.TYPE_UINT32: pa.uint32(),
    FieldDescriptor.TYPE_FIXED32: pa.uint32(),
    FieldDescriptor.TYPE_BOOL: pa.bool_(),
    FieldDescriptor.TYPE_STRING: pa.string(),
    FieldDescriptor.TYPE_BYTES: pa.binary(),
}
ENUM_TYPE: Final = pa.struct([pa.field("name", pa.string()), pa.field("value", pa.int32())])


@dataclass(frozen=True)
class EnumNames:
    """The values of an enum; if a number has several names, the first declared one counts."""

    names: dict[int, str]
    closed: bool
    default: int


@dataclass(frozen=True)
class ProtoField:
    """One field. ``kind`` is the ``FieldDescriptor.TYPE_…``; ``present``: unset and default differ.

    ``message`` is set for messages and groups, unless one contains itself: such a field is ``opaque``, and its values
    stay serialized. ``is_map`` marks repeated entries of a map; ``message`` then has the fields key and value.
    """

    name: str
    number: int
    kind: int
    repeated: bool
    present: bool
    message: ProtoMessage | None = None
    enum: EnumNames | None = None
    opaque: bool = False
    is_map: bool = False

    @cached_property
    def element(self) -> pa.DataType:
        """The type of one value."""
        if self.opaque:
            return pa.binary()
        if self.message is not None:
            return self.message.arrow
        return _SCALARS[self.kind] if self.enum is None else ENUM_TYPE

    @cached_property
    def arrow(self) -> pa.Field:
        """The column for the field."""
        kind = self.element
        if self.is_map:
            assert self.message is not None
            key, value = (pa.field(entry.name, entry.arrow.type) for entry in self.message.entries)
            return pa.field(self.name, pa.map_(key.with_nullable(False), value))
        metadata = _OPAQUE if self.opaque else None if self.enum is None else _ENUM
        return pa.field(self.name, pa.list_(kind) if self.repeated else kind, metadata=metadata)


@dataclass(frozen=True)
class ProtoOneof:
    """Fields of which at most one is set, in the order of their declaration."""

    name: str
    members: tuple[ProtoField, ...]

    @cached_property
    def arrow(self) -> pa.Field:
        """The column: a struct with one child for each member."""
        return pa.field(self.name, pa.struct([member.arrow for member in self.members]), metadata=_ONEOF)


@dataclass(frozen=True)
class ProtoMessage:
    """A message type: its fields by ascending number; a oneof is at the place of its lowest number."""

    name: str
    entries: tuple[ProtoField | ProtoOneof, ...]

    @cached_property
    def arrow(self) -> pa.DataType:
        """The struct type."""
        return pa.struct([entry.arrow for entry in self.entries])

    @cached_property
    def fields(self) -> dict[int, ProtoField]:
        """All fields, including members of oneofs, by number."""
        members = [entry.members if isinstance(entry, ProtoOneof) else (entry,) for entry in self.entries]
        return {field.number: field for some in members for field in some}

    @cached_property
    def leaves(self) -> int:
        """The number of its leaf columns, at least 1."""
        return sum(1 if field.message is None else field.message.leaves for field in self.fields.values()) + 1

    @cached_property
    def has_opaque(self) -> bool:
        """Return whether a field anywhere in it stays serialized."""
        some = self.fields.values()
        return any(field.opaque or (field.message is not None and field.message.has_opaque) for field in some)


def parse_protobuf(schema_name: str, schema_data: bytes) -> tuple[ProtoMessage, type[Message]]:
    """Return the type ``schema_name`` of a serialized ``FileDescriptorSet``, and a class that parses its messages.

    Imports of ``google/protobuf/…`` that the set lacks are taken from the library. Raises :class:`SchemaError`.
    """
    if len(schema_data) > MAX_SCHEMA_BYTES:
        raise SchemaError(f"the descriptors of {schema_name} have {len(schema_data):,} bytes, too many")
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(schema_data)
    except DecodeError:
        raise SchemaError(f"the schema of {schema_name} is not a FileDescriptorSet") from None
    descriptor = _pool(files, schema_name)
    return _Builder().message(descriptor), message_factory.GetMessageClass(descriptor)


def _pool(files: descriptor_pb2.FileDescriptorSet, schema_name: str) -> Descriptor:
    """Put all files into a separate pool, imports first, and return the descriptor of ``schema_name``."""
    waiting = {file.name: file for file in reversed(files.file)}
    pool, added, entered = descriptor_pool.DescriptorPool(), set[str](), set[str]()
    pending = list(waiting)
    try:
        while pending:
            name = pending[-1]
            file = waiting.get(name) or _library_file(name)
            needed = [] if name in added else [other for other in file.dependency if other not in added]
            if needed and name in entered:
                raise SchemaError(f"the schema of {schema_name} has files that import each other")
            entered.add(name)
            pending += needed
            if needed:
                continue
            if name not in added:
                pool.AddSerializedFile(file.SerializeToString())
                added.add(name)
            pending.pop()
        return pool.FindMessageTypeByName(schema_name)
    except KeyError:
        raise SchemaError(f"the descriptors do not define {schema_name}") from None
    except TypeError as error:
        raise SchemaError(f"the descriptors of {schema_name} contradict each other: {error}") from None


def _library_file(name: str) -> descriptor_pb2.FileDescriptorProto:
    """Return a file of the library's own types."""
    if name.startswith("google/protobuf/") and name.endswith(".proto") and name.count("/") == 2:
        stem = name.removesuffix(".proto").rsplit("/", 1)[1]
        if stem.isidentifier():
            try:
                module = importlib.import_module(f"google.protobuf.{stem}_pb2")
            except ImportError:
                pass
            else:
                file = descriptor_pb2.FileDescriptorProto()
                module.DESCRIPTOR.CopyToProto(file)
                return file
    raise SchemaError(f"the descriptors import {name}, which is not among them")


class _Builder:
    """Turns descriptors into trees, and counts the columns that they expand to."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._done: dict[str, tuple[ProtoMessage, int]] = {}

    def message(self, descriptor: Descriptor) -> ProtoMessage:
        return self._message(descriptor)[0]

    def _message(self, descriptor: Descriptor) -> tuple[ProtoMessage, int]:
        """Return the tree, and its number of leaf columns. Types that contain no ancestor are built once."""
        if descriptor.full_name in self._done:
            return self._done[descriptor.full_name]
        if len(self._open) >= MAX_NESTING:
            raise SchemaError(f"{self._open[0]} nests deeper than {MAX_NESTING} levels")
        self._open.append(descriptor.full_name)
        entries: list[ProtoField | ProtoOneof] = []
        leaves, closed, oneofs = 1, True, set[str]()
        for field in sorted(descriptor.fields, key=lambda field: field.number):
            oneof = field.containing_oneof
            if oneof is not None and len(oneof.fields) > 1:
                if oneof.name in oneofs:
                    continue
                oneofs.add(oneof.name)
                built = [self._field(member) for member in oneof.fields]
                entries.append(ProtoOneof(oneof.name, tuple(member for member, _, _ in built)))
            else:
                built = [self._field(field)]
                entries.append(built[0][0])
            leaves += sum(some for _, some, _ in built)
            closed = closed and all(whole for _, _, whole in built)
            if leaves > MAX_SCHEMA_FIELDS:
                raise SchemaError(f"{descriptor.full_name} expands to more than {MAX_SCHEMA_FIELDS:,} fields")
        self._open.pop()
        message = ProtoMessage(descriptor.full_name, tuple(entries))
        if closed:
            self._done[descriptor.full_name] = message, leaves
        return message, leaves

    def _field(self, field: Any) -> tuple[ProtoField, int, bool]:
        """Return the field, its leaf columns, and whether it has no references to the messages around it."""
        message, leaves, whole, opaque, is_map = None, 1, True, False, False
        if field.message_type is not None:
            opaque = field.message_type.full_name in self._open
            whole = not opaque
            if not opaque:
                message, leaves = self._message(field.message_type)
                whole = field.message_type.full_name in self._done
                is_map = bool(field.message_type.GetOptions().map_entry)
                if is_map:
                    # An entry without key or value has the default instead: nothing in a map is unset.
                    pair = tuple(replace(entry, present=False) for entry in message.fields.values())
                    message = ProtoMessage(message.name, pair)
        enum = _enum_names(field.enum_type) if field.enum_type is not None else None
        repeated = _is_repeated(field)
        present = field.has_presence and not repeated
        node = ProtoField(field.name, field.number, field.type, repeated, present, message, enum, opaque, is_map)
        return node, leaves, whole


def _is_repeated(field: Any) -> bool:
    repeated = getattr(field, "is_repeated", None)
    return bool(field.label == FieldDescriptor.LABEL_REPEATED if repeated is None else repeated)


def _enum_names(descriptor: EnumDescriptor) -> EnumNames:
    names: dict[int, str] = {}
    for value in descriptor.values:
        names.setdefault(value.number, value.name)
    return EnumNames(names, bool(descriptor.is_closed), descriptor.values[0].number)
