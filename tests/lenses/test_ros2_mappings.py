"""What ROS messages mean, type by type."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.errors import LensError
from chunkmill.lenses.ros2 import needs_reflection, ros2_lenses
from chunkmill.lenses.ros2.mappings import DECLARATIONS, TRANSFORMS
from ros_messages import (
    DOUBLES,
    HEADER,
    QUATERNION,
    STAMP,
    VECTOR,
    columns,
    header,
    mapped,
    message,
    times,
    types,
    vector,
)

IMU = message({"orientation": QUATERNION, "angular_velocity": VECTOR, "linear_acceleration": VECTOR})


def imu(i: int) -> dict[str, Any]:
    return {
        "header": header(i),
        "orientation": vector(0.1 * i, 0.2, 0.3, 0.4),
        "angular_velocity": vector(1 + i, 2, 3),
        "linear_acceleration": vector(4, 5, 6 + i),
    }


def test_imu() -> None:
    found = mapped("sensor_msgs/msg/Imu", IMU, [imu(0), imu(1)])
    assert [c.is_static for c in found] == [False, True]
    assert columns(found) == {
        "CoordinateFrame:frame": [["base"], ["base"]],
        "Scalars:scalars": [[1, 2, 3, 4, 5, 6], [2, 2, 3, 4, 5, 7]],
        "SeriesLines:names": [
            ["gyroscope/x", "gyroscope/y", "gyroscope/z", "accelerometer/x", "accelerometer/y", "accelerometer/z"]
        ],
        "sensor_msgs.msg.Imu:orientation": [[0, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]],
    }
    assert times(found) == [5, 1_000_000_005]
    orientation = found[0].data.components[-1].descriptor
    assert (orientation.archetype, orientation.component_type) == ("sensor_msgs.msg.Imu", None)


@pytest.mark.parametrize("name", ["sensor_msgs/msg/Imu", "sensor_msgs/Imu", "sensor_msgs::msg::Imu"])
def test_the_names_of_ros_1_and_2_mean_the_same(name: str) -> None:
    found = mapped(name, IMU, [imu(0)])
    assert columns(found)["sensor_msgs.msg.Imu:orientation"] == [[0, 0.2, 0.3, 0.4]]


@pytest.mark.parametrize("name", ["my_msgs/msg/Imu", "sensor_msgs/srv/Imu", "sensor_msgs/msg/msg/Imu", "Imu", ""])
def test_other_types_have_no_mapping(name: str) -> None:
    assert ros2_lenses(name, "/t") == ()


def test_a_stamp_may_be_negative_or_of_ros_1() -> None:
    fields = dict.fromkeys(("range", "min_range", "max_range"), pa.float64())
    row = {"header": {"stamp": {"sec": -5, "nanosec": 1}, "frame_id": ""}, **dict.fromkeys(fields, 0.5)}
    assert times(mapped("sensor_msgs/msg/Range", message(fields), [row])) == [-4_999_999_999]
    old = pa.struct([("seq", pa.uint32()), ("stamp", pa.struct([("secs", pa.uint32()), ("nsecs", pa.uint32())]))])
    row["header"] = {"seq": 1, "stamp": {"secs": 3_000_000_000, "nsecs": 7}}
    kind = pa.struct([("header", old), *fields.items()])
    assert times(mapped("sensor_msgs/Range", kind, [row])) == [3_000_000_000_000_000_007]


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("Range", ["range", "min_range", "max_range"]),
        ("BatteryState", ["percentage", "voltage", "current", "charge", "temperature"]),
    ],
)
def test_series(name: str, fields: list[str]) -> None:
    kind = message({**{f: pa.float32() for f in reversed(fields)}, "other": pa.string()})
    row = {"header": header(), "other": "x", **{f: i / 4 for i, f in enumerate(fields)}}
    found = mapped(f"sensor_msgs/msg/{name}", kind, [row])
    assert columns(found) == {"Scalars:scalars": [[i / 4 for i in range(len(fields))]], "SeriesLines:names": [fields]}
    assert types(found)["Scalars:scalars"] == "list<item: double>"
    assert times(found) == [5]


@pytest.mark.parametrize(
    ("name", "field", "unit"),
    [
        ("Temperature", "temperature", "°C"),
        ("FluidPressure", "fluid_pressure", "Pa"),
        ("RelativeHumidity", "relative_humidity", None),
        ("Illuminance", "illuminance", "lux"),
    ],
)
def test_measurements(name: str, field: str, unit: str | None) -> None:
    kind = message({field: pa.float32(), "variance": pa.float64()})
    found = mapped(f"sensor_msgs/msg/{name}", kind, [{"header": header(), field: 20.5, "variance": 0.25}])
    assert columns(found) == {
        "CoordinateFrame:frame": [["base"]],
        "Measurements:values": [[20.5]],
        "Measurements:variances": [[0.25]],
        **({} if unit is None else {"Measurements:units": [[unit]]}),
        "Scalars:scalars": [[20.5]],
        "SeriesLines:names": [[field if unit is None else f"{field} ({unit})"]],
    }
    assert {types(found)[f"Measurements:{part}"] for part in ("values", "variances")} == {"list<item: double>"}
    assert times(found) == [5]


def test_magnetic_field() -> None:
    kind = message({"magnetic_field": VECTOR})
    found = mapped("sensor_msgs/msg/MagneticField", kind, [{"header": header(), "magnetic_field": vector(1, 2, 3e300)}])
    assert columns(found) == {"Arrows3D:vectors": [[[1, 2, float("inf")]]], "CoordinateFrame:frame": [["base"]]}
    assert types(found)["Arrows3D:vectors"] == "list<item: fixed_size_list<item: float not null>[3]>"


def test_nav_sat_fix() -> None:
    kind = message({"latitude": pa.float64(), "longitude": pa.float64(), "altitude": pa.float64()})
    row = {"header": header(), "latitude": 47.25, "longitude": 8.5, "altitude": 400.0}
    found = mapped("sensor_msgs/msg/NavSatFix", kind, [row])
    assert columns(found) == {
        "CoordinateFrame:frame": [["base"]],
        "GeoPoints:positions": [[[47.25, 8.5]]],
        "altitude": [[400.0]],
    }
    assert types(found)["GeoPoints:positions"] == "list<item: fixed_size_list<item: double not null>[2]>"


def test_joint_state() -> None:
    names = pa.list_(pa.string())
    kind = message({"name": names, "position": DOUBLES, "velocity": DOUBLES, "effort": DOUBLES})
    rows = [
        {"header": header(0), "name": ["a", "b"], "position": [1.0, 2.0], "velocity": [], "effort": [0.5, 0.25]},
        {"header": header(1), "name": ["a"], "position": [3.0], "velocity": [4.0], "effort": []},
    ]
    found = mapped("sensor_msgs/msg/JointState", kind, rows, "/arm/joints")
    assert columns(found, "/arm/joints") == {"CoordinateFrame:frame": [["base"], ["base"]]}
    for field, values in (
        ("position", [[1, 2], [3]]),
        ("velocity", [[], [4]]),
        ("effort", [[0.5, 0.25], []]),
    ):
        below = columns(found, f"/arm/joints/{field}")
        assert below == {"Scalars:scalars": values, "SeriesLines:names": [["a", "b"], ["a"]]}
    assert times(found) == [5, 1_000_000_005] * 4
    assert not any(c.is_static for c in found)


def test_joy() -> None:
    kind = message({"axes": pa.list_(pa.float32()), "buttons": pa.list_(pa.int32())})
    found = mapped("sensor_msgs/msg/Joy", kind, [{"header": header(), "axes": [0.5, -1], "buttons": [1, 0, 1]}])
    assert columns(found, "/t/axes") == {"Scalars:scalars": [[0.5, -1]]}
    assert columns(found, "/t/buttons") == {"Scalars:scalars": [[1, 0, 1]]}
    assert columns(found) == {"CoordinateFrame:frame": [["base"]]}
    assert types(found)["Scalars:scalars"] == "list<item: double>"


CAMERA = {"height": pa.uint32(), "width": pa.uint32()}


@pytest.mark.parametrize("k", ["k", "K"])
def test_camera_info(k: str) -> None:
    rows = [
        {"header": header(0, "cam"), "height": 480, "width": 640, k: [float(i) for i in range(9)]},
        {"header": header(1, ""), "height": 2, "width": 1, k: [9.0] * 9},
    ]
    found = mapped("sensor_msgs/msg/CameraInfo", message({**CAMERA, k: DOUBLES}), rows)
    assert columns(found) == {
        "CoordinateFrame:frame": [["cam"], [""]],
        "Pinhole:parent_frame": [["cam"], [""]],
        "Pinhole:child_frame": [["cam_image_plane"], [""]],
        "Pinhole:resolution": [[[640, 480]], [[1, 2]]],
        "Pinhole:image_from_camera": [[[0, 3, 6, 1, 4, 7, 2, 5, 8]], [[9] * 9]],
    }
    assert types(found)["Pinhole:image_from_camera"] == "list<item: fixed_size_list<item: float not null>[9]>"
    assert times(found) == [5, 1_000_000_005]


def test_a_camera_whose_matrix_has_no_nine_numbers_stays_a_message() -> None:
    row = {"header": header(), "height": 2, "width": 1}
    rows = [{**row, "k": [1.0] * 9}, {**row, "k": [1.0] * 8}, {**row, "k": []}, {**row, "k": [2.0] * 9}]
    found = columns(mapped("sensor_msgs/msg/CameraInfo", message({**CAMERA, "k": DOUBLES}), rows))
    assert found["Pinhole:image_from_camera"] == [[[1] * 9], [[2] * 9]]
    assert [cell[0]["k"] for cell in found["sensor_msgs.msg.CameraInfo:message"]] == [[1.0] * 8, []]


TRANSFORM = pa.struct(
    {"header": HEADER, "child_frame_id": pa.string(),
     "transform": pa.struct({"translation": VECTOR, "rotation": QUATERNION})}
)  # fmt: skip


def transform(i: int, parent: str, child: str) -> dict[str, Any]:
    moved = {"translation": vector(i, 2, 3), "rotation": vector(0, 0, 0, 1)}
    return {"header": header(i, parent), "child_frame_id": child, "transform": moved}


TRANSFORMS_ROWS = [
    {"transforms": [transform(0, "map", "odom"), transform(1, "odom", "base")]},
    {"transforms": []},
    {"transforms": [transform(2, "map", "odom")]},
]


@pytest.mark.parametrize("name", ["tf2_msgs/msg/TFMessage", "tf2_msgs/TFMessage", "tf/tfMessage"])
@pytest.mark.parametrize(
    ("topic", "static"), [("/tf", False), ("/a/b_tf_static", False), ("/ns/tf_static", True), ("/tf_static", True)]
)
def test_transforms_are_a_row_each(name: str, topic: str, static: bool) -> None:
    kind = pa.struct({"transforms": pa.list_(TRANSFORM)})
    found = mapped(name, kind, TRANSFORMS_ROWS, topic)
    assert columns(found, topic) == {
        "Transform3D:parent_frame": [["map"], ["odom"], ["map"]],
        "Transform3D:child_frame": [["odom"], ["base"], ["odom"]],
        "Transform3D:translation": [[[0, 2, 3]], [[1, 2, 3]], [[2, 2, 3]]],
        "Transform3D:quaternion": [[[0, 0, 0, 1]]] * 3,
    }
    assert [c.is_static for c in found] == [static]
    assert times(found) == ([] if static else [5, 1_000_000_005, 2_000_000_005])
    assert times(found, "message_log_time") == ([] if static else [0, 0, 20])
    assert types(found)["Transform3D:translation"] == "list<item: fixed_size_list<item: float not null>[3]>"


def test_no_transform_at_all_is_no_row() -> None:
    kind = pa.struct({"transforms": pa.list_(TRANSFORM)})
    assert mapped("tf2_msgs/msg/TFMessage", kind, [{"transforms": []}] * 2) == []


POSE = pa.struct({"position": VECTOR, "orientation": QUATERNION})


def test_pose_stamped() -> None:
    row = {"header": header(), "pose": {"position": vector(1, 2, 3), "orientation": vector(0, 0, 0.5, 1)}}
    found = mapped("geometry_msgs/msg/PoseStamped", message({"pose": POSE}), [row])
    assert columns(found) == {
        "CoordinateFrame:frame": [["base"]],
        "InstancePoses3D:translations": [[[1, 2, 3]]],
        "InstancePoses3D:quaternions": [[[0, 0, 0.5, 1]]],
    }
    assert times(found) == [5]


INFO = pa.struct({"resolution": pa.float32(), "width": pa.uint32(), "height": pa.uint32(), "origin": POSE})
GRID = message({"info": INFO, "data": pa.list_(pa.int8())})


def grid(width: int, height: int, data: list[int]) -> dict[str, Any]:
    origin = {"position": vector(1, 2, 3), "orientation": vector(0, 0, 0, 1)}
    info = {"resolution": 0.5, "width": width, "height": height, "origin": origin}
    return {"header": header(), "info": info, "data": data}


def test_an_occupancy_grid_begins_with_its_upper_row() -> None:
    rows = [grid(2, 3, [0, 1, 2, 3, -1, 100]), grid(2, 3, [5, 4, 3, 2, 1, 0]), grid(1, 2, [7, 8]), grid(0, 5, [])]
    found = mapped("nav_msgs/msg/OccupancyGrid", GRID, rows)
    cells = columns(found)
    assert cells["GridMap:data"] == [[[255, 100, 2, 3, 0, 1]], [[1, 0, 3, 2, 5, 4]], [[8, 7]], [[]]]
    shape = {"pixel_format": None, "color_model": 1, "channel_datatype": 6}
    assert cells["GridMap:format"][2] == [{"width": 1, "height": 2, **shape}]
    assert cells["GridMap:cell_size"] == [[0.5]] * 4
    assert cells["GridMap:translation"] == [[[1, 2, 3]]] * 4
    assert cells["GridMap:quaternion"] == [[[0, 0, 0, 1]]] * 4
    assert cells["GridMap:colormap"] == [[10]] * 4
    assert cells["CoordinateFrame:frame"] == [["base"]] * 4
    assert types(found)["GridMap:data"] == "list<item: list<item: uint8>>"


def test_a_grid_with_another_number_of_cells_stays_a_message() -> None:
    rows = [grid(2, 2, [1, 2, 3]), grid(2, 1, [1, 2]), grid(2**31, 2**31, []), grid(1, 1, [1, 2])]
    found = columns(mapped("nav_msgs/msg/OccupancyGrid", GRID, rows))
    assert found["GridMap:data"] == [[[1, 2]]]
    assert [cell[0]["data"] for cell in found["nav_msgs.msg.OccupancyGrid:message"]] == [[1, 2, 3], [], [1, 2]]


def test_text_and_numbers_have_no_time_of_their_own() -> None:
    text = mapped("std_msgs/msg/String", pa.struct({"data": pa.string()}), [{"data": "hello"}, {"data": ""}])
    assert columns(text) == {"TextDocument:text": [["hello"], [""]]}
    for name in ("Float64MultiArray", "Float64Array"):
        found = mapped(f"std_msgs/msg/{name}", pa.struct({"data": DOUBLES}), [{"data": [1.0, 2.0]}, {"data": []}])
        assert columns(found) == {"Scalars:scalars": [[1, 2], []]}
        assert times(text + found) == []


LOG = pa.struct(
    {"stamp": STAMP, "level": pa.uint8(), "name": pa.string(), "msg": pa.string(), "file": pa.string(),
     "function": pa.string(), "line": pa.uint32()}
)  # fmt: skip


def test_log() -> None:
    levels = [10, 20, 30, 40, 50, 0, 255]
    row = {"name": "node", "msg": "hi", "file": "f.py", "function": "fn", "line": 7}
    rows = [{"stamp": {"sec": i, "nanosec": 1}, "level": level, **row} for i, level in enumerate(levels)]
    found = mapped("rcl_interfaces/msg/Log", LOG, rows)
    assert columns(found) == {
        "TextLog:text": [["[node] hi"]] * 7,
        "TextLog:level": [["DEBUG"], ["INFO"], ["WARN"], ["ERROR"], ["CRITICAL"], ["UNKNOWN"], ["UNKNOWN"]],
        "TextLog:color": [[0x808080FF], [0x0080FFFF], [0xFFA500FF], [0xFF0000FF], [0x8B0000FF]] + [[0x808080FF]] * 2,
        "file": [["f.py"]] * 7,
        "function": [["fn"]] * 7,
        "line": [[7]] * 7,
    }
    assert times(found) == [i * 1_000_000_000 + 1 for i in range(7)]


def test_log_of_ros_1() -> None:
    fields = {field.name: field.type for field in LOG if field.name not in ("stamp", "level")}
    kind = message({"level": pa.int8(), **fields})
    row = {"name": "/node", "msg": "hi", "file": "f.cpp", "function": "fn", "line": 7}
    rows = [{"header": header(i), "level": level, **row} for i, level in enumerate([1, 2, 4, 8, 16, 3])]
    cells = columns(found := mapped("rosgraph_msgs/Log", kind, rows))
    assert cells["TextLog:level"] == [["DEBUG"], ["INFO"], ["WARN"], ["ERROR"], ["CRITICAL"], ["UNKNOWN"]]
    assert cells["TextLog:color"][3:] == [[0xFF0000FF], [0x8B0000FF], [0x808080FF]]
    assert cells["TextLog:text"] == [["[/node] hi"]] * 6
    assert cells["line"] == [[7]] * 6
    assert times(found)[:2] == [5, 1_000_000_005]


@pytest.mark.parametrize("name", sorted([*DECLARATIONS, *TRANSFORMS]))
def test_messages_of_another_make_fail_as_a_whole_and_are_lost_nowhere(name: str) -> None:
    kind = pa.struct({"unlike": pa.int32()})
    lenses = ros2_lenses(name, "/t")
    assert lenses
    assert all(lens.strict for lens in lenses)
    with pytest.raises(LensError, match=r"there is no such field|KeyError"):
        mapped(name, kind, [{"unlike": 1}])


@pytest.mark.parametrize("name", sorted([*DECLARATIONS, *TRANSFORMS]))
def test_mappings_travel_to_workers(name: str) -> None:
    lenses = ros2_lenses(name, "/t")
    assert pickle.loads(pickle.dumps(lenses)) == lenses


def test_five_types_need_the_reflection() -> None:
    need = {name for name in [*DECLARATIONS, *TRANSFORMS] if needs_reflection(name)}
    grids = {"nav_msgs/OccupancyGrid", "nav2_msgs/VoxelGrid"}
    assert need == {"std_msgs/String", "rcl_interfaces/Log", "geometry_msgs/PoseStamped"} | grids
    assert all(needs_reflection(name.replace("/", "/msg/")) for name in need)


def test_rows_stay_in_the_order_of_their_log_times() -> None:
    found = mapped("sensor_msgs/msg/Imu", IMU, [imu(3), imu(1), imu(2)])
    assert times(found) == [3_000_000_005, 1_000_000_005, 2_000_000_005]
