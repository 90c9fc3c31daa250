"""ROS 1: definitions, values that come back, damage that is found, and the library rosbags as the reference."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from cdr_writer import join, message_types, ros1_message, same, schema_text, values
from chunkmill.readers.mcap.decoding import Ros1Decoder, SchemaError, cdr_walk
from chunkmill.readers.mcap.decoding.columns import (
    PRIMITIVES,
    MessageType,
    Node,
    Primitive,
    SequenceType,
    Text,
)
from chunkmill.readers.mcap.decoding.ros import parse_ros1
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from ros1_plain import rosbag_plain
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

PROPERTY = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
RULE = "=" * 80


@pytest.fixture(params=[0, 24], ids=["together", "singly"])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """From how many rows on elements are found together: with 0, always."""
    monkeypatch.setattr(cdr_walk, "_FEW", max(request.param, 1))


def of_ros1(node: Any) -> Any:
    """The same type as ROS 1 has it: ``char`` and ``byte`` have other meanings, nothing fills empty messages."""
    if isinstance(node, SequenceType):
        return SequenceType(of_ros1(node.element), node.length)
    if isinstance(node, MessageType):
        return MessageType(node.name, tuple((name, of_ros1(child)) for name, child in node.fields), filled=False)
    if isinstance(node, Primitive):
        return {"char": PRIMITIVES["uint8"], "byte": PRIMITIVES["int8"]}.get(node.name, node)
    return node


def counts_nothing(node: Node) -> bool:
    """Whether an array in it has elements without a byte."""
    if isinstance(node, SequenceType):
        return not node.element.least or counts_nothing(node.element)
    return isinstance(node, MessageType) and any(counts_nothing(child) for _, child in node.fields)


@st.composite
def recordings(draw: st.DrawFn) -> tuple[MessageType, list[Any], list[bytes]]:
    """A type, values of it, and the messages that say them."""
    node = of_ros1(draw(message_types()))
    assume(not counts_nothing(node))
    written = draw(st.lists(values(node), max_size=6)) * draw(st.sampled_from([1, 1, 5]))
    return node, written, [ros1_message(node, value) for value in written]


@PROPERTY
@given(recordings())
def test_values_come_back(few: None, recording: tuple[MessageType, list[Any], list[bytes]]) -> None:
    node, written, messages = recording
    decoder = Ros1Decoder(node.name, schema_text(node))
    assert decoder.datatype == node.arrow
    decoded = decoder.decode(*join(messages))
    same(decoded, decoder.decode_plain(*join(messages)))
    assert decoded.values.to_pylist() == written
    assert not len(decoded.bad)


@PROPERTY
@given(recordings(), st.data())
def test_damage_is_found_by_both(
    few: None, recording: tuple[MessageType, list[Any], list[bytes]], data: st.DataObject
) -> None:
    node, _, messages = recording
    damaged = []
    for raw in messages:
        changed = bytearray(raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw)
        for _ in range(data.draw(st.integers(0, 2))):
            if changed:
                place = data.draw(st.integers(0, len(changed) - 1))
                changed[place] = data.draw(st.sampled_from([0, 1, 2, 5, 128, 255]))
        damaged.append(bytes(changed))
    decoder = Ros1Decoder(node.name, schema_text(node))
    decoded = decoder.decode(*join(damaged))
    same(decoded, decoder.decode_plain(*join(damaged)))
    same(decoded, decoder.decode(*join(damaged, gap=b"\0\0\0")))
    same(decoded, decoder.decode(*join(damaged, gap=b"")))


def field_lines(node: MessageType) -> bool:
    """Whether rosbags reads such a type: it knows no messages without fields."""
    if not node.fields:
        return False
    inner = [child.element if isinstance(child, SequenceType) else child for _, child in node.fields]
    return all(field_lines(child) for child in inner if isinstance(child, MessageType))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(recordings())
def test_rosbags_reads_the_same(recording: tuple[MessageType, list[Any], list[bytes]]) -> None:
    node, _, messages = recording
    assume(field_lines(node) and messages)
    text = schema_text(node).decode()
    store = get_typestore(Stores.EMPTY)
    store.register(get_types_from_msg(text, "p/msg/T"))
    read = [rosbag_plain(store.deserialize_ros1(raw, "p/msg/T"), store) for raw in messages]
    assert repr(Ros1Decoder("p/T", text.encode()).decode(*join(messages)).values.to_pylist()) == repr(read)


def test_names_of_ros1() -> None:
    text = f"Header header\ntime t\nduration d\nchar c\nbyte b\n{RULE}\nMSG: std_msgs/Header\nuint32 seq\ntime stamp"
    time, span = "struct<sec: uint32, nanosec: uint32>", "struct<sec: int32, nanosec: int32>"
    header = f"struct<seq: uint32, stamp: {time}>"
    assert str(parse_ros1("my/T", text.encode()).arrow) == (
        f"struct<header: {header}, t: {time}, d: {span}, c: uint8, b: int8>"
    )


def test_descriptor() -> None:
    decoder = Ros1Decoder("sensor_msgs/Imu", b"int8 x")
    assert decoder.descriptor.component == "sensor_msgs.Imu:message"
    assert decoder.descriptor.archetype == "sensor_msgs.Imu"


def test_texts_keep_what_they_end_with() -> None:
    raw = struct.pack("<I", 3) + b"ab\0"
    assert Ros1Decoder("p/T", b"string s").decode(*join([raw] * 20)).values.to_pylist() == [{"s": "ab\0"}] * 20


def test_messages_without_fields_are_empty() -> None:
    decoded = Ros1Decoder("std_msgs/Empty", b"").decode(*join([b"", b"", b"x"]))
    assert decoded.bad.tolist() == [2]
    assert decoded.values == pa.array([{}, {}], pa.struct([]))


@pytest.mark.parametrize("length", [1, 5])
def test_what_is_left_over_is_damage(length: int) -> None:
    decoded = Ros1Decoder("p/T", b"uint32 x").decode(*join([bytes(4)] * 10 + [bytes(4 + length)] * 10))
    assert decoded.bad.tolist() == list(range(10, 20))
    assert "continues" in decoded.reasons[0]


@pytest.mark.parametrize(
    ("text", "words"), [("wstring w", "wstring"), (f"p/E[] e\n{RULE}\nMSG: p/E\n", "are not supported")]
)
def test_refused(text: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        Ros1Decoder("p/T", text.encode())


def test_counts_take_no_memory() -> None:
    huge = struct.pack("<I", 0xFFFFFFFF)
    for text in (b"float64[] x", b"string[] x", b"string x"):
        decoded = Ros1Decoder("p/T", text).decode(*join([huge] * 3))
        assert decoded.bad.tolist() == [0, 1, 2]


def test_both_readers_read_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    node = MessageType("p/T", (("a", Text()), ("b", SequenceType(Text()))), filled=False)
    value = {"a": "x", "b": ["", "yz"]}
    decoder = Ros1Decoder("p/T", b"string a\nstring[] b")
    # Lengths that differ are read without a template, equal ones with it.
    for several in ([value] * 20, [{**value, "a": "x" * index} for index in range(20)]):
        messages = [ros1_message(node, one) for one in several]
        assert decoder.decode(*join(messages)).values.to_pylist() == several
