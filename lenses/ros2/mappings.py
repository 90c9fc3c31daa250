"""The lenses that give ROS messages their meaning, by type; ``sensor_msgs`` has its lenses in ``sensors``.

Source: https://github.com/ros2/common_interfaces, https://github.com/ros2/rcl_interfaces and
https://github.com/ros2/geometry2. Each function takes the component of the decoded messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...engine.chunk import encoding_codes, image_formats
from .. import archetypes as to
from .. import arrays
from ..arrays import Bytes, blobs, bytes_of
from ..lens import DeriveLens, as_lenses
from ..selector import Selector
from . import sensors
from .sensors import FRAME_ID, at_stamp, own_component

LEVELS: Final = {
    10: ("DEBUG", 0x808080FF),
    20: ("INFO", 0x0080FFFF),
    30: ("WARN", 0xFFA500FF),
    40: ("ERROR", 0xFF0000FF),
    50: ("CRITICAL", 0x8B0000FF),
}
"""Rerun's words and colours (RGBA) for the levels of ``rcl_interfaces/Log``; ROS calls level 50 FATAL."""

_ROS_1: Final = {1: 10, 2: 20, 4: 30, 8: 40, 16: 50}


@cache
def _level_table() -> pa.RecordBatch:
    """:data:`LEVELS` by column."""
    words, colours = zip(*LEVELS.values(), strict=True)
    columns = [pa.array(list(LEVELS), pa.int64()), pa.array(words), pa.array(colours, pa.uint32())]
    return pa.RecordBatch.from_arrays(columns, ["code", "word", "colour"])


_OTHER: Final = ("UNKNOWN", 0x808080FF)


def _levels_of_ros_1(codes: pa.Array) -> pa.Array:
    """The levels of ``rosgraph_msgs/Log`` as those of ROS 2; null for others."""
    places = pc.index_in(codes.cast(pa.int64()), pa.array(list(_ROS_1), pa.int64()))
    return pa.array(list(_ROS_1.values()), pa.int64()).take(places)


def _levels(codes: pa.Array) -> pa.Array:
    """The words for levels; ``UNKNOWN`` for others."""
    return _of_levels(codes, "word", _OTHER[0])


def _log_colours(codes: pa.Array) -> pa.Array:
    """The colours (uint32, RGBA) of levels; grey for others."""
    return _of_levels(codes, "colour", pa.scalar(_OTHER[1], pa.uint32()))


def _of_levels(codes: pa.Array, column: str, other: pa.Scalar | str) -> pa.Array:
    table = _level_table()
    return pc.fill_null(table[column].take(pc.index_in(codes.cast(pa.int64()), table["code"])), other)


def _lines(logs: pa.StructArray) -> pa.Array:
    """``[name] message``.

    >>> _lines(pa.array([{"name": "planner", "msg": "ready"}])).to_pylist()
    ['[planner] ready']
    """
    return pc.binary_join_element_wise("[", logs.field("name"), "] ", logs.field("msg"), "")


RVIZ_MAP: Final = 10
"""Rerun's code of RViz's colour map for maps."""

_MOST_VOXELS: Final = 16
_MARKED: Final = 0xFF0000FF
_FREE: Final = 0x00FF00FF


def _has_all_cells(grids: pa.StructArray) -> pa.Array:
    """Return, for each grid, whether it has one byte for each of ``info.width`` times ``info.height`` cells."""
    widths, heights = _sizes(grids)
    return pa.array(np.diff(arrays.offsets_of(blobs(grids.field("data")))) == widths * heights)


def _cells(grids: pa.StructArray) -> pa.ListArray:
    """The cells as lists of uint8, upper row first (ROS has the lower row first); unknown cells (-1) are 255.

    All grids must be whole.
    """
    widths, heights = _sizes(grids)
    content, offsets = bytes_of(blobs(grids.field("data")))
    flipped: Bytes = np.empty(int(offsets[-1] - offsets[0]), np.uint8)
    shapes = np.stack([heights, widths])
    borders = [0, *(np.flatnonzero((shapes[:, 1:] != shapes[:, :-1]).any(axis=0)) + 1).tolist(), len(grids)]
    for begin, end in pairwise(borders):
        source = content[offsets[begin] : offsets[end]].reshape(end - begin, *shapes[:, begin].tolist())
        target = flipped[offsets[begin] - offsets[0] : offsets[end] - offsets[0]]
        target.reshape(source.shape)[:] = source[:, ::-1]
    return arrays.list_array(pa.array(flipped), offsets - offsets[0], None)


