"""The beginning of most ROS messages: a time and a frame."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...engine.chunk import ComponentDescriptor
from ..lens import DeriveLens
from ..selector import Selector

STAMP_TIMELINE: Final = "ros2_timestamp"
"""The timeline of the times in messages' headers."""

IMAGE_PLANE: Final = "_image_plane"
"""The suffix that makes the name of a camera's frame that of the frame of its images."""

FRAME_ID: Final = ".header.frame_id"


def at_stamp(lens: DeriveLens, stamp: str = ".header.stamp") -> DeriveLens:
    """The lens with the timeline ``ros2_timestamp``, from a stamp of seconds and nanoseconds, as int64 ns.

    >>> at_stamp(DeriveLens("sensor_msgs.msg.Imu:message")).timelines[0].name
    'ros2_timestamp'
    """
    return lens.to_timeline(STAMP_TIMELINE, "timestamp_ns", Selector(stamp).nanoseconds())


def image_plane(frames: pa.Array) -> pa.Array:
    """The frames of images, by the frames (string) of their cameras; a camera without one has none for its images.

    >>> image_plane(pa.array(["camera", ""])).to_pylist()
    ['camera_image_plane', '']
    """
    planes = pc.binary_join_element_wise(frames, IMAGE_PLANE, "")
    return pc.if_else(pc.equal(frames, ""), frames, planes)


def own_component(
    message_type: str, field: str, kind: str | None = None, *, prefix: bool = True
) -> ComponentDescriptor:
    """The component of a field that has no place in an archetype; ``kind`` is the component type, of Rerun's, if any.

    >>> str(own_component("sensor_msgs.msg.Imu", "orientation"))
    'sensor_msgs.msg.Imu:orientation'
    >>> str(own_component("sensor_msgs.msg.NavSatFix", "altitude", prefix=False))
    'altitude'
    """
    name = f"{message_type}:{field}" if prefix else field
    return ComponentDescriptor(name, message_type, None if kind is None else f"rerun.components.{kind}")
