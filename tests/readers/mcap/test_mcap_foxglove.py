"""Foxglove's messages in MCAP files: protobuf, JSON, ROS 2; what becomes of those that have no such meaning."""

from __future__ import annotations

import base64
import json
import struct
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.chunk import Chunk
from chunkmill.engine.errors import ReadWarning
from chunkmill.readers import McapReader
from google.protobuf import descriptor_pb2
from google.protobuf.message import Message

from tests.readers.mcap.decoding.proto_types import F, file_set, message_class
from tests.readers.mcap.mcap_bytes import channel, chunk_of, chunks_of, mcap, message, schema, written

VIDEO = {"timestamp": 1, "frame_id": 2, "data": 3, "format": 4}
KINDS = {"timestamp": F.TYPE_MESSAGE, "data": F.TYPE_BYTES}
BOTH = ["protobuf", "foxglove"]
STRUCT = "foxglove.CompressedVideo:message"
LATEST = 2**63 - 1


def video_file(fields: dict[str, int]) -> descriptor_pb2.FileDescriptorProto:
    """A file that declares Foxglove's video message with these fields."""
    file = descriptor_pb2.FileDescriptorProto(name="f.proto", package="foxglove", syntax="proto3")
    stamp = file.message_type.add(name="Time")
    stamp.field.add(name="seconds", number=1, label=1, type=F.TYPE_INT64)
    stamp.field.add(name="nanos", number=2, label=1, type=F.TYPE_INT32)
    video = file.message_type.add(name="CompressedVideo")
    for name, number in fields.items():
        field = video.field.add(name=name, number=number, label=1, type=KINDS.get(name, F.TYPE_STRING))
        if name == "timestamp":
            field.type_name = ".foxglove.Time"
    return file


def recording(
    folder: Path, rows: Sequence[dict[str, Any]], fields: dict[str, int] = VIDEO, name: str = "foxglove.CompressedVideo"
) -> Path:
    """A file with video messages at ``/v``, at the log times 0, 1, …"""
    file = video_file(fields)
    kind = message_class(file, "foxglove.CompressedVideo")
    records = [schema(1, name, "protobuf", file_set(file)), channel(1, "/v", "protobuf", 1)]
    records += [message(1, i, filled(kind, row).SerializeToString()) for i, row in enumerate(rows)]
    return written(folder, mcap([chunk_of(records)]))


def filled(kind: type[Message], row: dict[str, Any]) -> Message:
    made: Any = kind()
    for key, value in row.items():
        if key == "timestamp":
            made.timestamp.seconds, made.timestamp.nanos = value
        else:
            setattr(made, key, value)
    whole: Message = made
    return whole


def frame(i: int, codec: str = "h264") -> dict[str, Any]:
    return {"timestamp": (10 + i, 5), "frame_id": "cam", "data": bytes([i]), "format": codec}


def shown(chunks: Sequence[Chunk]) -> list[tuple[list[str], dict[str, list[int]]]]:
    return [
        (
            [x.descriptor.component for x in c.data.components],
            {t.name: t.ticks.tolist() for t in c.data.timelines if t.name != "message_publish_time"},
        )
        for c in chunks
    ]


