"""JSON messages: what a schema declares, values that come back, and messages that are not what it declares."""

from __future__ import annotations

import binascii
import json
import time
from typing import Any

import pyarrow as pa
import pytest
from cdr_writer import join
from chunkmill.engine.limits import MAX_NESTING, MAX_SCHEMA_FIELDS
from chunkmill.readers.mcap.decoding import Decoded, JsonDecoder, SchemaError
from chunkmill.readers.mcap.decoding import json as module
from chunkmill.readers.mcap.decoding.json import JsonNode, from_base64, parse_json_schema
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from json_values import records, sayable, schema_of, values

PROPERTY = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
STRUCTURED = ("integer", "unsigned", "number", "boolean", "string", "base64")


def decoder(**properties: Any) -> JsonDecoder:
    return JsonDecoder("T", json.dumps({"type": "object", "properties": properties}).encode())


def arrow(schema: Any) -> str:
    return str(parse_json_schema("T", json.dumps(schema).encode()).arrow)


@st.composite
def recordings(draw: st.DrawFn, leaves: tuple[str, ...]) -> tuple[JsonNode, list[Any], list[bytes]]:
    """A type, values of it, and the messages that say them."""
    node = draw(records(leaves=leaves))
    written = draw(st.lists(values(node), max_size=6))
    spaces = draw(st.sampled_from([None, 1]))
    return node, written, [json.dumps(sayable(node, v, json.loads), indent=spaces).encode() for v in written]


def same(one: Decoded, other: Decoded) -> None:
    one.values.validate(full=True)
    assert one.bad.tolist() == other.bad.tolist()
    assert one.reasons == other.reasons
    assert repr(one.values.to_pylist()) == repr(other.values.to_pylist())


@pytest.mark.parametrize("leaves", [STRUCTURED, (*STRUCTURED, "any")], ids=["by column", "with open parts"])
@PROPERTY
@given(data=st.data())
def test_values_come_back(leaves: tuple[str, ...], data: st.DataObject) -> None:
    node, written, messages = data.draw(recordings(leaves))
    subject = JsonDecoder("T", json.dumps(schema_of(node)).encode())
    assert subject.datatype == node.arrow
    decoded = subject.decode(*join(messages))
    same(decoded, subject.decode_plain(*join(messages)))
    assert decoded.values.to_pylist() == written
    assert not len(decoded.bad)


@PROPERTY
@given(recordings(STRUCTURED), st.data())
def test_damage_is_found_by_both(recording: tuple[JsonNode, list[Any], list[bytes]], data: st.DataObject) -> None:
    node, _, messages = recording
    damaged = []
    for raw in messages:
        changed = bytearray(raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw)
        for _ in range(data.draw(st.integers(0, 2))):
            at = data.draw(st.integers(0, len(changed)))
            changed[at : at + data.draw(st.integers(0, 1))] = data.draw(
                st.sampled_from(
                    [b"{", b"}", b'"', b",", b":", b"\n", b"0", b"-", b"\xff", b"\0", b"a", b"1e999", b"]["]
                )
            )
        damaged.append(bytes(changed))
    subject = JsonDecoder("T", json.dumps(schema_of(node)).encode())
    decoded = subject.decode(*join(damaged))
    same(decoded, subject.decode_plain(*join(damaged)))
    same(decoded, subject.decode(*join(damaged, gap=b"")))


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "integer"}, "int64"),
        ({"type": "integer", "minimum": 0, "maximum": 255}, "int64"),
        ({"type": ["integer", "number", "null"]}, "double"),
        ({"enum": ["a", "b", None]}, "string"),
        ({"enum": [1, 2]}, "int64"),
        ({"enum": [1, 2.5]}, "double"),
        ({"enum": [1, "a"]}, "string"),
        ({"const": True}, "bool"),
        ({"oneOf": [{"title": "A", "const": 0}, {"const": 1}]}, "int64"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "int64"),
        ({"anyOf": [{"type": "integer"}, {"type": "number"}]}, "double"),
        ({"type": "string", "oneOf": [{"minLength": 1}, {"pattern": "x"}]}, "string"),
        ({"type": "array", "items": {"type": "integer"}}, "list<item: int64>"),
        ({"items": {"type": "string"}}, "list<item: string>"),
        ({"type": "array", "prefixItems": [{"type": "integer"}] * 2}, "list<item: int64>"),
        ({"type": "array", "items": [{"type": "number"}, {"type": "integer"}]}, "list<item: double>"),
        ({"type": "array"}, "list<item: string>"),
        ({"properties": {"x": {"type": "number"}}}, "struct<x: double>"),
        ({"$ref": "#/$defs/P", "$defs": {"P": {"properties": {"x": {"type": "null"}}}}}, "struct<x: string>"),
        (
            {"allOf": [{"$ref": "#/definitions/a~1b"}], "definitions": {"a/b": {"type": "boolean"}}},
            "bool",
        ),
        (
            {"allOf": [{"properties": {"x": {"type": "number"}}}], "properties": {"y": {}}},
            "struct<x: double, y: string>",
        ),
        ({"type": "object"}, "string"),
        (True, "string"),
        ({"$ref": "https://example.org/schema"}, "string"),
        (
            {"properties": {"next": {"$ref": "#"}, "v": {"type": "integer"}}},
            "struct<next: struct<next: string, v: int64>, v: int64>",
        ),
        (
            {"properties": {"x": {"type": "integer"}}, "additionalProperties": True},
            "struct<x: int64, additionalProperties: string>",
        ),
        ({"properties": {"x": {"type": "integer"}}, "additionalProperties": False}, "struct<x: int64>"),
    ],
)
def test_types(schema: Any, kind: str) -> None:
    assert arrow(schema) == kind


