"""Structs as messages in the encoding of their schema: CDR, ROS 1, protobuf and JSON.

The types are the same as for decoding, so that a struct that was read can be written by the same definition. A struct
that does not fit its definition gives no message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pybase64
from google.protobuf.message import DecodeError, Message

from .columns import (
    CDR,
    ROS1_WIRE,
    MessageType,
    Node,
    Primitive,
    SchemaError,
    SequenceType,
    Text,
    Wire,
)
from .json import REST, JsonNode, Leaf, ListOf, parse_json_schema
from .protobuf_schema import ProtoField, ProtoMessage, ProtoOneof, parse_protobuf
from .ros import parse_ros1, parse_ros2

StructEncoder = Callable[[pa.StructArray], list[bytes | None]]
"""Encodes structs, one message for each; None for a struct that does not fit the definition."""

_Put = Callable[[bytearray, int], None]
"""Appends a row's value."""


class _MisfitError(ValueError):
    """A value that does not fit the definition."""


def struct_encoder(
    schema_name: str, schema_encoding: str, schema_data: bytes, message_encoding: str
) -> StructEncoder | None:
    """Return a function that encodes structs as messages of a schema, the inverse of decoding.

    Its argument is an array of structs, of the type that readers return. It returns the bytes of each struct, or None
    if the struct does not fit the schema.

    Parameters
    ----------
    schema_name, schema_encoding, schema_data
        The schema as in an MCAP: ``ros2msg``, ``ros2idl``, ``omgidl``, ``ros1msg``, ``protobuf`` or ``jsonschema``.
    message_encoding
        ``cdr``, ``ros1`` or ``json``; for a protobuf schema any encoding. None is returned for other encodings, and for
        a schema that cannot be used.

    Examples
    --------
    >>> encode = struct_encoder("my_msgs/Point", "ros1msg", b"float32 x", "ros1")
    >>> encode(pa.array([{"x": 1.0}, {"x": None}]))
    [b'\\x00\\x00\\x80?', None]
    """
    messages = "" if schema_encoding == "protobuf" else message_encoding.lower()
    make = _ENCODERS.get((messages, schema_encoding))
    if make is None:
        return None
    try:
        return make(schema_name, schema_data)
    except SchemaError:
        return None


def _ros2(name: str, data: bytes) -> StructEncoder:
    return partial(_ros_messages, parse_ros2(name, data), CDR)


def _idl(name: str, data: bytes) -> StructEncoder:
    from .idl import parse_idl

    return partial(_ros_messages, parse_idl(name, data), CDR)


def _ros1(name: str, data: bytes) -> StructEncoder:
    return partial(_ros_messages, parse_ros1(name, data), ROS1_WIRE)


_CDR_HEADER: Final = b"\0\1\0\0"
"""Little-endian CDR of version 1."""


def _ros_messages(node: MessageType, wire: Wire, structs: pa.StructArray) -> list[bytes | None]:
    try:
        put = _put(node, _typed(structs, node.arrow), wire)
    except pa.ArrowException:
        return [None] * len(structs)
    header = _CDR_HEADER if wire.header else b""

    def encoded(row: int) -> bytes | None:
        body = bytearray()
        try:
            put(body, row)
        except _MisfitError:
            return None
        return header + body

    return [encoded(row) for row in range(len(structs))]


def _typed(structs: pa.StructArray, kind: pa.DataType) -> pa.StructArray:
    """Return structs as a type. Raises ``ArrowException`` if their fields or values do not fit it."""
    if structs.type == kind:
        return structs
    if not _is_within(structs.type, kind):
        raise pa.ArrowInvalid("fields that the definition lacks")
    return structs.cast(kind)


