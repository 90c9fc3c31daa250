"""Whatever a definition says and a message holds: it is mapped, or kept as it is, and the reader goes on."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentDescriptor
from chunkmill.lenses.ros2.mappings import DECLARATIONS, TRANSFORMS, ros2_lenses
from chunkmill.readers.mcap.decoders import LensMapping, McapOptions

SEEDS = 36

STAMP = pa.struct({"sec": pa.int32(), "nanosec": pa.uint32()})
HEADER = pa.struct({"stamp": STAMP, "frame_id": pa.string()})
VECTOR = pa.struct(dict.fromkeys("xyz", pa.float64()))
TURN = pa.struct(dict.fromkeys("xyzw", pa.float64()))
POSE = pa.struct({"position": VECTOR, "orientation": TURN})
MOVE = pa.struct({"translation": VECTOR, "rotation": TURN})
TRANSFORM = pa.struct({"header": HEADER, "child_frame_id": pa.string(), "transform": MOVE})
TEXT, FLOAT, U32, BYTES, DOUBLES = pa.string(), pa.float64(), pa.uint32(), pa.list_(pa.uint8()), pa.list_(pa.float64())
FIELD = pa.struct({"name": TEXT, "offset": U32, "datatype": pa.uint8(), "count": U32})
INFO = pa.struct({"resolution": pa.float32(), "width": U32, "height": U32, "origin": POSE})
VOXELS: dict[str, pa.DataType] = {
    "data": pa.list_(U32), "origin": VECTOR, "resolutions": VECTOR, "size_x": U32, "size_y": U32, "size_z": U32,
}  # fmt: skip
FIELDS: dict[str, dict[str, pa.DataType]] = {
    "sensor_msgs/Imu": {"orientation": TURN, "angular_velocity": VECTOR, "linear_acceleration": VECTOR},
    "sensor_msgs/MagneticField": {"magnetic_field": VECTOR},
    "sensor_msgs/NavSatFix": {"latitude": FLOAT, "longitude": FLOAT, "altitude": FLOAT},
    "sensor_msgs/JointState": {"name": pa.list_(TEXT), "position": DOUBLES, "velocity": DOUBLES, "effort": DOUBLES},
    "sensor_msgs/Joy": {"axes": DOUBLES, "buttons": pa.list_(pa.int32())},
    "sensor_msgs/Image": {
        "height": U32, "width": U32, "encoding": TEXT, "is_bigendian": pa.uint8(), "step": U32, "data": BYTES,
    },
    "sensor_msgs/CompressedImage": {"format": TEXT, "data": BYTES},
    "sensor_msgs/CameraInfo": {"height": U32, "width": U32, "k": DOUBLES},
    "sensor_msgs/PointCloud2": {
        "height": U32, "width": U32, "fields": pa.list_(FIELD), "is_bigendian": pa.bool_(), "point_step": U32,
        "row_step": U32, "data": BYTES, "is_dense": pa.bool_(),
    },
    "geometry_msgs/PoseStamped": {"pose": POSE},
    "nav_msgs/OccupancyGrid": {"info": INFO, "data": pa.list_(pa.int8())},
    "nav2_msgs/VoxelGrid": VOXELS,
    "costmap_2d/VoxelGrid": VOXELS,
    "sensor_msgs/Temperature": {"temperature": FLOAT, "variance": FLOAT},
    "sensor_msgs/FluidPressure": {"fluid_pressure": FLOAT, "variance": FLOAT},
    "sensor_msgs/RelativeHumidity": {"relative_humidity": FLOAT, "variance": FLOAT},
    "sensor_msgs/Illuminance": {"illuminance": FLOAT, "variance": FLOAT},
    "sensor_msgs/Range": {"range": FLOAT, "min_range": FLOAT, "max_range": FLOAT},
    "sensor_msgs/BatteryState": dict.fromkeys(("percentage", "voltage", "current", "charge", "temperature"), FLOAT),
    "std_msgs/String": {"data": TEXT},
    "std_msgs/Float64MultiArray": {"data": DOUBLES},
    "std_msgs/Float64Array": {"data": DOUBLES},
    "tf2_msgs/TFMessage": {"transforms": pa.list_(TRANSFORM)},
    "tf/tfMessage": {"transforms": pa.list_(TRANSFORM)},
    "rcl_interfaces/Log": {
        "stamp": STAMP, "level": pa.uint8(), "name": TEXT, "msg": TEXT, "file": TEXT, "function": TEXT, "line": U32,
    },
}  # fmt: skip
FIELDS["rosgraph_msgs/Log"] = {name: kind for name, kind in FIELDS["rcl_interfaces/Log"].items() if name != "stamp"}
OTHERS = [
    pa.int8(), pa.uint64(), pa.float32(), pa.large_string(), pa.bool_(), pa.binary(), pa.null(), pa.timestamp("ns"),
    pa.list_(pa.int32()), pa.list_(pa.float64(), 3), pa.large_list(pa.uint8()), pa.struct([]), pa.list_(pa.string()),
    pa.struct({"x": pa.int8()}), pa.map_(pa.string(), pa.int8()), pa.decimal128(9, 2),
]  # fmt: skip
WORDS = ["", "rgb8", "mono8", "x", "y", "z", "h264", "16UC1; compressedDepth rvl", "nope"]


def altered(kind: pa.DataType, dice: random.Random, odds: float) -> pa.DataType:
    """The type with some of its parts of other types, or without them."""
    if dice.random() < odds:
        return dice.choice(OTHERS)
    if pa.types.is_struct(kind):
        return pa.struct([(f.name, altered(f.type, dice, odds)) for f in kind if dice.random() > odds / 2])
    return pa.list_(altered(kind.value_type, dice, odds)) if pa.types.is_list(kind) else kind


def value(kind: pa.DataType, dice: random.Random, nulls: float) -> Any:
    if pa.types.is_null(kind) or dice.random() < nulls:
        return None
    if pa.types.is_struct(kind):
        return {f.name: value(f.type, dice, nulls) for f in kind}
    if pa.types.is_map(kind):
        return [("a", 1)]
    if pa.types.is_nested(kind):
        count = kind.list_size if pa.types.is_fixed_size_list(kind) else dice.choice([0, 1, 2, 4, 9])
        return [value(kind.value_type, dice, nulls) for _ in range(count)]
    if pa.types.is_integer(kind):
        bits, signed = kind.bit_width, pa.types.is_signed_integer(kind)
        least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        return dice.choice([0, 1, 2, 3, 4, 7, 8, least, most])
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return dice.choice(WORDS)
    if pa.types.is_binary(kind):
        return b"abc"
    return (
        dice.choice([0, 1]) if pa.types.is_temporal(kind) or pa.types.is_decimal(kind) else dice.choice([True, False])
    )


def test_every_type_takes_part() -> None:
    assert set(FIELDS) == {*DECLARATIONS, *TRANSFORMS}


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_every_message_is_mapped_or_kept(name: str) -> None:
    header = {} if name.startswith(("std_msgs", "tf", "rcl")) else {"header": HEADER}
    mapped = kept = 0
    for seed in range(SEEDS):
        dice = random.Random(f"{name} {seed}")
        kind = altered(pa.struct({**header, **FIELDS[name]}), dice, (0, 0.1, 0.4)[seed % 3])
        rows = dice.choice([0, 1, 2, 7]) if seed > 2 else 3
        nulls = dice.choice([0, 0, 0.05])
        column = pa.array([[value(kind, dice, nulls)] for _ in range(rows)], pa.list_(kind))
        message = ComponentDescriptor(f"{name.replace('/', '.')}:message")
        times = {"message_log_time": pa.array(range(rows), pa.timestamp("ns"))}
        topic = dice.choice(["/t", "/tf_static"])
        mapping = LensMapping(ros2_lenses(name, topic), McapOptions.checked())
        chunks = list(mapping.chunks(Chunk.build(topic, times, [(message, column)])))
        for chunk in chunks:
            chunk.to_record_batch().validate(full=True)
        left = sum(c.num_rows for c in chunks if any(x.descriptor == message for x in c.data.components))
        own = [c for c in chunks if c.entity_path == topic and not c.is_static]
        if name not in TRANSFORMS:
            assert sum(c.num_rows for c in own) == rows, f"seed {seed}"
        mapped += sum(c.num_rows for c in chunks) - left
        kept += left
    assert mapped > 0
    assert kept > 0