def test_names() -> None:
    assert JsonDecoder("sensor_msgs/Imu", b"{}").descriptor.component == "sensor_msgs.Imu:message"
    assert JsonDecoder("", b"").descriptor.component == "json:message"
    assert JsonDecoder("", b"").descriptor.archetype == "json"


def test_without_a_schema_messages_stay_text() -> None:
    messages = [b'{"a": 1}', b" [1,2] ", b"null", b"3", b'{"a":', b"", b"\xff", b"[1e999,NaN]"]
    decoded = JsonDecoder("", b"").decode(*join(messages))
    assert decoded.values.to_pylist() == ['{"a": 1}', " [1,2] ", "null", "3", "[1e999,NaN]"]
    assert decoded.bad.tolist() == [4, 5, 6]


def test_what_an_open_object_has_beyond_its_properties_is_kept() -> None:
    schema = {"properties": {"x": {"type": "integer"}}, "additionalProperties": {"type": "number"}}
    decoded = JsonDecoder("T", json.dumps(schema).encode()).decode(
        *join([b'{"x":1}', b'{"y":[2],"x":3,"z":"\xc3\xa9"}'])
    )
    assert decoded.values.to_pylist() == [
        {"x": 1, "additionalProperties": None},
        {"x": 3, "additionalProperties": '{"y":[2],"z":"é"}'},
    ]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b'{"i":1,"i":1}', "twice"),
        (b'{"i":1,"other":2}', "does not declare its property 'other'"),
        (b'{"i":9223372036854775808}', "does not fit"),
        (b'{"i":' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"i":1.5}', "1.5, but an integer"),
        (b'{"i":true}', "True, but an integer"),
        (b'{"n":"1"}', "n: '1', but a number"),
        (b'{"n":1e999}', "too large"),
        (b'{"n":' + b"9" * 400 + b"}", "too large"),
        (b'{"s":1}', "1, but a string"),
        (b'{"s":"\xff"}', "UTF-8"),
        (b'{"s":"\\ud800"}', "surrogate"),
        (b'{"s":"a\nb"}', "not JSON"),
        (b'{"b":"AA="}', "b: the text is not base64"),
        (b'{"l":{"0":1}}', "an array is declared"),
        (b"[]", "an object is declared"),
        (b"", "not JSON"),
        (b"{}{}", "not JSON"),
        (b'{"i":1},{"i":2}', "not JSON"),
        (b'{"i":1}}\n{"m":{"i":2}', "not JSON"),
        (b'1},"m":{"i":2', "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"s":' + b"[" * 100_000, "nested too deeply"),
        (b'{"l":' + b"[" * 500 + b"]" * 500 + b"}", "but a number"),
    ],
)
def test_bad_messages(message: bytes, reason: str) -> None:
    subject = decoder(
        i={"type": "integer"},
        n={"type": "number"},
        s={"type": "string"},
        b={"type": "string", "contentEncoding": "base64"},
        l={"type": "array", "items": {"type": "number"}},
    )
    good = b'{"i":1}'
    for several in ([good, message, good], [message, b"", message], [good] * 200 + [message]):
        decoded = subject.decode(*join(several))
        same(decoded, subject.decode_plain(*join(several)))
        assert decoded.bad.tolist() == [i for i, raw in enumerate(several) if raw != good]
        assert any(reason in text for text in decoded.reasons), decoded.reasons


@given(st.text("AZaz09+/=-_ \n\u00e9", max_size=12))
@example("QQ==")
@example("QR==")  # its last bits are not zero
@example("QUI")
@example("QUJD====")
def test_base64_is_what_the_standard_library_takes(text: str) -> None:
    try:
        expected = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            from_base64(text)
    else:
        assert from_base64(text) == expected


