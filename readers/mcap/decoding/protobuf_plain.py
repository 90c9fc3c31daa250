"""Protobuf by the library's own message objects: the reference that the columnar reader is tested against."""

from __future__ import annotations

from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from .gather import offsets_of
from .protobuf_schema import ENUM_TYPE, ProtoField, ProtoMessage, ProtoOneof


def build_messages(node: ProtoMessage, messages: list[Any]) -> pa.Array:
    """One struct for each of ``messages``. Raises ``UnicodeError`` for a string that is none."""
    children = [
        _oneof(entry, messages) if isinstance(entry, ProtoOneof) else _field(entry, messages) for entry in node.entries
    ]
    return pa.Array.from_buffers(node.arrow, len(messages), [None], null_count=0, children=children)


def _field(field: ProtoField, messages: list[Any]) -> pa.Array:
    get = attrgetter(field.name)
    if field.is_map:
        return _map(field, [get(message) for message in messages])
    if field.repeated:
        return _repeated(field, [get(message) for message in messages])
    if field.present:
        name = field.name
        return _values(field, [get(message) if message.HasField(name) else None for message in messages])
    return _values(field, [get(message) for message in messages])


def _values(field: ProtoField, values: list[Any]) -> pa.Array:
    """Single values, None where unset."""
    if field.opaque:
        serialized = [None if value is None else value.SerializePartialToString() for value in values]
        return pa.array(serialized, pa.binary())
    if field.enum is not None:
        names = [None if value is None else field.enum.names.get(value) for value in values]
        children = [pa.array(names, pa.string()), pa.array(values, pa.int32())]
        return _struct(ENUM_TYPE, children, np.array([value is not None for value in values], np.bool_))
    if field.message is None:
        return pa.array(_texts(values) if field.kind == FieldDescriptor.TYPE_STRING else values, field.element)
    there = [value for value in values if value is not None]
    array = build_messages(field.message, there)
    if len(there) == len(values):
        return array
    places = iter(range(len(there)))
    return array.take(pa.array([None if value is None else next(places) for value in values], pa.int64()))


def _texts(values: list[Any]) -> list[Any]:
    """proto2 lets strings pass that are not UTF-8; the library gives them as bytes."""
    if any(isinstance(value, bytes) for value in values):
        raise UnicodeError("a string is not UTF-8")
    return values


def _struct(kind: pa.DataType, children: list[pa.Array], valid: np.ndarray) -> pa.Array:
    """A struct array that is null where ``valid`` does not hold."""
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(valid), [bitmap], children=children)


def _repeated(field: ProtoField, lists: list[Any]) -> pa.Array:
    """Lists; an empty one is null."""
    counts = np.fromiter(map(len, lists), np.int64, len(lists))
    values = _values(field, list(chain.from_iterable(lists)))
    return _lists(field.arrow.type, counts, values)


def _lists(kind: pa.DataType, counts: np.ndarray, values: pa.Array) -> pa.Array:
    valid = counts > 0
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(offsets_of(counts))]
    return pa.Array.from_buffers(kind, len(counts), buffers, children=[values])


def _map(field: ProtoField, maps: list[Any]) -> pa.Array:
    """Maps, their entries by ascending key; an empty one is null."""
    assert field.message is not None
    key, value = field.message.entries
    assert isinstance(key, ProtoField)
    assert isinstance(value, ProtoField)
    counts = np.fromiter(map(len, maps), np.int64, len(maps))
    text = key.kind == FieldDescriptor.TYPE_STRING
    ordered = [(single, sorted(_texts(list(single)) if text else single)) for single in maps]
    keys = pa.array([name for _, names in ordered for name in names], key.element)
    values = _values(value, [single[name] for single, names in ordered for name in names])
    kind = field.arrow.type
    entries = pa.struct([kind.key_field, kind.item_field])
    pairs = pa.Array.from_buffers(entries, len(keys), [None], null_count=0, children=[keys, values])
    return _lists(kind, counts, pairs)


def _oneof(entry: ProtoOneof, messages: list[Message]) -> pa.Array:
    which = [message.WhichOneof(entry.name) for message in messages]
    children = []
    for member in entry.members:
        get, name = attrgetter(member.name), member.name
        chosen = [get(m) if w == name else None for m, w in zip(messages, which, strict=True)]
        children.append(_values(member, chosen))
    return _struct(entry.arrow.type, children, np.array([name is not None for name in which], np.bool_))
