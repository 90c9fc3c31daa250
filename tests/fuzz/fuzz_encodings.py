"""Messages of the encodings that a recording may hold beside CDR with ``ros2msg`` and protobuf."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator

import cbor2
import flatbuffers
import zstandard
from mcap.writer import Writer

_SCHEMA = {
    "type": "object",
    "properties": {
        "number": {"type": "number"},
        "words": {"type": "array", "items": {"type": "string"}},
        "blob": {"type": "string", "contentEncoding": "base64"},
        "rest": {},
    },
}
_ROS1 = b"Header header\nfloat64[] values\nK[] keys\n" + b"=" * 80 + b"\nMSG: std_msgs/Header\nuint32 seq\ntime stamp\n"
_ROS1 += b"string frame_id\n" + b"=" * 80 + b"\nMSG: fuzz_msgs/K\nstring key\nbool on\n"
_IDL = b"""IDL: fuzz_msgs/msg/Pose
module fuzz_msgs { module msg {
  enum Mode { OFF, ON };
  typedef float float__3[3];
  struct Pose { float__3 at; Mode mode; sequence<string<8>, 4> names; octet raw; };
}; };
"""
_SERVICE = b"int64 a\nint64 b\n---\nint64 sum\n"


def encoded_messages(writer: Writer, count: int) -> Iterator[tuple[int, bytes]]:
    """Registers a channel for each encoding; gives ``count`` messages as (channel, data), in turn."""
    declared = json.dumps(_SCHEMA).encode()
    closed = json.dumps({"properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}).encode()
    ids = [
        _channel(writer, "/json", "json", "fuzz.Json", "jsonschema", declared),
        _channel(writer, "/columns", "json", "fuzz.Columns", "jsonschema", closed),
        writer.register_channel("/text", "json", 0),
        _channel(writer, "/cbor", "cbor", "fuzz.Cbor", "jsonschema", declared),
        _channel(writer, "/ros1", "ros1", "fuzz_msgs/Ros1", "ros1msg", _ROS1),
        _channel(writer, "/idl", "cdr", "fuzz_msgs/msg/Pose", "ros2idl", _IDL),
        _channel(writer, "/event", "cdr", "fuzz_msgs/srv/Add_Event", "ros2msg", _SERVICE),
        _channel(writer, "/packed", "cdr", "fuzz_msgs/msg/Packed", "ros2msg", b"uint32 n\nuint32[] values"),
        _channel(writer, "/flat", "flatbuffer", "Type", "flatbuffer", _reflected()),
    ]
    for number in range(count):
        yield ids[number % len(ids)], _message(number % len(ids), number)


def _channel(writer: Writer, topic: str, encoding: str, name: str, kind: str, data: bytes) -> int:
    return writer.register_channel(topic, encoding, writer.register_schema(name, kind, data))


def _message(kind: int, i: int) -> bytes:
    value = {"number": i / 3, "words": [f"word {i} é", ""], "rest": {"a": [i, None]}}
    if kind == 0:
        return json.dumps({**value, "blob": "AAEC"}).encode()
    if kind == 1:
        return b'{"n":%d,"s":"x"}' % i
    if kind == 2:
        return json.dumps([value]).encode()
    if kind == 3:
        return cbor2.dumps({**value, "blob": bytes(range(9))})
    if kind == 4:
        head = struct.pack("<IIII", i, 7, i, 3) + b"map"
        return head + struct.pack("<IddI", 2, i, 0.5, 1) + struct.pack("<I2sB", 2, b"on", 1)
    cdr = b"\0\1\0\0"
    if kind == 5:
        return cdr + struct.pack("<3fiII3sB", i, 1, 2, 1, 1, 3, b"ab\0", 9)
    if kind == 6:
        info = struct.pack("<BxxxiI16sxxxxq", i % 4, i, 8, bytes(range(16)), i)
        return cdr + info + struct.pack("<IxxxxqqI", 1, i, 5, 0)
    if kind == 7:
        return zstandard.compress(cdr + struct.pack("<II3I", i, 3, i, i, i))
    builder = flatbuffers.Builder(32)
    builder.StartObject(3)
    builder.PrependInt8Slot(0, i % 9 + 1, 0)
    builder.PrependInt32Slot(2, i, -1)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


def _reflected() -> bytes:
    """A binary schema of one table, ``Type``, of small numbers and a name."""
    builder = flatbuffers.Builder(256)
    kinds = (("base_type", 3), ("name", 13), ("index", 7))
    fields = [_field(builder, name, number, kind) for number, (name, kind) in enumerate(kinds)]
    vector = _vector(builder, fields)
    name = builder.CreateString("Type")
    builder.StartObject(5)
    builder.PrependUOffsetTRelativeSlot(0, name, 0)
    builder.PrependUOffsetTRelativeSlot(1, vector, 0)
    objects, enums = _vector(builder, [builder.EndObject()]), _vector(builder, [])
    builder.StartObject(5)
    builder.PrependUOffsetTRelativeSlot(0, objects, 0)
    builder.PrependUOffsetTRelativeSlot(1, enums, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"BFBS")
    return bytes(builder.Output())


def _field(builder: flatbuffers.Builder, name: str, number: int, kind: int) -> int:
    text = builder.CreateString(name)
    builder.StartObject(1)
    builder.PrependInt8Slot(0, kind, 0)
    type_ = builder.EndObject()
    builder.StartObject(4)
    builder.PrependUOffsetTRelativeSlot(0, text, 0)
    builder.PrependUOffsetTRelativeSlot(1, type_, 0)
    builder.PrependUint16Slot(2, number, 0)
    builder.PrependUint16Slot(3, 4 + 2 * number, 0)
    return int(builder.EndObject())


def _vector(builder: flatbuffers.Builder, offsets: list[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())
