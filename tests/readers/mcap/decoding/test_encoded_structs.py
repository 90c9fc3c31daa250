"""Structs that were decoded, encoded again by their schema: the bytes of another writer, and damage to none of them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from cdr_writer import join, message, message_types, schema_text, values
from chunkmill.readers import struct_encoder
from chunkmill.readers.mcap.decoding import (
    IdlDecoder,
    JsonDecoder,
    MessageDecoder,
    ProtobufDecoder,
    Ros1Decoder,
    Ros2Decoder,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from json_values import schema_of
from proto_types import file_set, message_class
from test_json_messages import STRUCTURED
from test_json_messages import recordings as json_recordings
from test_protobuf_property import recordings as proto_recordings
from test_ros1_messages import recordings as ros1_recordings

PROPERTY = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def encoded(kind: str, schema: str, name: str, definition: bytes, structs: pa.Array) -> list[bytes | None]:
    encode = struct_encoder(name, schema, definition, kind)
    assert encode is not None
    return encode(structs)


def decoded(decoder: MessageDecoder, messages: list[bytes]) -> pa.Array:
    found = decoder.decode(*join(messages))
    assert not len(found.bad), found.reasons
    return found.values


@PROPERTY
@given(data=st.data())
def test_cdr(data: st.DataObject) -> None:
    node = data.draw(message_types())
    messages = [message(node, value) for value in data.draw(st.lists(values(node), max_size=6))]
    text = schema_text(node)
    structs = decoded(Ros2Decoder(node.name, text), messages)
    assert encoded("cdr", "ros2msg", node.name, text, structs) == messages
    rows = st.lists(st.integers(0, len(messages) - 1), max_size=4) if messages else st.just([])
    some = data.draw(rows)
    assert encoded("CDR", "ros2msg", node.name, text, structs.take(pa.array(some, pa.int64()))) == [
        messages[i] for i in some
    ]
    assert encoded("cdr", "ros2msg", node.name, text, structs[1:]) == messages[1:]


@PROPERTY
@given(ros1_recordings())
def test_ros1(recording: tuple[Any, list[Any], list[bytes]]) -> None:
    node, _, messages = recording
    text = schema_text(node)
    structs = decoded(Ros1Decoder(node.name, text), messages)
    assert encoded("ros1", "ros1msg", node.name, text, structs) == messages


@PROPERTY
@given(proto_recordings())
def test_protobuf(recording: Any) -> None:
    file, messages = recording
    decoder = ProtobufDecoder("t.M", file_set(file))
    structs = decoded(decoder, messages)
    again = encoded("protobuf", "protobuf", "t.M", file_set(file), structs)
    assert None not in again
    assert repr(decoded(decoder, [raw or b"" for raw in again]).to_pylist()) == repr(structs.to_pylist())
    kind = message_class(file, "t.M")
    canonical = [kind.FromString(raw).SerializePartialToString(deterministic=True) for raw in messages]
    assert again == canonical


@pytest.mark.parametrize("leaves", [STRUCTURED, (*STRUCTURED, "any")], ids=["by column", "with open parts"])
@PROPERTY
@given(data=st.data())
def test_json(leaves: tuple[str, ...], data: st.DataObject) -> None:
    node, written, messages = data.draw(json_recordings(leaves))
    schema = json.dumps(schema_of(node)).encode()
    decoder = JsonDecoder("T", schema)
    again = encoded("json", "jsonschema", "T", schema, decoded(decoder, messages))
    assert None not in again
    assert decoded(decoder, [raw or b"" for raw in again]).to_pylist() == written


def test_idl_and_wide_texts() -> None:
    idl = b"module p { module msg { struct T { long x; wstring w; sequence<double> s; }; }; };"
    structs = pa.array([{"x": 7, "w": "h\u00e9\U0001d11e", "s": [1.0]}, {"x": -1, "w": "", "s": []}])
    structs = structs.cast(IdlDecoder("p::msg::T", idl).datatype)
    messages = encoded("cdr", "omgidl", "p::msg::T", idl, structs)
    assert decoded(IdlDecoder("p::msg::T", idl), [raw or b"" for raw in messages]) == structs


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([{"x": 1, "s": "a"}, {"x": None, "s": "b"}], pa.struct([("x", pa.int32()), ("s", pa.string())])),
        ([{"x": 1, "s": "a"}, {"x": 2, "s": None}], pa.struct([("x", pa.int32()), ("s", pa.string())])),
        ([{"x": 1, "s": "a"}, None], pa.struct([("x", pa.int32()), ("s", pa.string())])),
        ([{"x": 1, "s": "a"}, {"x": None, "s": "b"}], pa.struct([("x", pa.int64()), ("s", pa.string())])),
    ],
)
@pytest.mark.parametrize(("encoding", "schema"), [("cdr", "ros2msg"), ("ros1", "ros1msg")])
def test_a_struct_with_a_null_has_no_message_of_ros(rows: Any, kind: Any, encoding: str, schema: str) -> None:
    first, second = encoded(encoding, schema, "p/T", b"int32 x\nstring s", pa.array(rows, kind))
    assert first is not None
    assert second is None


@pytest.mark.parametrize(
    "structs",
    [
        pa.array([{"x": 1, "y": 2}]),
        pa.array([{"y": 2}]),
        pa.array([{"x": "text"}]),
        pa.array([{"x": 1 << 40}]),
        pa.array([{"x": [1]}]),
        pa.array([1]),
    ],
    ids=["more fields", "other fields", "text", "too large", "list", "number"],
)
@pytest.mark.parametrize(
    ("encoding", "schema", "definition"),
    [
        ("cdr", "ros2msg", b"int32 x"),
        ("ros1", "ros1msg", b"int32 x"),
        ("protobuf", "protobuf", None),
        ("json", "jsonschema", b'{"type":"object","properties":{"x":{"type":"integer"}}}'),
    ],
)
def test_other_structs_than_those_of_the_schema_have_no_message(
    structs: pa.Array, encoding: str, schema: str, definition: bytes | None
) -> None:
    if definition is None:
        from google.protobuf import descriptor_pb2

        file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")
        file.message_type.add(name="M").field.add(name="x", number=1, type=5, label=1)
        definition = file_set(file)
    if encoding == "json" and structs.type == pa.struct([("x", pa.int64())]):
        return  # an integer of JSON has 64 bits
    assert encoded(encoding, schema, "t.M", definition, structs) == [None]


@pytest.mark.parametrize(
    ("encoding", "schema", "definition"),
    [("flatbuffer", "flatbuffer", b""), ("cbor", "jsonschema", b"{}"), ("cdr", "ros2msg", b"no definition !")],
)
def test_nothing_is_encoded_without_a_writer_or_a_definition(encoding: str, schema: str, definition: bytes) -> None:
    assert struct_encoder("t.M", schema, definition, encoding) is None
