"""``ros2msg`` schema text: a definition followed by the definitions of the types it uses."""

from __future__ import annotations

from .message_types import Struct
from .ros_types import ROS2, parse_ros


def parse_ros2(schema_name: str, schema_data: bytes) -> Struct:
    """The type that ``schema_data`` defines for ``schema_name``; see :func:`parse_ros`."""
    return parse_ros(schema_name, schema_data, ROS2)
