"""Foxglove's messages and their meaning: one lens a message type, from the decoded message to Rerun's archetypes.

Source of the types: the Foxglove schemas, https://docs.foxglove.dev/docs/sdk/schemas. A lens names the component of the
messages, the fields that become Rerun's components, and the field with the time. Messages with other fields stay as
they are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from .. import archetypes as to
from ..arrays import blobs
from ..lens import DeriveLens
from ..selector import Selector
from ..sensor_layouts import DATA_ENDS_EARLY, DATA_GOES_ON
from . import values

_PACKAGES: Final = ("foxglove.", "foxglove::", "foxglove_msgs/msg/", "foxglove_msgs::msg::", "foxglove_msgs/")


@lru_cache(maxsize=256)
def foxglove_lenses(schema_name: str) -> tuple[DeriveLens, ...]:
    """The lenses for a type's messages; none for types without a mapping.

    The type is named as protobuf and JSON name it (``foxglove.PoseInFrame``), IDL (``foxglove::PoseInFrame``), ROS 2
    (``foxglove_msgs/msg/PoseInFrame``) or ROS 1 (``foxglove_msgs/PoseInFrame``).

    >>> [lens.input_component for lens in foxglove_lenses("foxglove.Log")]
    ['foxglove.Log:message']
    """
    package = next((p for p in _PACKAGES if schema_name.startswith(p)), None)
    if package is None:
        return ()
    declare = _MAPPINGS.get(schema_name.removeprefix(package))
    return () if declare is None else (declare(f"{schema_name.replace('::', '.').replace('/', '.')}:message"),)


def _frame_transform(messages: str) -> DeriveLens:
    return _transforms(DeriveLens(messages))


def _frame_transforms(messages: str) -> DeriveLens:
    return _transforms(DeriveLens(messages, scatter=True, keep_empty=False), ".transforms[]")


def _transforms(lens: DeriveLens, of: str = "") -> DeriveLens:
    return (
        _timed(lens, of)
        .to_component(to.TRANSLATION, Selector(f"{of}.translation").pipe(values.vectors), required=True)
        .to_component(to.QUATERNION, Selector(f"{of}.rotation").pipe(values.quaternions), required=True)
        .to_component(to.PARENT_FRAME, f"{of}.parent_frame_id")
        .to_component(to.CHILD_FRAME, f"{of}.child_frame_id")
    )


def _pose_in_frame(messages: str) -> DeriveLens:
    return _poses(_in_frame(messages), ".pose")


def _poses_in_frame(messages: str) -> DeriveLens:
    return _poses(_in_frame(messages), ".poses[]")


def _poses(lens: DeriveLens, poses: str, *, required: bool = True) -> DeriveLens:
    positions, orientations = Selector(f"{poses}.position"), Selector(f"{poses}.orientation")
    return lens.to_component(to.POSE_TRANSLATIONS, positions.pipe(values.vectors), required=required).to_component(
        to.POSE_QUATERNIONS, orientations.pipe(values.quaternions), required=required
    )


def _compressed_image(messages: str) -> DeriveLens:
    return (
        _of_camera(messages)
        .to_component(to.ENCODED_IMAGE_BLOB, Selector(".data").pipe(blobs), required=True)
        .to_component(to.ENCODED_IMAGE_MEDIA_TYPE, Selector(".format").pipe(values.media_types))
    )


def _compressed_video(messages: str) -> DeriveLens:
    return (
        _of_camera(messages)
        .where(
            Selector(".format").pipe(values.is_codec), otherwise=f"its format is not one of {', '.join(values.CODECS)}"
        )
        .to_component(to.VIDEO_CODEC, Selector(".format").pipe(values.codecs), required=True)
        .to_component(to.VIDEO_SAMPLE, Selector(".data").pipe(blobs), required=True)
    )


def _raw_image(messages: str) -> DeriveLens:
    image = Selector(".")
    pixels = image.pipe(values.raw_pixels)
    return (
        _of_camera(messages)
        .where(image.pipe(values.is_known_image), otherwise="its encoding has no image format")
        .to_component(to.IMAGE_FORMAT, image.pipe(values.raw_image_formats))
        .to_component(to.IMAGE_BUFFER, pixels.pipe(Selector(".buffer")))
        .remark(pixels.pipe(Selector(".short")), DATA_ENDS_EARLY)
        .remark(pixels.pipe(Selector(".long")), DATA_GOES_ON)
    )


def _point_cloud(messages: str) -> DeriveLens:
    cloud = Selector(".").pipe(values.cloud_points)
    return (
        _poses(_in_frame(messages), ".pose!", required=False)
        .where(cloud.pipe(Selector(".readable")), otherwise="its points have no readable x, y and z")
        .to_component(to.POINT_POSITIONS, cloud.pipe(Selector(".positions[]")))
        .to_component(to.POINT_COLORS, cloud.pipe(Selector(".colors[]")))
        .remark(cloud.pipe(Selector(".partial")), "have data that ends within a point, which is left out")
    )


def _voxel_grid(messages: str) -> DeriveLens:
    grid = Selector(".").pipe(values.grid_voxels)
    place, turn = Selector(".pose!.position"), Selector(".pose!.orientation")
    return (
        _in_frame(messages)
        .where(grid.pipe(Selector(".readable")), otherwise="its cells overlap, or there are none")
        .to_component(to.VOXEL_INDICES, grid.pipe(Selector(".indices[]")))
        .to_component(to.VOXEL_SIZE, Selector(".cell_size").pipe(values.vectors), required=True)
        .to_component(to.VOXEL_COLORS, grid.pipe(Selector(".colors[]")))
        .to_component(to.VOXEL_TRANSLATION, place.pipe(values.vectors))
        .to_component(to.VOXEL_QUATERNION, turn.pipe(values.quaternions))
        .remark(grid.pipe(Selector(".partial")), "have data that ends within a slice, which is left out")
    )


def _camera_calibration(messages: str) -> DeriveLens:
    calibration = Selector(".")
    return (
        _timed(DeriveLens(messages))
        .where(calibration.pipe(values.is_calibrated), otherwise="its matrix K does not have nine numbers")
        .to_component(to.PINHOLE_PROJECTION, calibration.pipe(values.projections))
        .to_component(to.PINHOLE_RESOLUTION, calibration.pipe(values.resolutions))
        .to_component(to.PINHOLE_PARENT_FRAME, ".frame_id")
        .to_component(to.PINHOLE_CHILD_FRAME, Selector(".frame_id").pipe(values.image_planes))
    )


def _location_fix(messages: str) -> DeriveLens:
    return (
        _timed(DeriveLens(messages))
        .to_component(to.GEO_POSITIONS, Selector(".").pipe(values.coordinates), required=True)
        .to_component(to.GEO_COLORS, Selector(".color!").pipe(values.colors))
        .to_component(to.COORDINATE_FRAME, ".frame_id!")
    )


def _location_fixes(messages: str) -> DeriveLens:
    return (
        _timed(DeriveLens(messages, scatter=True, keep_empty=False), ".fixes[]")
        .to_component(to.GEO_POSITIONS, Selector(".fixes[]").pipe(values.coordinates), required=True)
        .to_component(to.GEO_COLORS, Selector(".fixes[].color").pipe(values.colors))
        .to_component(to.COORDINATE_FRAME, ".fixes[].frame_id")
    )


def _log(messages: str) -> DeriveLens:
    return (
        _timed(DeriveLens(messages))
        .to_component(to.LOG_TEXT, ".message", required=True)
        .to_component(to.LOG_LEVEL, Selector(".level").pipe(values.levels).pipe(Selector("(.)!")))
    )


def _in_frame(messages: str) -> DeriveLens:
    """Return a lens whose outputs are in the message's frame."""
    return _timed(DeriveLens(messages)).to_component(to.COORDINATE_FRAME, ".frame_id")


def _of_camera(messages: str) -> DeriveLens:
    """Return a lens whose outputs are in the image plane of the camera whose frame the message names."""
    frame = Selector(".frame_id").pipe(values.image_planes)
    return _timed(DeriveLens(messages)).to_component(to.COORDINATE_FRAME, frame)


def _timed(lens: DeriveLens, of: str = "") -> DeriveLens:
    """Add the message's time or, with ``of``, the time of each of these parts."""
    return lens.to_timeline("timestamp", "timestamp_ns", Selector(f"{of}.timestamp").pipe(values.stamps))


_MAPPINGS: Final = MappingProxyType[str, Callable[[str], DeriveLens]](
    {
        "CameraCalibration": _camera_calibration,
        "CompressedImage": _compressed_image,
        "CompressedVideo": _compressed_video,
        "FrameTransform": _frame_transform,
        "FrameTransforms": _frame_transforms,
        "LocationFix": _location_fix,
        "LocationFixes": _location_fixes,
        "Log": _log,
        "PointCloud": _point_cloud,
        "PoseInFrame": _pose_in_frame,
        "PosesInFrame": _poses_in_frame,
        "RawImage": _raw_image,
        "VoxelGrid": _voxel_grid,
    }
)
"""By the name of the type in its package."""
