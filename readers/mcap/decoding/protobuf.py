"""Protobuf messages, by the descriptors that stand in the file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from ....engine.chunk import ComponentDescriptor
from ....engine.limits import MAX_RECURSIVE_MESSAGE
from .decoded import Decoded, check_batch, decoded_of
from .gather import offsets_of
from .protobuf_columns import Columns
from .protobuf_scan import Places, TooManyCellsError
from .protobuf_schema import ENUM_TYPE, ProtoField, ProtoMessage, ProtoOneof, parse_protobuf


def _build_messages(node: ProtoMessage, messages: list[Any]) -> pa.Array:
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
    array = _build_messages(field.message, there)
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


class ProtobufDecoder:
    """Decodes protobuf messages of one type; a :class:`~chunkmill.readers.mcap.decoding.MessageDecoder`."""

    def __init__(self, schema_name: str, schema_data: bytes) -> None:
        self._node, self._class = parse_protobuf(schema_name, schema_data)
        self.descriptor = ComponentDescriptor(f"{schema_name}:message", archetype=schema_name)
        self.datatype: pa.DataType = self._node.arrow

    def decode(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """See :meth:`MessageDecoder.decode`."""
        check_batch(starts, ends)
        if self._node.has_opaque:
            return self.decode_plain(data, starts, ends)
        faults: dict[int, str] = {}
        pieces = list(self._columnar(data, starts, ends, np.arange(len(starts)), faults))
        return decoded_of(pieces, self.datatype, faults)

    def _columnar(
        self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, chosen: np.ndarray, faults: dict[int, str]
    ) -> Iterator[tuple[np.ndarray, pa.Array]]:
        """Decode the messages ``chosen`` by column; what is odd about some is left to the library."""
        columns = Columns(data)
        try:
            values = columns.messages(self._node, Places(starts[chosen], ends[chosen], chosen))
        except TooManyCellsError:
            if len(chosen) == 1:
                faults[int(chosen[0])] = "it holds more values than are taken from one message"
                return
            half = len(chosen) // 2
            yield from self._columnar(data, starts, ends, chosen[:half], faults)
            yield from self._columnar(data, starts, ends, chosen[half:], faults)
            return
        odd = np.unique(np.concatenate([np.empty(0, np.int64), *columns.odd]))
        if not len(odd):
            yield chosen, values
            return
        plainly = self.decode_plain(data, starts[odd], ends[odd])
        faults.update(zip(odd[plainly.bad].tolist(), plainly.reasons, strict=True))
        yield np.delete(odd, plainly.bad), plainly.values
        good = ~np.isin(chosen, odd)
        yield chosen[good], values.filter(pa.array(good))

    def decode_plain(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """The same, by the library's message objects: the reference."""
        faults: dict[int, str] = {}
        messages: dict[int, Any] = {}
        view = data.data
        for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            if self._node.has_opaque and end - start > MAX_RECURSIVE_MESSAGE:
                faults[index] = f"it has {end - start:,} bytes, too many for a type that contains itself"
                continue
            try:
                messages[index] = self._class.FromString(bytes(view[start:end]))
            except DecodeError as error:
                faults[index] = f"it is not a protobuf message of this type: {error}"
        try:
            values = _build_messages(self._node, list(messages.values()))
        except UnicodeError:
            for index, message in list(messages.items()):
                try:
                    _build_messages(self._node, [message])
                except UnicodeError:
                    faults[index] = "a string in it is not UTF-8"
                    del messages[index]
            values = _build_messages(self._node, list(messages.values()))
        bad = np.array(sorted(faults), np.int64)
        return Decoded(values, bad, [faults[index] for index in bad.tolist()])
