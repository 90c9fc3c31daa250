"""Recordings of one type of message each, for the benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from made_recordings import HEADER, SCHEMAS, VECTOR, Cdr, imu, joints, jpeg
from mcap.writer import CompressionType, Writer

_POOL = 64
_START = 1_700_000_000_000_000_000


class OneType(NamedTuple):
    """A type: schema, its encoding, that of the messages, what makes one, and how many there are."""

    schema: str
    definition: bytes
    encoding: str
    message_encoding: str
    make: Callable[[int, np.random.Generator], bytes]
    count: int


def transforms(t: int, random: np.random.Generator) -> bytes:
    """A TFMessage of five transforms."""
    message = Cdr(t, "")
    del message.data[4:]
    message.put("I", 5)
    for i in range(5):
        message.put("i", t // 1_000_000_000)
        message.put("I", t % 1_000_000_000)
        message.text("base_link")
        message.text(f"sensor_{i}")
        message.doubles(random.normal(0, 1, 7), counted=False)
    return bytes(message.data)


def points(t: int, random: np.random.Generator) -> bytes:
    """A PointCloud2 of 8,192 points: x, y, z, intensity as float32, ring as uint16."""
    cloud = np.zeros(8192, [("xyz", "<f4", 3), ("intensity", "<f4"), ("ring", "<u2"), ("pad", "<u2")])
    cloud["xyz"] = np.round(random.normal(0, 10, (8192, 3)) * 256) / 256
    cloud["intensity"] = random.integers(0, 255, 8192)
    cloud["ring"] = np.arange(8192) % 64
    message = Cdr(t, "lidar")
    message.put("I", 1)
    message.put("I", len(cloud))
    fields = (("x", 0, 7), ("y", 4, 7), ("z", 8, 7), ("intensity", 12, 7), ("ring", 16, 4))
    message.put("I", len(fields))
    for name, offset, datatype in fields:
        message.text(name)
        message.put("I", offset)
        message.put("B", datatype)
        message.put("I", 1)
    message.put("B", 0)
    message.put("I", cloud.itemsize)
    message.put("I", cloud.nbytes)
    message.blob(cloud.tobytes())
    message.put("B", 1)
    return bytes(message.data)


def nested(t: int, random: np.random.Generator) -> bytes:
    """A message of the project's own: a header, a status, and eight motors with names and curves."""
    message = Cdr(t, "arm")
    message.put("B", 3)
    message.text("tracking")
    message.put("I", 8)
    for i in range(8):
        message.text(f"motor_{i}")
        message.doubles(random.normal(0, 1, 3), counted=False)
        message.doubles(np.round(random.normal(0, 1, 6) * 64) / 64, counted=True)
    return bytes(message.data)


TF = (
    "geometry_msgs/TransformStamped[] transforms\n" + "=" * 80 + "\nMSG: geometry_msgs/TransformStamped\n"
    "std_msgs/Header header\nstring child_frame_id\ngeometry_msgs/Transform transform\n"
    + "=" * 80
    + "\nMSG: geometry_msgs/Transform\ngeometry_msgs/Vector3 translation\ngeometry_msgs/Quaternion rotation\n"
    + HEADER
    + VECTOR
)
CLOUD = (
    "std_msgs/Header header\nuint32 height\nuint32 width\nsensor_msgs/PointField[] fields\nbool is_bigendian\n"
    "uint32 point_step\nuint32 row_step\nuint8[] data\nbool is_dense\n"
    + "=" * 80
    + "\nMSG: sensor_msgs/PointField\nstring name\nuint32 offset\nuint8 datatype\nuint32 count\n"
    + HEADER
)
ARM = (
    "std_msgs/Header header\nuint8 mode\nstring state\nMotor[] motors\n"
    + "=" * 80
    + "\nMSG: arm_msgs/Motor\nstring name\nfloat64 position\nfloat64 velocity\nfloat64 effort\nfloat64[] curve\n"
    + HEADER
)


