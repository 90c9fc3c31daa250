"""Foxglove's messages as decoders give them: the types of protobuf, of JSON and of ROS."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
from chunkmill.engine.chunk import Chunk, ComponentColumn, ComponentDescriptor, TimeColumn
from chunkmill.lenses import apply_lenses
from chunkmill.lenses.foxglove import foxglove_lenses


class Dialect(NamedTuple):
    """How one encoding's decoder gives stamps, bytes, enumerated values, and the name of a type."""

    stamp: pa.DataType
    binary: pa.DataType
    enum: pa.DataType
    package: str
    matrix: str = "K"


ENUM = pa.struct({"name": pa.string(), "value": pa.int32()})
PROTOBUF = Dialect(pa.struct({"seconds": pa.int64(), "nanos": pa.int32()}), pa.binary(), ENUM, "foxglove.")
JSON = Dialect(pa.struct({"sec": pa.int64(), "nsec": pa.int64()}), pa.binary(), pa.int64(), "foxglove.")
ROS2 = Dialect(
    pa.struct({"sec": pa.int32(), "nanosec": pa.uint32()}), pa.list_(pa.uint8()), pa.uint8(), "foxglove_msgs/msg/", "k"
)
ROS1 = Dialect(
    pa.struct({"sec": pa.uint32(), "nanosec": pa.uint32()}), pa.list_(pa.uint8()), pa.uint8(), "foxglove_msgs/"
)
IDL = ROS2._replace(package="foxglove_msgs::msg::")
DIALECTS = {"protobuf": PROTOBUF, "json": JSON, "ros2": ROS2, "ros1": ROS1, "idl": IDL}

VECTOR = pa.struct(dict.fromkeys("xyz", pa.float64()))
QUATERNION = pa.struct(dict.fromkeys("xyzw", pa.float64()))
POSE = pa.struct({"position": VECTOR, "orientation": QUATERNION})
COLOR = pa.struct(dict.fromkeys("rgba", pa.float64()))


def types(dialect: Dialect = PROTOBUF) -> dict[str, pa.DataType]:
    """The types of the messages by name."""
    stamped = {"timestamp": dialect.stamp, "frame_id": pa.string()}
    transform = pa.struct(
        {
            "timestamp": dialect.stamp,
            "parent_frame_id": pa.string(),
            "child_frame_id": pa.string(),
            "translation": VECTOR,
            "rotation": QUATERNION,
        }
    )
    fix = pa.struct({**stamped, "latitude": pa.float64(), "longitude": pa.float64(), "color": COLOR})
    field = pa.struct({"name": pa.string(), "offset": pa.uint32(), "type": dialect.enum})
    size = {"width": pa.uint32(), "height": pa.uint32()}
    return {
        "FrameTransform": transform,
        "FrameTransforms": pa.struct({"transforms": pa.list_(transform)}),
        "CompressedImage": pa.struct({**stamped, "data": dialect.binary, "format": pa.string()}),
        "CompressedVideo": pa.struct({**stamped, "data": dialect.binary, "format": pa.string()}),
        "RawImage": pa.struct(
            {**stamped, **size, "encoding": pa.string(), "step": pa.uint32(), "data": dialect.binary}
        ),
        "CameraCalibration": pa.struct({**stamped, **size, dialect.matrix: pa.list_(pa.float64())}),
        "LocationFix": fix,
        "LocationFixes": pa.struct({"fixes": pa.list_(fix)}),
        "Log": pa.struct({"timestamp": dialect.stamp, "level": dialect.enum, "message": pa.string()}),
        "PointCloud": pa.struct(
            {**stamped, "pose": POSE, "point_stride": pa.uint32(), "fields": pa.list_(field), "data": dialect.binary}
        ),
        "PoseInFrame": pa.struct({**stamped, "pose": POSE}),
        "PosesInFrame": pa.struct({**stamped, "poses": pa.list_(POSE)}),
    }


def stamp(nanoseconds: int, dialect: Dialect = PROTOBUF) -> dict[str, int]:
    """A stamp as the dialect has it."""
    return dict(zip((f.name for f in dialect.stamp), divmod(nanoseconds, 10**9), strict=True))


def chunk(name: str, rows: list[Any], dialect: Dialect = PROTOBUF, kind: pa.DataType | None = None) -> Chunk:
    """Messages of a type at ``/e``, one each at the times 0, 1, … of the timeline ``log``."""
    component = f"{dialect.package}{name}".replace("::", ".").replace("/", ".") + ":message"
    values = pa.array([[row] for row in rows], pa.list_(types(dialect)[name] if kind is None else kind))
    times = TimeColumn("log", sequence=range(len(rows)))
    return Chunk.from_columns("/e", [times], [ComponentColumn(ComponentDescriptor(component), values)])


def mapped(
    name: str, rows: list[Any], dialect: Dialect = PROTOBUF, kind: pa.DataType | None = None
) -> list[dict[str, Any]]:
    """What becomes of messages: one dict a chunk, times and components by name."""
    made = apply_lenses(chunk(name, rows, dialect, kind), foxglove_lenses(f"{dialect.package}{name}"))
    return [
        {t.name: t.ticks.tolist() for t in c.data.timelines}
        | {x.descriptor.component: x.values.to_pylist() for x in c.data.components}
        for c in made
    ]


def datatypes(name: str, rows: list[Any]) -> dict[str, str]:
    """The types of the components that messages become."""
    made = apply_lenses(chunk(name, rows), foxglove_lenses(f"foxglove.{name}"))
    return {x.descriptor.component: str(x.values.type) for c in made for x in c.data.components}
