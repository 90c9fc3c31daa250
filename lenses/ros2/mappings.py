"""The message types that have a meaning, and the lenses that say it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Final

from ..compiled import as_lenses
from ..lens import DeriveLens
from . import messages, sensors

_Declaration = Callable[[str], DeriveLens | tuple[DeriveLens, ...]]

TRANSFORMS: Final = frozenset({"tf2_msgs/TFMessage", "tf/tfMessage"})
"""The types of transforms, which depend on their topic."""

STATIC_TOPIC: Final = "/tf_static"
"""The one topic whose transforms hold for all times."""

_REFLECTED: Final = frozenset(
    {
        "std_msgs/String",
        "rcl_interfaces/Log",
        "geometry_msgs/PoseStamped",
        "nav_msgs/OccupancyGrid",
        "nav2_msgs/VoxelGrid",
    }
)

_SERIES: Final = {
    "Temperature": ("temperature", "variance"),
    "FluidPressure": ("fluid_pressure", "variance"),
    "RelativeHumidity": ("relative_humidity", "variance"),
    "Illuminance": ("illuminance", "variance"),
    "Range": ("range", "min_range", "max_range"),
    "BatteryState": ("percentage", "voltage", "current", "charge", "temperature"),
}

DECLARATIONS: Final[Mapping[str, _Declaration]] = MappingProxyType(
    {
        **{f"sensor_msgs/{kind}": partial(sensors.series, fields=fields) for kind, fields in _SERIES.items()},
        "sensor_msgs/Imu": sensors.imu,
        "sensor_msgs/MagneticField": sensors.magnetic_field,
        "sensor_msgs/NavSatFix": sensors.nav_sat_fix,
        "sensor_msgs/JointState": sensors.joint_state,
        "sensor_msgs/Joy": sensors.joy,
        "sensor_msgs/Image": sensors.image,
        "sensor_msgs/CompressedImage": sensors.compressed_image,
        "sensor_msgs/CameraInfo": sensors.camera_info,
        "sensor_msgs/PointCloud2": sensors.point_cloud,
        "std_msgs/String": messages.text,
        "std_msgs/Float64MultiArray": messages.numbers,
        "std_msgs/Float64Array": messages.numbers,
        "geometry_msgs/PoseStamped": messages.pose_stamped,
        "nav_msgs/OccupancyGrid": messages.occupancy_grid,
        "nav2_msgs/VoxelGrid": messages.voxel_grid,
        "costmap_2d/VoxelGrid": messages.voxel_grid,
        "rcl_interfaces/Log": messages.log,
        "rosgraph_msgs/Log": messages.log_of_ros_1,
    }
)
"""By type, named as in ROS 1 (``sensor_msgs/Imu``), which ROS 2 calls ``sensor_msgs/msg/Imu``."""


def needs_reflection(schema_name: str) -> bool:
    """Whether Rerun's reader maps the type from structs, so that it takes the decoder ``ros2_reflection`` too.

    >>> needs_reflection("std_msgs/msg/String"), needs_reflection("sensor_msgs/msg/Imu")
    (True, False)
    """
    return _in_ros_1(schema_name) in _REFLECTED


@lru_cache(maxsize=256)
def ros2_lenses(schema_name: str, topic: str) -> tuple[DeriveLens, ...]:
    """The lenses for messages of a type on a topic; none for types without a mapping.

    The type is named as ROS 2 does (``sensor_msgs/msg/Imu``), ROS 1 (``sensor_msgs/Imu``) or IDL
    (``sensor_msgs::msg::Imu``). Transforms on ``/tf_static`` come out without times.

    >>> [lens.input_component for lens in ros2_lenses("sensor_msgs/msg/Imu", "/imu")]
    ['sensor_msgs.msg.Imu:message']
    >>> ros2_lenses("my_msgs/msg/Wheel", "/wheel")
    ()
    """
    name = _in_ros_1(schema_name)
    return _made(schema_name, name, topic == STATIC_TOPIC) if name in TRANSFORMS or name in DECLARATIONS else ()


@lru_cache(maxsize=256)
def _made(schema_name: str, name: str, static: bool) -> tuple[DeriveLens, ...]:
    """The lenses, which do not change, made once for all parts of a recording that a process reads."""
    message = f"{schema_name.replace('::', '.').replace('/', '.')}:message"
    if name in TRANSFORMS:
        found = as_lenses(messages.transforms(message, static=static))
    else:
        found = as_lenses(DECLARATIONS[name](message))
    return tuple(replace(lens, strict=True) for lens in found if isinstance(lens, DeriveLens))


def _in_ros_1(schema_name: str) -> str:
    """The name as in ROS 1: ``sensor_msgs/Imu``."""
    parts = schema_name.replace("::", "/").split("/")
    return f"{parts[0]}/{parts[2]}" if len(parts) == 3 and parts[1] == "msg" else schema_name