def test_what_many_write_is_understood() -> None:
    subject = decoder(i={"type": "integer"}, n={"type": "number"})
    messages = [b'{"i":1.0,"n":NaN}', b'{"i":1e3,"n":-Infinity}', b'{"i":null}', b"null"]
    decoded = subject.decode(*join(messages))
    assert not len(decoded.bad)
    assert repr(decoded.values.to_pylist()) == repr(
        [{"i": 1, "n": float("nan")}, {"i": 1000, "n": float("-inf")}, {"i": None, "n": None}, None]
    )


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (b"{", "not JSON"),
        (b"[]", "neither"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"$ref":"#/nowhere"}', "missing definition"),
        (b'{"properties":{"\\ud800":{}}}', "not text"),
        (b'{"properties":{"additionalProperties":{}},"additionalProperties":true}', "undeclared properties"),
        (b'{"items":' * (MAX_NESTING + 1) + b"{}" + b"}" * (MAX_NESTING + 1), "levels"),
        (b" " * (17 << 20), "too many"),
    ],
)
def test_refused(schema: bytes, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        parse_json_schema("T", schema)


def test_a_schema_cannot_grow_without_bound() -> None:
    definitions = {f"T{i}": {"properties": {p: {"$ref": f"#/$defs/T{i + 1}"} for p in "ab"}} for i in range(24)}
    schema = {"$ref": "#/$defs/T0", "$defs": {**definitions, "T24": {"type": "integer"}}}
    began = time.monotonic()
    with pytest.raises(SchemaError, match=f"{MAX_SCHEMA_FIELDS:,} fields"):
        parse_json_schema("T", json.dumps(schema).encode())
    assert time.monotonic() - began < 5


@pytest.mark.heavy
def test_many_fields_in_many_messages_take_no_memory() -> None:
    subject = decoder(**{f"f{i}": {"type": "integer"} for i in range(60_000)})
    decoded = subject.decode(*join([b"{}"] * 2000, gap=b""))
    assert len(decoded.bad) == 2000
    assert "too many fields" in decoded.reasons[0]


def test_objects_with_few_of_many_properties_take_no_memory() -> None:
    fields = {f"f{i}": {"type": "integer"} for i in range(200)}
    subject = decoder(l={"type": "array", "items": {"type": "object", "properties": fields}})
    bomb = b'{"l":[' + b"{}," * 300_000 + b"{}]}"
    some = b'{"l":[' + b'{"f7":1},' * 1000 + b"{}]}"
    began = time.monotonic()
    decoded = subject.decode(*join([some, bomb, some]))
    assert time.monotonic() - began < 5
    assert decoded.bad.tolist() == [1]
    assert "fewer properties" in decoded.reasons[0]
    same(subject.decode(*join([some])), subject.decode_plain(*join([some])))


def test_many_values_are_read_by_column_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chunkmill.readers.mcap.decoding.json._MOST_VALUES", 100)
    subject = decoder(l={"type": "array", "items": {"type": "integer"}})
    many = b"[" + b"1," * 150 + b"1]"
    messages = [b'{"l":%s}' % many, b'{"l":[]}', b'{"m":%s}' % many]
    decoded = subject.decode(*join(messages))
    assert decoded.bad.tolist() == [0, 2]
    assert "more values than allowed in" in decoded.reasons[0]
    assert not len(subject.decode(*join(messages[:2])).bad)


def test_few_odd_messages_leave_the_others_by_column(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []
    real = module._build_column
    monkeypatch.setattr(module, "_build_column", lambda *args: parsed.append(len(args[1])) or real(*args))
    decoded = decoder(i={"type": "integer"}).decode(*join([b'{"i":1}'] * 5000 + [b"{"] + [b'{"i":2}'] * 5000))
    assert decoded.bad.tolist() == [5000]
    assert sum(parsed) < 200
    assert decoded.values.field(0).to_pylist() == [1] * 5000 + [2] * 5000


def test_no_messages() -> None:
    assert decoder(i={"type": "integer"}).decode(*join([])).values == pa.array([], pa.struct([("i", pa.int64())]))


def test_a_boolean_where_a_number_is_declared_is_0_or_1() -> None:
    subject = decoder(n={"type": "number"}, l={"type": "array", "items": {"type": "number"}})
    messages = [b'{"n":true,"l":[false,2.5]}', b'{"n":1.5,"l":[true]}']
    for decoded in (subject.decode(*join(messages)), subject.decode_plain(*join(messages))):
        assert decoded.bad.tolist() == []
        assert decoded.values.to_pylist() == [{"n": 1.0, "l": [0.0, 2.5]}, {"n": 1.5, "l": [1.0]}]