def _grid_formats(infos: pa.StructArray) -> pa.StructArray:
    """The image formats of grids by their ``info``: bytes of one channel."""
    width, height = (infos.field(name).cast(pa.uint32()) for name in ("width", "height"))
    return image_formats(width, height, encoding_codes(pa.repeat("mono8", len(infos))))


def _colour_maps(grids: pa.Array) -> pa.Array:
    """RViz's colour map for each grid."""
    return pa.repeat(pa.scalar(RVIZ_MAP, pa.uint8()), len(grids))


def _has_all_columns(grids: pa.StructArray) -> pa.Array:
    """Return, for each grid, whether it has one number for each of ``size_x`` times ``size_y`` columns of voxels."""
    across, along, _ = _voxel_sizes(grids)
    return pa.array(np.diff(arrays.offsets_of(grids.field("data"))) == across * along)


def _known_voxels(grids: pa.StructArray) -> pa.StructArray:
    """Return structs with each grid's voxels of known state.

    ``indices`` are x, y and z of each voxel, int32; ``colors`` and ``values`` are red and 1 for marked voxels, green
    and 0 for free voxels. A column has two bits for each of at most 16 voxels, bits z and z + 16. Voxels with neither
    bit are free, with one bit unknown, with both bits marked. All grids must be whole.
    """
    data = grids.field("data")
    offsets = arrays.offsets_of(data)
    numbers = data.values.to_numpy(zero_copy_only=False).astype(np.uint32)
    indices, marked, counts = [np.empty((0, 3), np.int32)], [np.empty(0, bool)], [0]
    for across, along, up, begin, end in zip(*_voxel_sizes(grids), offsets[:-1], offsets[1:], strict=True):
        columns = numbers[begin:end].reshape(int(along), int(across))[..., None]
        heights = np.arange(min(int(up), _MOST_VOXELS), dtype=np.uint32)
        bits = (columns >> heights & 1) + (columns >> (heights + _MOST_VOXELS) & 1)
        y, x, z = np.nonzero(bits != 1)
        indices.append(np.stack([x, y, z], axis=1).astype(np.int32))
        marked.append(bits[y, x, z] == 2)
        counts.append(len(x))
    starts, both = np.cumsum(counts), np.concatenate(marked)
    flat = arrays.fixed_lists(pa.array(np.concatenate(indices).reshape(-1)), 3)
    columns = [flat, pa.array(np.where(both, _MARKED, _FREE).astype(np.uint32)), pa.array(both.astype(np.float32))]
    return pa.StructArray.from_arrays(
        [arrays.list_array(column, starts, None) for column in columns], ["indices", "colors", "values"]
    )


def _half_opaque(grids: pa.Array) -> pa.Array:
    """An opacity of one half for each grid."""
    return pa.repeat(pa.scalar(0.5, pa.float32()), len(grids))


def _voxel_sizes(grids: pa.StructArray) -> list[np.ndarray]:
    return [pc.cast(grids.field(f"size_{axis}"), pa.int64()).to_numpy(zero_copy_only=False) for axis in "xyz"]


def _sizes(grids: pa.StructArray) -> tuple[np.ndarray, np.ndarray]:
    info = grids.field("info")
    widths, heights = (pc.cast(info.field(n), pa.int64()).to_numpy(zero_copy_only=False) for n in ("width", "height"))
    return widths, heights


def transforms(message: str, *, static: bool) -> DeriveLens:
    """``tf2_msgs/TFMessage``: one row for each transform, at its own time; no times if ``static``."""
    each = ".transforms[]"
    lens = (
        DeriveLens(message, scatter=True, keep_empty=False, static=static)
        .to_component(to.PARENT_FRAME, f"{each}.header.frame_id")
        .to_component(to.CHILD_FRAME, f"{each}.child_frame_id")
        .to_transform3d(f"{each}.transform.translation", f"{each}.transform.rotation")
    )
    return at_stamp(lens, f"{each}.header.stamp")


