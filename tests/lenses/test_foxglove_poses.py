"""Foxglove's transforms, poses, positions and texts as Rerun's archetypes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.errors import LensError
from chunkmill.lenses.foxglove import foxglove_lenses
from foxglove_messages import DIALECTS, POSE, PROTOBUF, chunk, datatypes, mapped, stamp

POINT = {"x": 1.0, "y": 2.0, "z": 3.0}
TURN = {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0}
ORANGE = {"r": 1.0, "g": 0.5, "b": 0.0, "a": 1.0}


def transform(time: int | None, child: str = "base", **parts: Any) -> dict[str, Any]:
    return {
        "timestamp": None if time is None else stamp(time),
        "parent_frame_id": "map",
        "child_frame_id": child,
        "translation": POINT,
        "rotation": TURN,
    } | parts


def fix(latitude: float, color: Any = None, time: int = 5) -> dict[str, Any]:
    return {"timestamp": stamp(time), "frame_id": "gps", "latitude": latitude, "longitude": 8.0, "color": color}


def test_a_transform_and_several_in_one_message() -> None:
    (one,) = mapped("FrameTransform", [transform(3_000_000_007)])
    assert one == {
        "log": [0],
        "timestamp": [3_000_000_007],
        "Transform3D:translation": [[[1.0, 2.0, 3.0]]],
        "Transform3D:quaternion": [[[0.0, 0.0, 0.0, 1.0]]],
        "Transform3D:parent_frame": [["map"]],
        "Transform3D:child_frame": [["base"]],
    }
    (several,) = mapped(
        "FrameTransforms", [{"transforms": [transform(7), transform(None, "cam")]}, {"transforms": [transform(9)]}]
    )
    assert several["log"] == [0, 0, 1]
    assert several["timestamp"] == [0, 7, 9]
    assert several["Transform3D:child_frame"] == [["cam"], ["base"], ["base"]]
    assert several["Transform3D:translation"] == [[[1.0, 2.0, 3.0]]] * 3


@pytest.mark.parametrize("empty", [None, []])
def test_messages_without_transforms_give_no_rows_and_harm_no_others(empty: Any) -> None:
    rows = [{"transforms": empty}, {"transforms": [transform(7), transform(8)]}, {"transforms": empty}]
    (made,) = mapped("FrameTransforms", rows)
    assert (made["log"], made["timestamp"]) == ([1, 1], [7, 8])
    assert mapped("FrameTransforms", [{"transforms": empty}] * 2) == []


def test_what_is_not_set_is_null_in_its_vector_which_is_nullable_then_only() -> None:
    (made,) = mapped("FrameTransform", [transform(1, translation=None), transform(2, rotation=TURN | {"x": None})])
    assert made["Transform3D:translation"] == [[[None, None, None]], [[1.0, 2.0, 3.0]]]
    assert made["Transform3D:quaternion"] == [[[0.0, 0.0, 0.0, 1.0]], [[None, 0.0, 0.0, 1.0]]]
    unset = datatypes("FrameTransform", [transform(1, translation=None)])
    assert unset["Transform3D:translation"] == "list<item: fixed_size_list<item: float>[3]>"
    assert unset["Transform3D:quaternion"] == "list<item: fixed_size_list<item: float not null>[4]>"


def test_a_pose_and_several() -> None:
    pose = {"position": POINT, "orientation": TURN}
    (one,) = mapped("PoseInFrame", [{"timestamp": stamp(1), "frame_id": "map", "pose": pose}])
    assert one == {
        "log": [0],
        "timestamp": [1],
        "CoordinateFrame:frame": [["map"]],
        "InstancePoses3D:translations": [[[1.0, 2.0, 3.0]]],
        "InstancePoses3D:quaternions": [[[0.0, 0.0, 0.0, 1.0]]],
    }
    rows = [{"timestamp": stamp(1), "frame_id": "", "poses": [pose, pose]}, {"frame_id": "map", "poses": None}]
    (several,) = mapped("PosesInFrame", rows)
    assert several["CoordinateFrame:frame"] == [[""], ["map"]]
    assert several["InstancePoses3D:translations"] == [[[1.0, 2.0, 3.0]] * 2, None]
    assert several["timestamp"] == [1, 0]


def test_positions_on_earth_and_their_colours() -> None:
    (made,) = mapped("LocationFix", [fix(47.0, ORANGE), fix(48.0), fix(49.0, ORANGE | {"r": 7.0, "b": -1.0})])
    assert made["GeoPoints:positions"] == [[[47.0, 8.0]], [[48.0, 8.0]], [[49.0, 8.0]]]
    assert made["GeoPoints:colors"] == [[0xFF8000FF], None, [0xFF8000FF]]
    assert made["CoordinateFrame:frame"] == [["gps"]] * 3
    types = datatypes("LocationFix", [fix(47.0)])
    assert types["GeoPoints:colors"] == "list<item: uint32>"
    assert types["GeoPoints:positions"] == "list<item: fixed_size_list<item: double not null>[2]>"


def test_colours_of_several_fixes_are_kept_when_some_have_none() -> None:
    rows = [{"fixes": [fix(47.0, ORANGE), fix(52.0, time=6)]}, {"fixes": []}, {"fixes": [fix(48.0)]}]
    (made,) = mapped("LocationFixes", rows)
    assert (made["log"], made["timestamp"]) == ([0, 0, 2], [5, 6, 5])
    assert made["GeoPoints:colors"] == [[0xFF8000FF], None, None]
    assert made["GeoPoints:positions"] == [[[47.0, 8.0]], [[52.0, 8.0]], [[48.0, 8.0]]]


@pytest.mark.parametrize("part", [float("nan"), None, float("-inf")])
def test_a_part_of_a_colour_that_is_no_number_is_none_of_it(part: float | None) -> None:
    (made,) = mapped("LocationFix", [fix(47.0, ORANGE | {"r": part})])
    assert made["GeoPoints:colors"] == [[0x008000FF]]


def test_numbers_beyond_float32_become_infinite_without_a_warning() -> None:
    (made,) = mapped("FrameTransform", [transform(1, translation=POINT | {"x": 1e300})])
    assert made["Transform3D:translation"] == [[[float("inf"), 2.0, 3.0]]]


def test_log_levels() -> None:
    names = ["UNKNOWN", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL", None]
    rows = [{"level": {"name": n, "value": i}, "message": f"m{i}", "timestamp": stamp(i)} for i, n in enumerate(names)]
    (made,) = mapped("Log", rows)
    assert made["TextLog:level"] == [None, ["DEBUG"], ["INFO"], ["WARN"], ["ERROR"], ["CRITICAL"], None]
    assert made["TextLog:text"] == [[f"m{i}"] for i in range(7)]
    words = pa.struct({"level": pa.string(), "message": pa.string()})
    (by_name,) = mapped("Log", [{"level": "WARNING", "message": "m"}], kind=words)
    assert by_name == {"log": [0], "TextLog:level": [["WARN"]], "TextLog:text": [["m"]]}


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_every_encoding_of_a_message_means_the_same(dialect: Any) -> None:
    at = {"timestamp": stamp(1_000_000_002, dialect)}
    (log,) = mapped("Log", [at | {"level": {"value": 3} if dialect is PROTOBUF else 3, "message": "m"}], dialect)
    assert log == {"log": [0], "timestamp": [1_000_000_002], "TextLog:level": [["WARN"]], "TextLog:text": [["m"]]}
    pose = {"position": POINT, "orientation": TURN}
    (made,) = mapped("PoseInFrame", [at | {"frame_id": "map", "pose": pose}], dialect)
    assert (made["timestamp"], made["CoordinateFrame:frame"]) == ([1_000_000_002], [["map"]])


def test_fields_that_are_not_there_cost_only_what_is_made_of_them() -> None:
    kind = pa.struct({"latitude": pa.float32(), "longitude": pa.int64()})
    (made,) = mapped("LocationFix", [{"latitude": 1.5, "longitude": 2}], kind=kind)
    assert made == {"log": [0], "GeoPoints:positions": [[[1.5, 2.0]]]}
    nothing = pa.struct({"timestamp": pa.null(), "frame_id": pa.null(), "pose": POSE})
    (made,) = mapped("PoseInFrame", [{"pose": None}], kind=nothing)
    assert made["timestamp"] == [0]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("FrameTransform", {"translation": pa.float64()}),
        ("FrameTransforms", {"transform": pa.list_(pa.null())}),
        ("LocationFix", {"latitude": pa.float64()}),
        ("Log", {"text": pa.string()}),
        ("PoseInFrame", {"pose": pa.string()}),
        ("PosesInFrame", {"poses": POSE}),
        ("CompressedVideo", {"data": pa.string(), "format": pa.string()}),
    ],
)
def test_a_message_without_what_matters_is_an_error(name: str, kind: dict[str, pa.DataType]) -> None:
    (lens,) = foxglove_lenses(f"foxglove.{name}")
    given = chunk(name, [{}], kind=pa.struct(kind))
    if lens.condition is None:
        with pytest.raises(LensError):
            mapped(name, [{}], kind=pa.struct(kind))
    else:
        assert mapped(name, [{}], kind=pa.struct(kind)) == [
            {"log": [0], f"foxglove.{name}:message": given.data.components[0].values.to_pylist()}
        ]


@pytest.mark.parametrize(
    "name", ["foxglove.LaserScan", "foxglove.", "Log", "my.foxglove.Log", "foxglove_msgs/msg/Grid", "foxglove.log"]
)
def test_other_types_have_no_mapping(name: str) -> None:
    assert foxglove_lenses(name) == ()
