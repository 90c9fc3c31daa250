"""Which decoder takes the messages of a channel, by the encodings of its schema and its messages."""

from __future__ import annotations

import struct
import warnings
from pathlib import Path

import cbor2
import pytest
import zstandard
from chunkmill.engine.chunk import Chunk
from chunkmill.engine.errors import ReadWarning
from chunkmill.readers import McapReader, Rosbag2Reader
from mcap_bytes import channel, chunks_of, mcap, message, schema, written
from places import recordings

FLAT_SCHEMA = bytes.fromhex(
    """
    180000004246425300000e0012000c0008000000000004000e00000014000000200000002000000000000600080004000600
    00000400000003000000702e540000000000010000001400000000000e00140010000c000b00000004000e00000000000000
    00000000080000007400000001000000240000002000240020001c001a001800100008000700000000000000000006000000
    05002000000000000000000000000000000000000000000000000400000014000000200000000c0010000f000e0008000600
    0c00000000000000ffffffff00000007010000007800000003000000702e5400
    """
)
"""A binary schema of ``table p.T { x:int; }``."""

FLAT = bytes.fromhex("0c00000000000600080004000600000007000000")
JSON_SCHEMA = b'{"type":"object","properties":{"x":{"type":"integer"}}}'
IDL = b"module p { module msg { struct T { long x; }; }; };"
CDR = b"\0\1\0\0" + struct.pack("<i", 7)

CASES = [
    ("p/msg/T", "ros2msg", b"int32 x", "cdr", CDR, "p.msg.T:message"),
    ("p/msg/T", "ros2msg", b"int32 x", "CDR", zstandard.compress(CDR), "p.msg.T:message"),
    ("p/srv/S_Request", "ros2msg", b"int32 x\n---\n", "cdr", CDR, "p.srv.S_Request:message"),
    ("p/msg/T", "ros2idl", IDL, "cdr", CDR, "p.msg.T:message"),
    ("p::msg::T", "omgidl", IDL, "cdr", CDR, "p.msg.T:message"),
    ("p/T", "ros1msg", b"int32 x", "ros1", CDR[4:], "p.T:message"),
    ("p.T", "jsonschema", JSON_SCHEMA, "json", b'{"x":7}', "p.T:message"),
    ("p.T", "jsonschema", JSON_SCHEMA, "cbor", cbor2.dumps({"x": 7}), "p.T:message"),
    ("p.T", "flatbuffer", FLAT_SCHEMA, "flatbuffer", FLAT, "p.T:message"),
]
OF_ROS = {"ros2msg", "ros2idl", "omgidl", "ros1msg"}


def recording(folder: Path, name: str, kind: str, data: bytes, encoding: str, raw: bytes) -> Path:
    parts = [schema(1, name, kind, data), channel(1, "/t", encoding, 1), message(1, 5, raw)]
    return written(folder, mcap(parts))


def components(path: Path, *decoders: str) -> dict[str, object]:
    """Component and value of the one message; nothing where nobody takes it."""
    chosen = {"decoders": list(decoders)} if decoders else {}
    chunks = chunks_of(path, **chosen)
    return {name: chunk.to_record_batch().column(name).to_pylist()[0][0] for chunk in chunks for name in names(chunk)}


def names(chunk: Chunk) -> list[str]:
    return [component.descriptor.component for component in chunk.header.components]


@pytest.mark.parametrize(("name", "kind", "data", "encoding", "raw", "component"), CASES)
def test_a_message_is_decoded_by_its_schema(
    tmp_path: Path, name: str, kind: str, data: bytes, encoding: str, raw: bytes, component: str
) -> None:
    path = recording(tmp_path, name, kind, data, encoding, raw)
    assert components(path) == {component: {"x": 7}}
    identifier = "ros2_reflection" if kind in OF_ROS else "protobuf"
    other = "protobuf" if kind in OF_ROS else "ros2_reflection"
    assert components(path, identifier) == {component: {"x": 7}}
    assert components(path, other) == {}
    assert components(path, other, "raw") == {"McapMessage:data": list(raw)}
    assert components(path, "raw") == {"McapMessage:data": list(raw)}


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    ("encoding", "raw", "found"),
    [
        ("json", b'{"a": [1]}', {"json:message": '{"a": [1]}'}),
        ("cbor", cbor2.dumps({"a": [1]}), {"cbor:message": '{"a":[1]}'}),
    ],
)
def test_what_describes_itself_needs_no_schema(
    tmp_path: Path, number: int, encoding: str, raw: bytes, found: dict[str, str]
) -> None:
    parts = [schema(1, "", "", b""), channel(1, "/t", encoding, number), message(1, 5, raw)]
    assert components(written(tmp_path, mcap(parts))) == found