def pose_stamped(message: str) -> DeriveLens:
    """``geometry_msgs/PoseStamped``: the pose of the data at the entity."""
    place, turn = ".pose.position", ".pose.orientation"
    return (
        at_stamp(DeriveLens(message))
        .to_component(to.COORDINATE_FRAME, FRAME_ID)
        .to_component(to.POSE_TRANSLATIONS, Selector.pack(*(f"{place}.{axis}" for axis in "xyz")))
        .to_component(to.POSE_QUATERNIONS, Selector.pack(*(f"{turn}.{axis}" for axis in "xyzw")))
    )


def occupancy_grid(message: str) -> DeriveLens:
    """``nav_msgs/OccupancyGrid``: a map with cells as pixels, in RViz's colours."""
    place, turn = ".info.origin.position", ".info.origin.orientation"
    grid = Selector(".")
    return (
        at_stamp(DeriveLens(message))
        .where(grid.pipe(_has_all_cells), otherwise="it does not have width times height cells")
        .to_component(to.COORDINATE_FRAME, FRAME_ID)
        .to_component(to.GRID_DATA, grid.pipe(_cells))
        .to_component(to.GRID_FORMAT, Selector(".info").pipe(_grid_formats))
        .to_component(to.GRID_CELL_SIZE, Selector(".info.resolution").cast("float32"))
        .to_component(to.GRID_TRANSLATION, Selector.pack(*(f"{place}.{axis}" for axis in "xyz")))
        .to_component(to.GRID_QUATERNION, Selector.pack(*(f"{turn}.{axis}" for axis in "xyzw")))
        .to_component(to.GRID_COLORMAP, grid.pipe(_colour_maps))
    )


def voxel_grid(message: str) -> DeriveLens:
    """``nav2_msgs/VoxelGrid``: the known cells. Marked cells are red with value 1, free cells green with value 0."""
    grid = Selector(".")
    voxels = grid.pipe(_known_voxels)
    return (
        at_stamp(DeriveLens(message))
        .where(grid.pipe(_has_all_columns), otherwise="it does not have size_x times size_y columns")
        .to_component(to.COORDINATE_FRAME, FRAME_ID)
        .to_component(to.VOXEL_INDICES, voxels.pipe(Selector(".indices[]")))
        .to_component(to.VOXEL_SIZE, Selector.pack(*(f".resolutions.{axis}" for axis in "xyz")))
        .to_component(to.VOXEL_COLORS, voxels.pipe(Selector(".colors[]")))
        .to_component(to.VOXEL_VALUES, voxels.pipe(Selector(".values[]")))
        .to_component(to.VOXEL_OPACITY, grid.pipe(_half_opaque))
        .to_component(to.VOXEL_TRANSLATION, Selector.pack(*(f".origin.{axis}" for axis in "xyz")))
    )


def text(message: str) -> DeriveLens:
    """``std_msgs/String``."""
    return DeriveLens(message).to_component(to.TEXT_DOCUMENT, ".data")


def numbers(message: str) -> DeriveLens:
    """``std_msgs/Float64MultiArray``: a series for each number, whatever the layout."""
    return DeriveLens(message).to_scalars(".data[]")


def log(message: str) -> DeriveLens:
    """``rcl_interfaces/Log``: a log line, and its place in the source code."""
    return _line(at_stamp(DeriveLens(message), ".stamp"), Selector(".level"))


def log_of_ros_1(message: str) -> DeriveLens:
    """``rosgraph_msgs/Log``, like :func:`log`."""
    return _line(at_stamp(DeriveLens(message)), Selector(".level").pipe(_levels_of_ros_1))


def _line(log: DeriveLens, level: Selector) -> DeriveLens:
    lens = (
        log.to_component(to.LOG_TEXT, Selector(".").pipe(_lines))
        .to_component(to.LOG_LEVEL, level.pipe(_levels))
        .to_component(to.LOG_COLOR, level.pipe(_log_colours))
    )
    for field in ("file", "function", "line"):
        lens = lens.to_component(own_component("rcl_interfaces.msg.Log", field, prefix=False), f".{field}")
    return lens


_Declaration = Callable[[str], DeriveLens | tuple[DeriveLens, ...]]

TRANSFORMS: Final = frozenset({"tf2_msgs/TFMessage", "tf/tfMessage"})
"""The types of transforms, which depend on their topic."""

STATIC_TOPIC: Final = "tf_static"
"""The last part of the names of static transform topics: ``/tf_static``, also in a namespace."""

_REFLECTED: Final = frozenset(
    {
        "std_msgs/String",
        "rcl_interfaces/Log",
        "geometry_msgs/PoseStamped",
        "nav_msgs/OccupancyGrid",
        "nav2_msgs/VoxelGrid",
    }
)

