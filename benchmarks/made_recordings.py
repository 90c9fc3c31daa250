"""Recordings made for the benchmarks: ROS 2 messages in CDR, in an MCAP of a chosen size; small RRDs."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from chunkmill.engine.chunk import Chunk, ComponentDescriptor
from chunkmill.engine.rrd import RrdWriter, StoreEntry
from mcap.writer import CompressionType, Writer

HEADER = (
    "================================================================================\nMSG: std_msgs/Header\n"
    "builtin_interfaces/Time stamp\nstring frame_id\n"
    "================================================================================\nMSG: builtin_interfaces/Time\n"
    "int32 sec\nuint32 nanosec\n"
)
VECTOR = (
    "================================================================================\nMSG: geometry_msgs/Vector3\n"
    "float64 x\nfloat64 y\nfloat64 z\n"
    "================================================================================\nMSG: geometry_msgs/Quaternion\n"
    "float64 x\nfloat64 y\nfloat64 z\nfloat64 w\n"
)
TRANSFORM = (
    "================================================================================\n"
    "MSG: geometry_msgs/TransformStamped\n"
    "std_msgs/Header header\nstring child_frame_id\ngeometry_msgs/Transform transform\n"
    "================================================================================\nMSG: geometry_msgs/Transform\n"
    "geometry_msgs/Vector3 translation\ngeometry_msgs/Quaternion rotation\n"
)
SCHEMAS = {
    "sensor_msgs/msg/Imu": (
        "std_msgs/Header header\ngeometry_msgs/Quaternion orientation\nfloat64[9] orientation_covariance\n"
        "geometry_msgs/Vector3 angular_velocity\nfloat64[9] angular_velocity_covariance\n"
        "geometry_msgs/Vector3 linear_acceleration\nfloat64[9] linear_acceleration_covariance\n" + HEADER + VECTOR
    ),
    "sensor_msgs/msg/JointState": (
        "std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\nfloat64[] effort\n" + HEADER
    ),
    "sensor_msgs/msg/CompressedImage": "std_msgs/Header header\nstring format\nuint8[] data\n" + HEADER,
    "sensor_msgs/msg/Image": (
        "std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\n"
        "uint8[] data\n" + HEADER
    ),
    "sensor_msgs/msg/MagneticField": (
        "std_msgs/Header header\ngeometry_msgs/Vector3 magnetic_field\nfloat64[9] magnetic_field_covariance\n"
        + HEADER
        + VECTOR
    ),
    "tf2_msgs/msg/TFMessage": "geometry_msgs/TransformStamped[] transforms\n" + TRANSFORM + HEADER + VECTOR,
}


class Cdr:
    """Writes little-endian CDR."""

    def __init__(self, nanoseconds: int, frame: str) -> None:
        self.data = bytearray(b"\0\1\0\0")
        self.put("i", nanoseconds // 1_000_000_000)
        self.put("I", nanoseconds % 1_000_000_000)
        self.text(frame)

    def align(self, size: int) -> None:
        self.data += bytes(-(len(self.data) - 4) % size)

    def put(self, code: str, value: int) -> None:
        self.align(struct.calcsize(code))
        self.data += struct.pack("<" + code, value)

    def text(self, value: str) -> None:
        raw = value.encode() + b"\0"
        self.put("I", len(raw))
        self.data += raw

    def doubles(self, values: np.ndarray, *, counted: bool) -> None:
        if counted:
            self.put("I", len(values))
        self.align(8)
        self.data += values.astype("<f8").tobytes()

    def blob(self, value: bytes) -> None:
        self.put("I", len(value))
        self.data += value


def imu(t: int, random: np.random.Generator, numbers: int = 37) -> bytes:
    message = Cdr(t, "imu_link")
    message.doubles(np.round(random.normal(0, 1, numbers) * 4096) / 4096, counted=False)
    return bytes(message.data)


def joints(t: int, random: np.random.Generator) -> bytes:
    message = Cdr(t, "")
    message.put("I", 14)
    for i in range(14):
        message.text(f"joint_{i:02d}_motor")
    for _ in range(3):
        message.doubles(np.round(random.normal(0, 1, 14) * 1024) / 1024, counted=True)
    return bytes(message.data)


def jpeg(t: int, random: np.random.Generator) -> bytes:
    message = Cdr(t, "camera")
    message.text("jpeg")
    message.blob(random.bytes(60_000))
    return bytes(message.data)


def image(t: int, random: np.random.Generator) -> bytes:
    message = Cdr(t, "camera")
    message.put("I", 240)
    message.put("I", 320)
    message.text("rgb8")
    message.put("B", 0)
    message.put("I", 960)
    ramp = np.arange(320 * 240 * 3, dtype=np.uint32) // 97
    message.blob((ramp + random.integers(0, 8, ramp.size, dtype=np.uint32)).astype(np.uint8).tobytes())
    return bytes(message.data)


def magnet(t: int, random: np.random.Generator) -> bytes:
    return imu(t, random, numbers=12)


def transforms(t: int, random: np.random.Generator) -> bytes:
    """Five transforms. Their stamps stay as they are, but for the first."""
    message = Cdr(t, "odom")
    message.data[4:4] = struct.pack("<I", 5)
    for link in range(5):
        if link:
            message.put("i", t // 1_000_000_000)
            message.put("I", t % 1_000_000_000)
            message.text(f"link_{link}")
        message.text(f"link_{link + 1}")
        message.doubles(np.round(random.normal(0, 1, 7) * 4096) / 4096, counted=False)
    return bytes(message.data)


Streams = tuple[tuple[str, str, Callable[[int, np.random.Generator], bytes], int], ...]
STREAMS: Streams = (
    ("/imu/data", "sensor_msgs/msg/Imu", imu, 1),
    ("/joint_states", "sensor_msgs/msg/JointState", joints, 1),
    ("/camera/image/compressed", "sensor_msgs/msg/CompressedImage", jpeg, 20),
    ("/camera/image_raw", "sensor_msgs/msg/Image", image, 40),
)
DRIVE: Streams = (
    *STREAMS[:2],
    ("/imu/mag", "sensor_msgs/msg/MagneticField", magnet, 4),
    ("/tf", "tf2_msgs/msg/TFMessage", transforms, 4),
    ("/camera/image/compressed", "sensor_msgs/msg/CompressedImage", jpeg, 160),
    ("/camera/image_raw", "sensor_msgs/msg/Image", image, 1600),
)
"""Mostly numbers: about a million messages in 300 MB."""


def write_mixture(path: Path, megabytes: float, drive: int = 0, streams: Streams = STREAMS) -> None:
    """Write an MCAP of about ``megabytes``: 400 Hz of Imu and JointState, and images for the bulk.

    Each ``drive`` takes place an hour after the one before.
    """
    random = np.random.default_rng(7)
    pool = {topic: [make(0, random) for _ in range(64)] for topic, _, make, _ in streams}
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=1 << 20, compression=CompressionType.ZSTD)
        writer.start("ros2", "chunkmill benchmarks")
        channels = {
            topic: writer.register_channel(
                topic, "cdr", writer.register_schema(name, "ros2msg", SCHEMAS[name].encode())
            )
            for topic, name, _, _ in streams
        }
        tick = 0
        while file.tell() < megabytes * 1_000_000:
            t = 1_700_000_000_000_000_000 + drive * 3_600_000_000_000 + tick * 2_500_000
            for topic, _, make, every in streams:
                if tick % every == 0:
                    message = bytearray(pool[topic][(tick // every) % 64])
                    stamp = 8 if make is transforms else 4
                    struct.pack_into("<iI", message, stamp, t // 1_000_000_000, t % 1_000_000_000)
                    writer.add_message(channels[topic], t, bytes(message), t, tick)
            tick += 1
        writer.finish()


def write_drive(path: Path, number: int) -> Path:
    """An RRD of 38 kB: four joints and a pose in 200 rows each, and three properties; ``number`` makes it its own."""
    random = np.random.default_rng(number)
    ticks = np.arange(200)
    times = {
        "log_tick": pa.array(ticks),
        "log_time": pa.array(ticks * 10_000_000 + 1_700_000_000_000_000_000 + number, pa.timestamp("ns")),
    }
    ends = pa.array(np.arange(len(ticks) + 1, dtype=np.int32))
    chunks = [
        Chunk.build(
            f"/arm/joint_{joint}",
            times,
            [
                (
                    ComponentDescriptor("Scalars:scalars"),
                    pa.ListArray.from_arrays(ends, pa.array(random.normal(0, 1, len(ticks)))),
                )
            ],
        )
        for joint in range(4)
    ]
    poses = pa.FixedSizeListArray.from_arrays(pa.array(random.normal(0, 1, 3 * len(ticks)).astype(np.float32)), 3)
    pose = (ComponentDescriptor("Transform3D:translation"), pa.ListArray.from_arrays(ends, poses))
    chunks.append(Chunk.build("/base", times, [pose]))
    about: list[tuple[str, object]] = [
        ("robot", f"robot-{number % 40}"),
        ("number", number),
        ("kilometres", number / 7),
    ]
    properties = [(ComponentDescriptor(name), pa.array([[value]])) for name, value in about]
    chunks.append(Chunk.build("/__properties", {}, properties))
    store = StoreEntry("recording", "fleet", f"drive-{number:06d}")
    buffer = io.BytesIO()
    with RrdWriter(buffer, path=str(path)) as writer:
        writer.begin_store(store)
        for chunk in chunks:
            writer.append(store, chunk)
        writer.finish()
    path.write_bytes(buffer.getvalue())
    return path


def write_camera(path: Path, number: int, megabytes: int) -> Path:
    """An RRD of images of 105 kB, and of scalars of seven joints in chunks of 250 rows."""
    random = np.random.default_rng(number)
    store = StoreEntry("recording", "fleet", f"camera-{number:06d}")
    noise = random.bytes(2 << 20)
    with RrdWriter(path) as writer:
        writer.begin_store(store)
        for frame in range(megabytes * 1_000_000 // 107_000):
            start = int(random.integers(0, 1 << 20))
            blob = pa.array([[noise[start : start + 105_000]]], pa.list_(pa.binary()))
            chunk = Chunk.build("/camera", {"frame": pa.array([frame])}, [(ComponentDescriptor("blob"), blob)])
            writer.append(store, chunk)
            if frame % 250 == 0:
                for joint in range(7):
                    values = pa.array(random.normal(0, 1, 250).reshape(250, 1).tolist())
                    ticks = {"frame": pa.array(range(frame, frame + 250))}
                    column = (ComponentDescriptor("Scalars:scalars"), values)
                    writer.append(store, Chunk.build(f"/arm/joint_{joint}", ticks, [column]))
        writer.finish()
    return path


def write_recording(path: Path, megabytes: int) -> Path:
    """An RRD of about as many megabytes: chunks of 1,000 scalars in 40 entities, images in 4, with a footer."""
    random = np.random.default_rng(3)
    store = StoreEntry("recording", "bench", "bench")
    ends = pa.array(np.arange(1001, dtype=np.int32))
    scalars, blob = ComponentDescriptor("Scalars:scalars"), ComponentDescriptor("blob")
    with RrdWriter(path) as writer:
        writer.begin_store(store)
        for i in range(megabytes * 10):
            values = pa.ListArray.from_arrays(ends, pa.array(random.normal(0, 1, 1000)))
            ticks = {"frame": pa.array(np.arange(i * 1000, i * 1000 + 1000))}
            writer.append(store, Chunk.build(f"/robot/joint_{i % 40}", ticks, [(scalars, values)]))
        for i in range(megabytes * 4):
            image = pa.array([[random.bytes(230_400)]], pa.list_(pa.binary()))
            chunk = Chunk.build(f"/camera_{i % 4}/image", {"frame": pa.array([i])}, [(blob, image)])
            writer.append(store, chunk)
        writer.finish()
    return path


def write_table(path: Path, rows: int = 1_000_000) -> Path:
    """A Parquet file of 40 columns of floats with 10 prefixes, in one row group as Arrow writes it."""
    noise = np.random.default_rng(0)
    columns = {f"g{i}_{j}": noise.normal(size=rows).cumsum() for i in range(10) for j in range(4)}
    pq.write_table(pa.table(columns), path)
    return path