@pytest.mark.parametrize(("name", "kind", "data", "encoding", "raw", "component"), CASES)
def test_a_schema_that_cannot_be_used_costs_its_channel_only(
    tmp_path: Path, name: str, kind: str, data: bytes, encoding: str, raw: bytes, component: str
) -> None:
    parts = [
        schema(1, name, kind, b"][ ~~~"),
        schema(2, name, kind, data),
        channel(1, "/bad", encoding, 1),
        channel(2, "/good", encoding, 2),
        message(1, 5, raw),
        message(2, 5, raw),
    ]
    with pytest.warns(ReadWarning, match="cannot be used"):
        assert components(written(tmp_path, mcap(parts))) == {"McapMessage:data": list(raw), component: {"x": 7}}


@pytest.mark.parametrize("case", CASES[3:], ids=lambda case: case[1])
def test_a_damaged_message_comes_out_raw_beside_the_others(
    tmp_path: Path, case: tuple[str, str, bytes, str, bytes, str]
) -> None:
    name, kind, data, encoding, raw, component = case
    parts = [schema(1, name, kind, data), channel(1, "/t", encoding, 1), message(1, 5, raw), message(1, 6, raw[:-2])]
    with pytest.warns(ReadWarning, match="1 messages could not be decoded"):
        found = components(written(tmp_path, mcap(parts)))
    assert found == {component: {"x": 7}, "McapMessage:data": list(raw[:-2])}


def test_other_encodings_stay_raw(tmp_path: Path) -> None:
    for number, (kind, encoding) in enumerate([("ros1msg", "cdr"), ("jsonschema", "ros1"), ("", "cdr"), ("x", "json")]):
        parts = [schema(1, "p/T", kind, b"int32 x"), channel(1, "/t", encoding, 1), message(1, 5, b"\1\2")]
        path = written(tmp_path, mcap(parts), f"{number}.mcap")
        assert components(path) == {"McapMessage:data": [1, 2]}


DECODED = {
    "asam-osi-converter__only_osi_topic.mcap": {"osi_3_msgs.osi_GroundTruth:message"},
    "depthai-core__recording.mcap": {"video:message"},
    "mcap-encrypt__sample.mcap": {"Sensor:message", "Cmd:message"},
    "open-world-agents__0.5.1.mcap": {
        f"desktop.{n}:message"
        for n in ("WindowInfo", "KeyboardState", "MouseState", "ScreenCaptured", "KeyboardEvent", "MouseEvent")
    },
    "rosbag2__only_services.mcap": {"example_interfaces.srv.AddTwoInts_Event:message"},
    "flatbuffer_pose_in_frame.mcap": {"foxglove.PoseInFrame:message"},
    "amber__soccer_goal_12.aae77a.mcap": {"sensor_msgs.Image:message"},
}


@pytest.mark.parametrize("path", recordings(*(f"mcap/**/{name}" for name in DECODED)))
def test_recordings_that_came_out_raw_elsewhere(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ReadWarning)
        chunks = chunks_of(path, decoders=["ros2_reflection", "protobuf", "raw"])
    found = {name for chunk in chunks for name in names(chunk)}
    assert found == DECODED[path.name]


def warned_of(path: Path) -> list[str]:
    """The warnings of messages that are longer than their definition."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        source = (Rosbag2Reader if path.suffix == ".db3" else McapReader)(path).source()
        for split in source.splits():
            list(source.read(split))
    return [str(w.message) for w in caught if "longer than their definition" in str(w.message)]


LONGER = {"rosbag2__talker.db3": 171, "rob_bad_cdr.mcap": 8}
"""Real and made files of messages with more fields than their definition has, and the bytes of these."""


@pytest.mark.parametrize(
    "path",
    recordings(
        "rosbag2/*.db3", "mcap/*ros*.mcap", "mcap/*cdr*.mcap", "generated/*ros2*.mcap", "generated/rob_bad_cdr.mcap"
    ),
)
def test_of_real_messages_only_those_of_another_version_are_longer(path: Path) -> None:
    expected = LONGER.get(path.name)
    texts = warned_of(path)
    assert len(texts) == (1 if expected else 0), texts
    assert all(f"{expected} are not read" in text for text in texts)


def test_messages_longer_than_their_definition_are_said_once(tmp_path: Path) -> None:
    """Once for a topic, however many messages and chunks there are, also where one field is read."""
    fields = [message(1, n, CDR + bytes(4 + n % 2)) for n in range(3000)]
    path = written(tmp_path, mcap([schema(1, "p/msg/T", "ros2msg", b"int32 x"), channel(1, "/t", "cdr", 1), *fields]))
    (text,) = warned_of(path)
    assert "topic /t: messages are longer than their definition, p.msg.T; only its fields are read" in text
    assert "The first has 12 bytes, of which 4 are not read" in text and "types=" in text
    with pytest.warns(ReadWarning, match="longer than their definition") as caught:
        McapReader(path).frame("/t")
    assert len(caught) == 1