def warned(read: Callable[[], list[Chunk]]) -> tuple[list[Chunk], list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chunks = read()
    return chunks, [str(w.message) for w in caught if issubclass(w.category, ReadWarning)]


MAPPED = ["CoordinateFrame:frame", "VideoStream:codec", "VideoStream:sample"]


@pytest.mark.parametrize(
    ("decoders", "components"),
    [
        (BOTH, [MAPPED]),
        (["protobuf", "foxglove", "raw"], [MAPPED]),
        (["protobuf"], [[STRUCT]]),
        (["foxglove"], []),
        (["foxglove", "raw"], [["McapMessage:data"]]),
        ([], []),
    ],
)
def test_the_decoders_say_whether_messages_are_mapped(
    tmp_path: Path, decoders: list[str], components: list[list[str]]
) -> None:
    chunks = chunks_of(recording(tmp_path, [frame(0), frame(1)]), decoders=decoders)
    assert [names for names, _ in shown(chunks)] == components


def test_the_time_of_a_message_is_a_timeline_of_the_readers_type_with_its_offset(tmp_path: Path) -> None:
    path = recording(tmp_path, [frame(0), frame(1), {"format": "av1"}])
    (mapped,) = shown(chunks_of(path, decoders=BOTH))
    assert mapped[1] == {"message_log_time": [0, 1, 2], "timestamp": [10 * 10**9 + 5, 11 * 10**9 + 5, 0]}
    (chunk,) = chunks_of(path, decoders=BOTH, timeline_type="duration")
    assert {str(t.times.type) for t in chunk.data.timelines} == {"duration[ns]"}
    (moved,) = shown(chunks_of(path, decoders=BOTH, timestamp_offset_ns=7))
    assert moved[1]["timestamp"] == [10 * 10**9 + 12, 11 * 10**9 + 12, 7]


def test_messages_that_cannot_be_mapped_stay_as_decoded_and_are_counted(tmp_path: Path) -> None:
    rows = [frame(i, "mpeg4" if i % 10 == 3 else "VP9") for i in range(200)]
    path = recording(tmp_path, rows)
    chunks, said = warned(lambda: McapReader(path, decoders=BOTH).stream().to_chunks(executor="inline"))
    assert sorted(c.num_rows for c in chunks) == [20, 180]
    left = next(c for c in chunks if c.num_rows == 20)
    assert [v["data"][0] % 10 for (v,) in left.data.components[0].values.to_pylist()] == [3] * 20
    (text,) = said
    assert text.startswith(f"{path}: topic /v: 20 messages do not fit the mapping of their type, and remain structs")
    assert text.endswith("; the first: its format is not one of h264, h265, av1, vp8, vp9")


@pytest.mark.parametrize("bad", [{0}, {5}, {0, 9}, set(range(0, 100, 2)), set(range(100))], ids=len)
def test_messages_that_a_lens_fails_on_cost_the_others_little(tmp_path: Path, bad: set[int]) -> None:
    rows = [frame(i) | ({"timestamp": (LATEST, 0)} if i in bad else {}) for i in range(100)]
    chunks, said = warned(lambda: chunks_of(recording(tmp_path, rows), decoders=BOTH))
    assert len(chunks) <= 2
    structs = next(c for c in chunks if c.data.components[0].descriptor.component == STRUCT)
    kept = set(structs.data.timelines[0].ticks.tolist())
    assert kept >= bad
    assert kept == bad or len(bad) > 32
    assert sum(c.num_rows for c in chunks) == 100
    assert len({i for c in chunks for i in c.data.row_ids.to_pylist()}) == 100
    assert len(said) == 1
    assert f"{len(kept)} messages do not fit the mapping" in said[0]
    assert said[0].endswith("a time does not fit into 64 bits of nanoseconds")


@pytest.mark.parametrize("fields", [{"timestamp": 1, "frame_id": 2, "format": 4}, {"data": 3}, {"frame_id": 2}])
def test_messages_of_another_schema_of_that_name_stay_as_decoded(tmp_path: Path, fields: dict[str, int]) -> None:
    row = {key: value for key, value in frame(0).items() if key in fields}
    path = recording(tmp_path, [row] * 50, fields)
    chunks, said = warned(lambda: McapReader(path, decoders=BOTH).stream().to_chunks(executor="inline"))
    assert [(names, len(times["message_log_time"])) for names, times in shown(chunks)] == [([STRUCT], 50)]
    assert len(said) == 1
    assert "50 messages do not fit the mapping of their type" in said[0]


def test_fields_that_do_not_matter_may_be_missing(tmp_path: Path) -> None:
    fields = {"data": 3, "format": 4}
    path = recording(tmp_path, [{"data": b"1", "format": "av1"}], fields)
    assert shown(chunks_of(path, decoders=BOTH)) == [
        (["VideoStream:codec", "VideoStream:sample"], {"message_log_time": [0]})
    ]


LOG_SCHEMA = {
    "title": "foxglove.Log",
    "type": "object",
    "properties": {
        "timestamp": {
            "type": "object",
            "properties": {"sec": {"type": "integer", "minimum": 0}, "nsec": {"type": "integer", "minimum": 0}},
        },
        "level": {
            "title": "foxglove.LogLevel",
            "oneOf": [{"title": name, "const": i} for i, name in enumerate(["UNKNOWN", "DEBUG", "INFO", "WARNING"])],
        },
        "message": {"type": "string"},
        "name": {"type": "string"},
    },
}


def json_recording(folder: Path, name: str, declared: dict[str, Any], rows: Sequence[dict[str, Any]]) -> Path:
    records = [schema(1, name, "jsonschema", json.dumps(declared).encode()), channel(1, "/j", "json", 1)]
    records += [message(1, i, json.dumps(row).encode()) for i, row in enumerate(rows)]
    return written(folder, mcap([chunk_of(records)]))


def test_json_messages_are_mapped_like_protobuf(tmp_path: Path) -> None:
    rows = [{"timestamp": {"sec": 1, "nsec": i}, "level": 3, "message": f"m{i}", "name": "n"} for i in range(2)]
    (made,) = chunks_of(json_recording(tmp_path, "foxglove.Log", LOG_SCHEMA, rows))
    assert {x.descriptor.component: x.values.to_pylist() for x in made.data.components} == {
        "TextLog:level": [["WARN"], ["WARN"]],
        "TextLog:text": [["m0"], ["m1"]],
    }
    assert {t.name: t.ticks.tolist() for t in made.data.timelines}["timestamp"] == [10**9, 10**9 + 1]


def test_bytes_of_json_messages_are_bytes(tmp_path: Path) -> None:
    declared = {
        "type": "object",
        "properties": {
            "frame_id": {"type": "string"},
            "data": {"type": "string", "contentEncoding": "base64"},
            "format": {"type": "string"},
        },
    }
    row = {"frame_id": "cam", "data": base64.b64encode(b"\xff\xd8").decode(), "format": "jpeg"}
    (made,) = chunks_of(json_recording(tmp_path, "foxglove.CompressedImage", declared, [row]))
    assert {x.descriptor.component: x.values.to_pylist() for x in made.data.components} == {
        "CoordinateFrame:frame": [["cam_image_plane"]],
        "EncodedImage:blob": [[[255, 216]]],
        "EncodedImage:media_type": [["image/jpeg"]],
    }


ROS2_VIDEO = b"""builtin_interfaces/Time timestamp
string frame_id
uint8[] data
string format
================================================================================
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
"""


IDL_VIDEO = b"""module foxglove {
  struct Time { uint32 sec; uint32 nsec; };
  struct CompressedVideo { Time timestamp; string frame_id; sequence<uint8> data; string format; };
};
"""


@pytest.mark.parametrize(
    ("name", "encoding", "text"),
    [
        ("foxglove_msgs/msg/CompressedVideo", "ros2msg", ROS2_VIDEO),
        ("foxglove::CompressedVideo", "omgidl", IDL_VIDEO),
    ],
)
def test_foxglove_messages_in_cdr_are_mapped_like_protobuf(
    tmp_path: Path, name: str, encoding: str, text: bytes
) -> None:
    cdr = (
        b"\0\1\0\0" + struct.pack("<iI", 3, 4) + struct.pack("<I4s", 4, b"cam\0") + struct.pack("<I4s", 4, b"\1\2\3\4")
    )
    cdr += struct.pack("<I5s", 5, b"h264\0")
    records = [schema(1, name, encoding, text), channel(1, "/v", "cdr", 1)]
    path = written(tmp_path, mcap([chunk_of([*records, message(1, 0, cdr)])]))
    (made,) = chunks_of(path)
    assert {x.descriptor.component: x.values.to_pylist() for x in made.data.components} == {
        "CoordinateFrame:frame": [["cam_image_plane"]],
        "VideoStream:codec": [[0x61766331]],
        "VideoStream:sample": [[[1, 2, 3, 4]]],
    }
    assert {t.name: t.ticks.tolist() for t in made.data.timelines}["timestamp"] == [3 * 10**9 + 4]
    ((names, _),) = shown(chunks_of(path, decoders=["ros2_reflection", "ros2msg"]))
    assert names == [f"{name.replace('::', '.').replace('/', '.')}:message"]


def test_poses_in_flatbuffers_are_mapped_like_protobuf(data: Path) -> None:
    chunks = chunks_of(data / "mcap" / "derived" / "flatbuffer_pose_in_frame.mcap")
    assert sum(c.num_rows for c in chunks) == 7524
    assert {tuple(names) for names, _ in shown(chunks)} == {
        ("CoordinateFrame:frame", "InstancePoses3D:quaternions", "InstancePoses3D:translations")
    }
    assert all("timestamp" in times for _, times in shown(chunks))