_MEASUREMENTS: Final = {
    "Temperature": ("temperature", "°C"),
    "FluidPressure": ("fluid_pressure", "Pa"),
    "RelativeHumidity": ("relative_humidity", None),
    "Illuminance": ("illuminance", "lux"),
}

_SERIES: Final = {
    "Range": ("range", "min_range", "max_range"),
    "BatteryState": ("percentage", "voltage", "current", "charge", "temperature"),
}

DECLARATIONS: Final[Mapping[str, _Declaration]] = MappingProxyType(
    {
        **{f"sensor_msgs/{kind}": partial(sensors.series, fields=fields) for kind, fields in _SERIES.items()},
        **{
            f"sensor_msgs/{kind}": partial(sensors.measurement, field=field, unit=unit)
            for kind, (field, unit) in _MEASUREMENTS.items()
        },
        "sensor_msgs/Imu": sensors.imu,
        "sensor_msgs/MagneticField": sensors.magnetic_field,
        "sensor_msgs/NavSatFix": sensors.nav_sat_fix,
        "sensor_msgs/JointState": sensors.joint_state,
        "sensor_msgs/Joy": sensors.joy,
        "sensor_msgs/Image": sensors.image,
        "sensor_msgs/CompressedImage": sensors.compressed_image,
        "sensor_msgs/CameraInfo": sensors.camera_info,
        "sensor_msgs/PointCloud2": sensors.point_cloud,
        "std_msgs/String": text,
        "std_msgs/Float64MultiArray": numbers,
        "std_msgs/Float64Array": numbers,
        "geometry_msgs/PoseStamped": pose_stamped,
        "nav_msgs/OccupancyGrid": occupancy_grid,
        "nav2_msgs/VoxelGrid": voxel_grid,
        "costmap_2d/VoxelGrid": voxel_grid,
        "rcl_interfaces/Log": log,
        "rosgraph_msgs/Log": log_of_ros_1,
    }
)
"""By type, named as in ROS 1: ``sensor_msgs/Imu``, not ROS 2's ``sensor_msgs/msg/Imu``."""


def needs_reflection(schema_name: str) -> bool:
    """Return True if the type also needs the decoder ``ros2_reflection``, because Rerun's reader maps it from structs.

    >>> needs_reflection("std_msgs/msg/String"), needs_reflection("sensor_msgs/msg/Imu")
    (True, False)
    """
    return _in_ros_1(schema_name) in _REFLECTED


@lru_cache(maxsize=256)
def ros2_lenses(schema_name: str, topic: str) -> tuple[DeriveLens, ...]:
    """The lenses for messages of a type on a topic; none for types without a mapping.

    The type is named as in ROS 2 (``sensor_msgs/msg/Imu``), ROS 1 (``sensor_msgs/Imu``) or IDL
    (``sensor_msgs::msg::Imu``). Transforms on ``/tf_static`` and ``/robot1/tf_static`` have no times.

    >>> [lens.input_component for lens in ros2_lenses("sensor_msgs/msg/Imu", "/imu")]
    ['sensor_msgs.msg.Imu:message']
    >>> ros2_lenses("my_msgs/msg/Wheel", "/wheel")
    ()
    """
    name = _in_ros_1(schema_name)
    return (
        _made(schema_name, name, topic.rpartition("/")[2] == STATIC_TOPIC)
        if name in TRANSFORMS or name in DECLARATIONS
        else ()
    )


@lru_cache(maxsize=256)
def _made(schema_name: str, name: str, static: bool) -> tuple[DeriveLens, ...]:
    """Return the lenses. They never change, so each process makes them once for all parts of a recording."""
    message = f"{schema_name.replace('::', '.').replace('/', '.')}:message"
    if name in TRANSFORMS:
        lenses = as_lenses(transforms(message, static=static))
    else:
        lenses = as_lenses(DECLARATIONS[name](message))
    return tuple(replace(lens, strict=True) for lens in lenses if isinstance(lens, DeriveLens))


def _in_ros_1(schema_name: str) -> str:
    """The name as in ROS 1: ``sensor_msgs/Imu``."""
    parts = schema_name.replace("::", "/").split("/")
    return f"{parts[0]}/{parts[2]}" if len(parts) == 3 and parts[1] == "msg" else schema_name
