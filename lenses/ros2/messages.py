"""All packages but ``sensor_msgs``: one lens a message type.

Source: https://github.com/ros2/common_interfaces, https://github.com/ros2/rcl_interfaces and
https://github.com/ros2/geometry2. Each function takes the component that the decoded messages are in.
"""

from __future__ import annotations

from .. import archetypes as to
from ..lens import DeriveLens
from ..selector import Selector
from . import grids, logs
from .stamped import FRAME_ID, at_stamp, own_component


def transforms(message: str, *, static: bool) -> DeriveLens:
    """``tf2_msgs/TFMessage``: one row a transform, at the time of each; without times on ``/tf_static``."""
    each = ".transforms[]"
    lens = (
        DeriveLens(message, scatter=True, keep_empty=False, static=static)
        .to_component(to.PARENT_FRAME, f"{each}.header.frame_id")
        .to_component(to.CHILD_FRAME, f"{each}.child_frame_id")
        .to_transform3d(f"{each}.transform.translation", f"{each}.transform.rotation")
    )
    return at_stamp(lens, f"{each}.header.stamp")


def pose_stamped(message: str) -> DeriveLens:
    """``geometry_msgs/PoseStamped``: the pose of what is logged at the entity."""
    place, turn = ".pose.position", ".pose.orientation"
    return (
        at_stamp(DeriveLens(message))
        .to_component(to.COORDINATE_FRAME, FRAME_ID)
        .to_component(to.POSE_TRANSLATIONS, Selector.pack(*(f"{place}.{axis}" for axis in "xyz")))
        .to_component(to.POSE_QUATERNIONS, Selector.pack(*(f"{turn}.{axis}" for axis in "xyzw")))
    )


def occupancy_grid(message: str) -> DeriveLens:
    """``nav_msgs/OccupancyGrid``: a map whose cells are pixels, in the colours that RViz shows them in."""
    place, turn = ".info.origin.position", ".info.origin.orientation"
    grid = Selector(".")
    return (
        at_stamp(DeriveLens(message))
        .where(grid.pipe(grids.are_whole), otherwise="it does not have a cell for each of its width times its height")
        .to_component(to.COORDINATE_FRAME, FRAME_ID)
        .to_component(to.GRID_DATA, grid.pipe(grids.cells))
        .to_component(to.GRID_FORMAT, Selector(".info").pipe(grids.formats))
        .to_component(to.GRID_CELL_SIZE, Selector(".info.resolution").cast("float32"))
        .to_component(to.GRID_TRANSLATION, Selector.pack(*(f"{place}.{axis}" for axis in "xyz")))
        .to_component(to.GRID_QUATERNION, Selector.pack(*(f"{turn}.{axis}" for axis in "xyzw")))
        .to_component(to.GRID_COLORMAP, grid.pipe(grids.colour_maps))
    )


def voxel_grid(message: str) -> DeriveLens:
    """``nav2_msgs/VoxelGrid``: the cells that are known, marked ones red and of value 1, free ones green and of 0."""
    grid = Selector(".")
    known = grid.pipe(grids.known_voxels)
    return (
        at_stamp(DeriveLens(message))
        .where(grid.pipe(grids.are_columns), otherwise="it does not have size_x times size_y columns")
        .to_component(to.COORDINATE_FRAME, FRAME_ID)
        .to_component(to.VOXEL_INDICES, known.pipe(Selector(".indices[]")))
        .to_component(to.VOXEL_SIZE, Selector.pack(*(f".resolutions.{axis}" for axis in "xyz")))
        .to_component(to.VOXEL_COLORS, known.pipe(Selector(".colors[]")))
        .to_component(to.VOXEL_VALUES, known.pipe(Selector(".values[]")))
        .to_component(to.VOXEL_OPACITY, grid.pipe(grids.half_opaque))
        .to_component(to.VOXEL_TRANSLATION, Selector.pack(*(f".origin.{axis}" for axis in "xyz")))
    )


def text(message: str) -> DeriveLens:
    """``std_msgs/String``."""
    return DeriveLens(message).to_component(to.TEXT_DOCUMENT, ".data")


def numbers(message: str) -> DeriveLens:
    """``std_msgs/Float64MultiArray``: a series for each number, whatever the layout."""
    return DeriveLens(message).to_scalars(".data[]")


def log(message: str) -> DeriveLens:
    """``rcl_interfaces/Log``: a line of a log; where in the code it comes from beside it."""
    return _line(at_stamp(DeriveLens(message), ".stamp"), Selector(".level"))


def log_of_ros_1(message: str) -> DeriveLens:
    """``rosgraph_msgs/Log``, likewise."""
    return _line(at_stamp(DeriveLens(message)), Selector(".level").pipe(logs.of_ros_1))


def _line(log: DeriveLens, level: Selector) -> DeriveLens:
    lens = (
        log.to_component(to.LOG_TEXT, Selector(".").pipe(logs.lines))
        .to_component(to.LOG_LEVEL, level.pipe(logs.levels))
        .to_component(to.LOG_COLOR, level.pipe(logs.colours))
    )
    for field in ("file", "function", "line"):
        lens = lens.to_component(own_component("rcl_interfaces.msg.Log", field, prefix=False), f".{field}")
    return lens
