"""What the common ROS 2 messages mean: lenses from decoded messages to Rerun's archetypes."""

from __future__ import annotations

from typing import Final

from .lens import DeriveLens

REFLECTED: Final = frozenset(
    {
        "std_msgs/msg/String",
        "rcl_interfaces/msg/Log",
        "geometry_msgs/msg/PoseStamped",
        "nav_msgs/msg/OccupancyGrid",
    }
)
"""Types that Rerun's reader maps from structs, so that they need the decoder ``ros2_reflection`` too."""


def ros2_lenses(schema_name: str, topic: str) -> tuple[DeriveLens, ...]:
    """The lenses for messages of a type (``sensor_msgs/msg/Imu``) on a topic; none for types without a mapping."""
    del schema_name, topic
    return ()