def _foxglove() -> tuple[bytes, Callable[[int, np.random.Generator], bytes]]:
    """``foxglove.FrameTransform``: its descriptors, and what makes a message."""
    field = descriptor_pb2.FieldDescriptorProto
    stamp = descriptor_pb2.FileDescriptorProto(name="t.proto", package="google.protobuf", syntax="proto3")
    message = stamp.message_type.add(name="Timestamp")
    message.field.add(name="seconds", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    message.field.add(name="nanos", number=2, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    file = descriptor_pb2.FileDescriptorProto(
        name="f.proto", package="foxglove", syntax="proto3", dependency=["t.proto"]
    )
    for name, axes in (("Vector3", "xyz"), ("Quaternion", "xyzw")):
        message = file.message_type.add(name=name)
        for number, axis in enumerate(axes, 1):
            message.field.add(name=axis, number=number, type=field.TYPE_DOUBLE, label=field.LABEL_OPTIONAL)
    message = file.message_type.add(name="FrameTransform")
    parts = (
        ("timestamp", ".google.protobuf.Timestamp"),
        ("parent_frame_id", ""),
        ("child_frame_id", ""),
        ("translation", ".foxglove.Vector3"),
        ("rotation", ".foxglove.Quaternion"),
    )
    for number, (name, kind) in enumerate(parts, 1):
        added = message.field.add(name=name, number=number, label=field.LABEL_OPTIONAL)
        added.type = field.TYPE_MESSAGE if kind else field.TYPE_STRING
        if kind:
            added.type_name = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(stamp)
    pool.Add(file)
    maker = message_factory.GetMessageClass(pool.FindMessageTypeByName("foxglove.FrameTransform"))

    def make(t: int, random: np.random.Generator) -> bytes:
        made = maker(parent_frame_id="map", child_frame_id="base_link")
        made.timestamp.seconds, made.timestamp.nanos = divmod(t, 1_000_000_000)
        made.translation.x, made.translation.y, made.translation.z = random.normal(0, 1, 3)
        made.rotation.x, made.rotation.y, made.rotation.z, made.rotation.w = random.normal(0, 1, 4)
        return bytes(made.SerializeToString())

    return descriptor_pb2.FileDescriptorSet(file=[stamp, file]).SerializeToString(), make


def types() -> dict[str, OneType]:
    """The types, by a short name."""
    descriptors, transform = _foxglove()

    def ros(name: str, definition: str, make: Callable[[int, np.random.Generator], bytes], count: int) -> OneType:
        return OneType(name, definition.encode(), "ros2msg", "cdr", make, count)

    return {
        "imu": ros("sensor_msgs/msg/Imu", SCHEMAS["sensor_msgs/msg/Imu"], imu, 200_000),
        "joint_state": ros("sensor_msgs/msg/JointState", SCHEMAS["sensor_msgs/msg/JointState"], joints, 100_000),
        "tf": ros("tf2_msgs/msg/TFMessage", TF, transforms, 60_000),
        "point_cloud2": ros("sensor_msgs/msg/PointCloud2", CLOUD, points, 600),
        "compressed_image": ros(
            "sensor_msgs/msg/CompressedImage", SCHEMAS["sensor_msgs/msg/CompressedImage"], jpeg, 1_500
        ),
        "custom_nested": ros("arm_msgs/msg/Arm", ARM, nested, 60_000),
        "foxglove_protobuf": OneType(
            "foxglove.FrameTransform", descriptors, "protobuf", "protobuf", transform, 200_000
        ),
    }


def write_type(path: Path, kind: OneType) -> None:
    """Write a zstd-compressed MCAP with messages of one type on one topic, 1 ms apart."""
    random = np.random.default_rng(11)
    pool = [kind.make(_START + i, random) for i in range(_POOL)]
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=1 << 20, compression=CompressionType.ZSTD)
        writer.start("ros2" if kind.message_encoding == "cdr" else "", "chunkmill benchmarks")
        schema = writer.register_schema(kind.schema, kind.encoding, kind.definition)
        channel = writer.register_channel("/topic", kind.message_encoding, schema)
        for i in range(kind.count):
            t = _START + i * 1_000_000
            writer.add_message(channel, t, pool[i % _POOL], t, i)
        writer.finish()