def _is_within(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether the type ``wanted`` has all fields of ``kind``."""
    if pa.types.is_struct(kind) and pa.types.is_struct(wanted):
        names = {field.name: field.type for field in wanted}
        return all(field.name in names and _is_within(field.type, names[field.name]) for field in kind)
    if pa.types.is_list(kind) and pa.types.is_list(wanted):
        return _is_within(kind.value_type, wanted.value_type)
    return True


def _put(node: Node, values: pa.Array, wire: Wire) -> _Put:
    """Return the writer of one type; values are aligned from the start of the output."""
    if isinstance(node, MessageType):
        return _put_message(node, values, wire)
    if isinstance(node, Text):
        return _put_text(node, values, wire)
    if isinstance(node, SequenceType):
        return _put_sequence(node, values, wire)
    data, valid, size = _wired(node, values), _validity(values), node.size
    align = min(size, wire.max_align)

    def put(out: bytearray, row: int) -> None:
        _check(valid, row, row + 1)
        out += bytes(-len(out) % align)
        out += data[row * size : (row + 1) * size]

    return put


def _put_message(node: MessageType, values: pa.StructArray, wire: Wire) -> _Put:
    valid = _validity(values)
    puts = [_put(child, values.field(name), wire) for name, child in node.fields]
    filler = bytes(node.has_filler)

    def put(out: bytearray, row: int) -> None:
        _check(valid, row, row + 1)
        out += filler
        for each in puts:
            each(out, row)

    return put


def _put_text(node: Text, values: pa.StringArray, wire: Wire) -> _Put:
    texts = values.to_pylist()
    align = min(4, wire.max_align)
    end = b"\0" if wire.ended and not node.wide else b""

    def put(out: bytearray, row: int) -> None:
        text = texts[row]
        if text is None:
            raise _MisfitError
        # ROS 2 writes each UTF-16 unit of a wstring in four bytes.
        units = np.frombuffer(text.encode("utf-16-le"), "<u2").astype("<u4") if node.wide else None
        data = text.encode() + end if units is None else units.tobytes()
        out += bytes(-len(out) % align)
        out += (len(data) if units is None else len(units)).to_bytes(4, "little")
        out += data

    return put


def _put_sequence(node: SequenceType, values: pa.ListArray, wire: Wire) -> _Put:
    valid, offsets = _validity(values), values.offsets.to_numpy()
    align = min(4, wire.max_align)
    elements = _put_numbers(node.element, values.values, wire) if isinstance(node.element, Primitive) else None
    single = None if elements is not None else _put(node.element, values.values, wire)

    def put(out: bytearray, row: int) -> None:
        _check(valid, row, row + 1)
        start, end = int(offsets[row]), int(offsets[row + 1])
        if node.length is None:
            out += bytes(-len(out) % align)
            out += (end - start).to_bytes(4, "little")
        elif end - start != node.length:
            raise _MisfitError
        if elements is not None:
            elements(out, start, end)
        elif single is not None:
            for element in range(start, end):
                single(out, element)

    return put


def _put_numbers(node: Primitive, values: pa.Array, wire: Wire) -> Callable[[bytearray, int, int], None]:
    data, valid, size = _wired(node, values), _validity(values), node.size
    align = min(size, wire.max_align)

    def put(out: bytearray, start: int, end: int) -> None:
        _check(valid, start, end)
        if end > start:
            out += bytes(-len(out) % align)
            out += data[start * size : end * size]

    return put


def _wired(node: Primitive, values: pa.Array) -> memoryview:
    """Return numbers as bytes on the wire; null gives 0. Raises ``ArrowInvalid`` for numbers that do not fit."""
    filled = pc.fill_null(values, False if node.is_bool else 0)
    numbers = (filled.cast(pa.uint8()) if node.is_bool else filled).to_numpy()
    wired = numbers.astype(node.wire["<"], copy=False)
    if wired.dtype.itemsize < numbers.dtype.itemsize and not (wired == numbers).all():
        raise pa.ArrowInvalid("a number does not fit")
    return memoryview(np.ascontiguousarray(wired).view(np.uint8).data)


def _validity(values: pa.Array) -> np.ndarray | None:
    return pc.is_valid(values).to_numpy(zero_copy_only=False) if values.null_count else None


def _check(valid: np.ndarray | None, start: int, end: int) -> None:
    if valid is not None and not valid[start:end].all():
        raise _MisfitError


def _protobuf(name: str, data: bytes) -> StructEncoder:
    node, kind = parse_protobuf(name, data)

    def encoded(value: Any) -> bytes | None:
        message = kind()
        try:
            _fill(message, node, value)
            return bytes(message.SerializePartialToString(deterministic=True))
        except (TypeError, ValueError, KeyError, AttributeError, DecodeError):
            return None

    return lambda structs: [encoded(value) for value in structs.to_pylist()]


def _fill(message: Message, node: ProtoMessage, value: Mapping[str, Any]) -> None:
    """Set the fields of a message that are not null. Raises the library's errors and :class:`_MisfitError`."""
    if not value.keys() <= {entry.name for entry in node.entries}:
        raise _MisfitError
    for entry in node.entries:
        given = value.get(entry.name)
        if given is None:
            continue
        if isinstance(entry, ProtoField):
            _set_field(message, entry, given)
        else:
            _set_oneof(message, entry, given)


def _set_oneof(message: Message, entry: ProtoOneof, given: Mapping[str, Any]) -> None:
    chosen = [member for member in entry.members if given.get(member.name) is not None]
    if len(chosen) != 1:
        raise _MisfitError
    _set_field(message, chosen[0], given[chosen[0].name])


def _set_field(message: Any, field: ProtoField, given: Any) -> None:
    if field.is_map:
        assert field.message is not None
        content = field.message.fields[2]
        target = getattr(message, field.name)
        for key, value in given:
            if content.message is None and not content.opaque:
                target[key] = _scalar(content, value)
            else:
                _set_message(target[key], content, value)
    elif field.message is not None or field.opaque:
        if field.repeated:
            for value in given:
                _set_message(getattr(message, field.name).add(), field, value)
        else:
            getattr(message, field.name).SetInParent()
            _set_message(getattr(message, field.name), field, given)
    elif field.repeated:
        getattr(message, field.name).extend(given if field.enum is None else [_scalar(field, v) for v in given])
    else:
        setattr(message, field.name, _scalar(field, given))


def _set_message(target: Any, field: ProtoField, value: Any) -> None:
    if field.opaque:
        target.MergeFromString(value)
    elif field.message is not None and value is not None:
        _fill(target, field.message, value)


def _scalar(field: ProtoField, value: Any) -> Any:
    return value if field.enum is None else value["value"]


def _json(name: str, data: bytes) -> StructEncoder:
    node = parse_json_schema(name, data)

    def encoded(value: Any) -> bytes | None:
        try:
            return json.dumps(_json_value(node, value), separators=(",", ":"), ensure_ascii=False).encode()
        except (TypeError, ValueError, KeyError, AttributeError):
            return None

    def messages(structs: pa.StructArray) -> list[bytes | None]:
        try:
            values = _typed(structs, node.arrow).to_pylist()
        except pa.ArrowException:
            return [None] * len(structs)
        return [encoded(value) for value in values]

    return messages


def _json_value(node: JsonNode, value: Any) -> Any:
    """Return a value in JSON's form, without null members."""
    if value is None:
        return None
    if isinstance(node, Leaf):
        if node.kind == "any":
            return json.loads(value)
        return pybase64.b64encode_as_string(value) if node.kind == "base64" else value
    if isinstance(node, ListOf):
        return [_json_value(node.element, element) for element in value]
    if not value.keys() <= {*node.types, *([REST] if node.open else [])}:
        raise _MisfitError
    members = {name: _json_value(child, value.get(name)) for name, child in node.fields}
    rest = json.loads(value[REST]) if node.open and value.get(REST) is not None else {}
    return {**{name: member for name, member in members.items() if member is not None}, **rest}


_ENCODERS: Final[Mapping[tuple[str, str], Callable[[str, bytes], StructEncoder]]] = {
    ("cdr", "ros2msg"): _ros2,
    ("cdr", "ros2idl"): _idl,
    ("cdr", "omgidl"): _idl,
    ("ros1", "ros1msg"): _ros1,
    ("", "protobuf"): _protobuf,
    ("json", "jsonschema"): _json,
}
"""By the encodings of messages and schema. Messages of a protobuf schema are read whatever their encoding is called."""
