"""``sensor_msgs``: one lens, or a few, a message type.

Source: https://github.com/ros2/common_interfaces/tree/rolling/sensor_msgs. Each function takes the component that the
decoded messages are in, ``sensor_msgs.msg.Imu:message``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from .. import archetypes as to
from ..blobs import blobs
from ..lens import DeriveLens
from ..selector import Selector, lists
from . import images, points
from .stamped import FRAME_ID, at_stamp, image_plane, own_component

_IMAGE_FRAME = Selector(FRAME_ID).pipe(image_plane)


def imu(message: str) -> DeriveLens:
    """``Imu``: angular velocity (rad/s) and linear acceleration (m/s²) as six series; its orientation beside them."""
    turn, pull, pose = ".angular_velocity", ".linear_acceleration", ".orientation"
    orientation = Selector.pack(f"{pose}.x", f"{pose}.y", f"{pose}.z", f"{pose}.w", type="float64").pipe(Selector("[]"))
    return (
        at_stamp(DeriveLens(message))
        .to_component(to.COORDINATE_FRAME, FRAME_ID)
        .to_scalars(
            *(f"{field}.{axis}" for field in (turn, pull) for axis in "xyz"),
            names=[f"{sensor}/{axis}" for sensor in ("gyroscope", "accelerometer") for axis in "xyz"],
        )
        .to_component(own_component("sensor_msgs.msg.Imu", "orientation"), orientation)
    )


def series(message: str, fields: Sequence[str]) -> DeriveLens:
    """A series for each of the named fields: ``Temperature``, ``Range``, ``BatteryState``, …"""
    return at_stamp(DeriveLens(message)).to_scalars(*(f".{field}" for field in fields), names=fields)


def magnetic_field(message: str) -> DeriveLens:
    """``MagneticField``: an arrow (tesla)."""
    field = ".magnetic_field"
    return (
        at_stamp(DeriveLens(message))
        .to_component(to.COORDINATE_FRAME, FRAME_ID)
        .to_component(to.ARROW_VECTORS, Selector.pack(f"{field}.x", f"{field}.y", f"{field}.z"))
    )


def nav_sat_fix(message: str) -> DeriveLens:
    """``NavSatFix``: a point on the map (degrees); its altitude (m) beside it."""
    return (
        at_stamp(DeriveLens(message))
        .to_component(to.COORDINATE_FRAME, FRAME_ID)
        .to_component(to.GEO_POSITIONS, Selector.pack(".latitude", ".longitude", type="float64"))
        .to_component(own_component("sensor_msgs.msg.NavSatFix", "altitude", prefix=False), ".altitude")
    )


def joint_state(message: str) -> tuple[DeriveLens, ...]:
    """``JointState``: a series for each joint, at entities below for positions, velocities and efforts."""
    return (
        *(
            at_stamp(DeriveLens(message, output_child=field))
            .to_scalars(f".{field}[]")
            .to_component(to.SERIES_NAMES, ".name[]")
            for field in ("position", "velocity", "effort")
        ),
        at_stamp(DeriveLens(message)).to_component(to.COORDINATE_FRAME, FRAME_ID),
    )


def joy(message: str) -> tuple[DeriveLens, ...]:
    """``Joy``: a series for each axis and for each button, at entities below."""
    return (
        *(at_stamp(DeriveLens(message, output_child=f)).to_scalars(f".{f}[]") for f in ("axes", "buttons")),
        at_stamp(DeriveLens(message)).to_component(to.COORDINATE_FRAME, FRAME_ID),
    )


def image(message: str) -> tuple[DeriveLens, ...]:
    """``Image``: an image, or a depth image where its encoding has one channel. Its bytes stay as they are."""
    encoding, pixels, layout = Selector(".encoding"), Selector(".data").pipe(blobs), Selector(".").pipe(images.formats)
    stamped, unknown = at_stamp(DeriveLens(message)), "its encoding is none that Rerun has a format for"
    colour = stamped.where(encoding.pipe(images.are_colour), otherwise=unknown)
    depth = stamped.where(encoding.pipe(images.are_depth), otherwise=unknown)
    return tuple(
        lens.to_component(to.COORDINATE_FRAME, _IMAGE_FRAME).to_component(buffer, pixels).to_component(form, layout)
        for lens, buffer, form in (
            (colour, to.IMAGE_BUFFER, to.IMAGE_FORMAT),
            (depth, to.DEPTH_BUFFER, to.DEPTH_FORMAT),
        )
    )


def compressed_image(message: str) -> tuple[DeriveLens, ...]:
    """``CompressedImage``: an encoded image, a depth image in RVL, or a sample of H.264 video."""
    kind, data = Selector(".format").pipe(images.kinds), Selector(".data").pipe(blobs)
    picture = DeriveLens(message).where(kind.pipe(images.are_pictures)).to_component(to.ENCODED_IMAGE_BLOB, data)
    depth = (
        DeriveLens(message)
        .where(kind.pipe(images.are_rvl))
        .to_component(to.ENCODED_DEPTH_BLOB, data)
        .to_component(to.ENCODED_DEPTH_MEDIA_TYPE, kind.pipe(images.rvl_media_types))
    )
    video = (
        DeriveLens(message)
        .where(kind.pipe(images.are_video))
        .to_component(to.VIDEO_SAMPLE, data)
        .to_constant(to.VIDEO_CODEC, pa.array([images.H264], pa.uint32()))
    )
    return tuple(at_stamp(lens).to_component(to.COORDINATE_FRAME, _IMAGE_FRAME) for lens in (picture, depth, video))


def camera_info(message: str) -> DeriveLens:
    """``CameraInfo``: a pinhole camera by ``k``, between the frames of the camera and of its image (pixels)."""
    return (
        at_stamp(DeriveLens(message))
        .where(Selector(".").pipe(_has_nine), otherwise="its k does not have nine numbers")
        .to_component(to.COORDINATE_FRAME, FRAME_ID)
        .to_component(to.PINHOLE_PARENT_FRAME, FRAME_ID)
        .to_component(to.PINHOLE_CHILD_FRAME, _IMAGE_FRAME)
        .to_component(to.PINHOLE_RESOLUTION, Selector.pack(".width", ".height"))
        .to_component(to.PINHOLE_PROJECTION, Selector(".").pipe(_by_column))
    )


def point_cloud(message: str) -> DeriveLens:
    """``PointCloud2``: positions, a component for each other field of the points, and the message as it is."""
    cloud = Selector(".").pipe(points.unpacked)
    lens = (
        at_stamp(DeriveLens(message))
        .where(cloud.pipe(Selector(".readable")), otherwise="its fields do not fit its points")
        .to_component(to.COORDINATE_FRAME, FRAME_ID)
        .to_component(to.POINT_POSITIONS, cloud.pipe(Selector(".positions[]")))
        .to_components("Points3D:", cloud.pipe(Selector(".fields")), archetype="rerun.archetypes.Points3D")
        .to_component(own_component(_CLOUD, "data", "Blob"), Selector(".data").pipe(blobs), nullable=False)
        .to_component(own_component(_CLOUD, "fields"), Selector(".fields").pipe(points.field_table))
    )
    for field in ("height", "width", "point_step", "row_step", "is_bigendian", "is_dense"):
        lens = lens.to_component(own_component(_CLOUD, field), f".{field}")
    return lens


_CLOUD = "sensor_msgs.msg.PointCloud2"


def _intrinsics(cameras: pa.StructArray) -> pa.ListArray | None:
    """``k``, row by row, which ROS 1 calls ``K``."""
    name = next((name for name in ("k", "K") if cameras.type.get_field_index(name) >= 0), None)
    return None if name is None else cameras.field(name)


def _has_nine(cameras: pa.StructArray) -> pa.Array | None:
    k = _intrinsics(cameras)
    return None if k is None else pa.array(np.diff(lists.offsets_of(k)) == 9)


def _by_column(cameras: pa.StructArray) -> pa.Array | None:
    """Rerun has the columns of a matrix one after the other."""
    k = _intrinsics(cameras)
    if k is None:
        return None
    matrices = k.flatten().to_numpy(zero_copy_only=False).astype(np.float32).reshape(-1, 3, 3).swapaxes(1, 2)
    kind = pa.list_(pa.field("item", pa.float32(), nullable=False), 9)
    return pa.Array.from_buffers(kind, len(k), [None], children=[pa.array(matrices.reshape(-1))])
