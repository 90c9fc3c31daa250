"""How many messages make a chunk, and what the chunks that come of the same messages have in common."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
from chunkmill.engine.chunk import Chunk
from chunkmill.engine.limits import MIB

from tests.readers.mcap.mcap_bytes import channel, chunk_of, chunks_of, mcap, message, schema, written

RULE = "=" * 80
HEADER = (
    f"{RULE}\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n"
    f"{RULE}\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
)
IMU = (
    "std_msgs/Header header\ngeometry_msgs/Quaternion orientation\nfloat64[9] orientation_covariance\n"
    "geometry_msgs/Vector3 angular_velocity\nfloat64[9] angular_velocity_covariance\n"
    "geometry_msgs/Vector3 linear_acceleration\nfloat64[9] linear_acceleration_covariance\n"
    f"{HEADER}{RULE}\nMSG: geometry_msgs/Quaternion\nfloat64 x\nfloat64 y\nfloat64 z\nfloat64 w\n"
    f"{RULE}\nMSG: geometry_msgs/Vector3\nfloat64 x\nfloat64 y\nfloat64 z\n"
)
JOINTS = f"std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\nfloat64[] effort\n{HEADER}"


def recording(folder: Path, kind: str, definition: str, messages: list[bytes]) -> Path:
    """A file with the messages at ``/t``, at the log times 0, 1, …"""
    records = [schema(1, f"sensor_msgs/msg/{kind}", "ros2msg", definition.encode()), channel(1, "/t", "cdr", 1)]
    return written(folder, mcap([chunk_of([*records, *(message(1, i, m) for i, m in enumerate(messages))])]))


def header(sec: int) -> bytes:
    return b"\0\1\0\0" + struct.pack("<iII", sec, 5, 4) + b"abc\0"


def imu(i: int) -> bytes:
    return header(i) + (np.arange(37.0) + i).tobytes()


def joint_state(i: int, count: int = 3) -> bytes:
    names = b"".join(struct.pack("<I", 4) + b"ab%d\0" % k for k in range(count))
    numbers = b"".join(
        struct.pack("<I", count) + b"\0" * pad + (np.arange(float(count)) + i).tobytes() for pad in (0, 4, 4)
    )
    return header(i) + struct.pack("<I", count) + names + numbers


def rows(chunks: list[Chunk], component: str) -> list[object]:
    return [v for chunk in chunks for c in chunk.data.components if c.descriptor.component == component
            for v in c.values.to_pylist()]  # fmt: skip


def test_messages_of_which_little_is_shown_are_taken_together_up_to_the_size_of_chunks(tmp_path: Path) -> None:
    count = 24_000
    path = recording(tmp_path, "Imu", IMU, [imu(i) for i in range(count)])
    found = [chunk for chunk in chunks_of(path, decoders=["ros2msg"]) if not chunk.is_static]
    sizes = [chunk.byte_size for chunk in found]
    assert len(found) == 3  # of 7.7 MB of messages, the first piece is cut before anything is known of chunks
    assert sizes[0] < MIB < max(sizes) <= 2 * MIB
    assert [t for chunk in found for t in chunk.data.timelines[0].ticks.tolist()] == list(range(count))
    again = [chunk for chunk in chunks_of(path, decoders=["ros2msg"]) if not chunk.is_static]
    assert [chunk.num_rows for chunk in found] == [chunk.num_rows for chunk in again]
    assert rows(found, "Scalars:scalars") == [
        [*(13.0 + i + k for k in range(3)), *(25.0 + i + k for k in range(3))] for i in range(count)
    ]


def test_messages_that_make_chunks_of_their_size_are_cut_as_they_are(tmp_path: Path) -> None:
    path = recording(tmp_path, "Imu", IMU, [imu(i) for i in range(12_000)])
    found = chunks_of(path, decoders=["ros2_reflection"])
    assert [chunk.num_rows for chunk in found] == [6_001, 5_999]


def test_chunks_of_the_same_messages_share_their_times_and_names(tmp_path: Path) -> None:
    path = recording(tmp_path, "JointState", JOINTS, [joint_state(i) for i in range(500)])
    found = [chunk for chunk in chunks_of(path, decoders=["ros2msg"]) if chunk.entity_path != "/t"]
    assert [chunk.entity_path for chunk in found] == ["/t/position", "/t/velocity", "/t/effort"]
    for chunk in found:
        assert [line.name for line in chunk.data.timelines] == [
            "message_log_time",
            "message_publish_time",
            "ros2_timestamp",
        ]
        assert rows([chunk], "SeriesLines:names") == [["ab0", "ab1", "ab2"]] * 500
        assert rows([chunk], "Scalars:scalars") == [[i + 0.0, i + 1.0, i + 2.0] for i in range(500)]
    first, *others = ([*map(places, (t.times for t in c.data.timelines)), *names(c)] for c in found)
    assert all(other == first for other in others)


def names(chunk: Chunk) -> list[list[int | None]]:
    return [places(c.values) for c in chunk.data.components if c.descriptor.component == "SeriesLines:names"]


def places(array: pa.Array) -> list[int | None]:
    """Where the buffers of an array are."""
    return [None if buffer is None else buffer.address for buffer in array.buffers()]
