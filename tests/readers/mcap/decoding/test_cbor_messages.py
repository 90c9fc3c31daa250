"""CBOR messages: values that come back, what becomes of tags and bytes, and messages that are wrong."""

from __future__ import annotations

import json
import time
from typing import Any

import cbor2
import numpy as np
import pytest
from cdr_writer import join
from chunkmill.readers.mcap.decoding import CborDecoder
from chunkmill.readers.mcap.decoding.json import JsonDecoder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from json_values import records, sayable, schema_of, values

PROPERTY = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@PROPERTY
@given(st.data())
def test_values_come_back_as_from_json(data: st.DataObject) -> None:
    node = data.draw(records())
    written = data.draw(st.lists(values(node), max_size=6))
    schema = json.dumps(schema_of(node)).encode()
    messages = [cbor2.dumps(sayable(node, value, json.loads, binary=True)) for value in written]
    decoded = CborDecoder("T", schema).decode(*join(messages))
    decoded.values.validate(full=True)
    assert decoded.values.to_pylist() == written
    texts = [json.dumps(sayable(node, value, json.loads)).encode() for value in written]
    assert decoded.values.equals(JsonDecoder("T", schema).decode(*join(texts)).values)


@PROPERTY
@given(st.lists(st.binary(max_size=12), max_size=8))
def test_any_bytes_are_either_decoded_or_bad(messages: list[bytes]) -> None:
    for schema in (b"", b'{"properties":{"a":{"type":"integer"},"b":{}}}'):
        decoded = CborDecoder("T", schema).decode(*join(messages))
        decoded.values.validate(full=True)
        assert len(decoded.values) + len(decoded.bad) == len(messages)
        assert len(decoded.reasons) == len(decoded.bad)


def test_without_a_schema_messages_become_json() -> None:
    decoder = CborDecoder("", b"")
    assert decoder.descriptor.component == "cbor:message"
    given: list[Any] = [{"a": [1, None, 2.5], "b": b"\0\1"}, [True, "é"], 3, None, {"u": cbor2.undefined}]
    decoded = decoder.decode(*join(cbor2.dumps(value) for value in given))
    assert decoded.values.to_pylist() == [
        '{"a":[1,null,2.5],"b":"AAE="}',
        '[true,"é"]',
        "3",
        "null",
        '{"u":null}',
    ]


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("c11a5f5e1000", "1600000000"),  # a time stays the number it is
        ("c06a323032302d30312d3031", '"2020-01-01"'),
        ("d823627829", '"x)"'),  # an expression is not compiled
        ("c5822003", "[-1,3]"),
        ("d8638101", "[1]"),
        ("d9d9f701", "1"),
        ("c249010000000000000000", "18446744073709551616"),
        ("9f01ff", "[1]"),
        ("fb7ff0000000000000", "Infinity"),
    ],
)
def test_tags(raw: str, value: str) -> None:
    assert CborDecoder("", b"").decode(*join([bytes.fromhex(raw)])).values.to_pylist() == [value]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("", "not CBOR"),
        ("0102", "there are more"),
        ("a2616101616101", "Duplicate"),
        ("61ff", "not CBOR"),
        ("a10102", "not CBOR"),
        ("e0", "CBORSimpleValue"),
        ("81" * 100_000, "depth"),
        ("d81c81d81d00", "refers|not CBOR"),
        ("9bffffffffffffffff", "not CBOR"),
        ("5b7fffffffffffffff", "not CBOR"),
        ("bb7fffffffffffffff", "not CBOR"),
        ("c5821a7fffffff01" + "00", "there are more"),
    ],
)
def test_bad_messages(raw: str, reason: str) -> None:
    good = cbor2.dumps({"a": 1})
    decoded = CborDecoder("", b"").decode(*join([good, bytes.fromhex(raw), good]))
    assert decoded.bad.tolist() == [1]
    assert any(part in decoded.reasons[0] for part in reason.split("|")), decoded.reasons


def test_what_a_schema_declares_otherwise_is_bad() -> None:
    schema = b'{"properties":{"i":{"type":"integer"},"s":{"type":"string"}}}'
    given: list[Any] = [{"i": 2**63}, {"i": "x"}, {"s": b"x"}, {"t": 1}, [], {"i": 1}]
    decoded = CborDecoder("T", schema).decode(*join(cbor2.dumps(value) for value in given))
    assert decoded.bad.tolist() == [0, 1, 2, 3, 4]
    assert decoded.values.to_pylist() == [{"i": 1, "s": None}]


def test_maps_with_few_of_many_properties_take_no_memory() -> None:
    fields = {f"f{i}": {"type": "integer"} for i in range(200)}
    schema = json.dumps({"properties": {"l": {"items": {"properties": fields}}}}).encode()
    bomb = b"\xa1\x61l\x9a\x00\x04\x00\x00" + b"\xa0" * (1 << 18)
    decoded = CborDecoder("T", schema).decode(*join([cbor2.dumps({"l": [{}, {"f1": 2}]}), bomb]))
    assert decoded.bad.tolist() == [1]
    assert "fewer properties" in decoded.reasons[0]


def test_many_small_values_take_no_memory() -> None:
    bomb = b"\x9a\x00\x80\x00\x00" + b"\x80" * (1 << 23)
    data = np.frombuffer(bomb, np.uint8)
    began = time.monotonic()
    decoded = CborDecoder("", b"").decode(data, np.array([0]), np.array([len(bomb)]))
    assert time.monotonic() - began < 5
    assert "more values" in decoded.reasons[0]
    large = cbor2.dumps({"image": bytes(3 << 20)})
    schema = b'{"properties":{"image":{"type":"string","contentEncoding":"base64"}}}'
    assert len(CborDecoder("T", schema).decode(*join([large])).values[0]["image"].as_py()) == 3 << 20
