"""Foxglove's point clouds as Rerun's points."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from chunkmill.lenses import LensSet
from chunkmill.lenses.foxglove import foxglove_lenses
from foxglove_messages import DIALECTS, ENUM, JSON, PROTOBUF, chunk, datatypes, mapped, stamp

XYZ = (("x", 0, 7), ("y", 4, 7), ("z", 8, 7))
RGBA = (("red", 12, 1), ("green", 13, 1), ("blue", 14, 1), ("alpha", 15, 1))
KINDS = {1: "<u1", 2: "<i1", 3: "<u2", 4: "<i2", 5: "<u4", 6: "<i4", 7: "<f4", 8: "<f8"}


def cloud(
    data: bytes, fields: tuple[tuple[str, int, int], ...] = XYZ, stride: int = 12, dialect: Any = PROTOBUF, **more: Any
) -> dict[str, Any]:
    codes = [{"name": None, "value": code} if dialect.enum == ENUM else code for _, _, code in fields]
    packed = [{"name": n, "offset": o, "type": code} for (n, o, _), code in zip(fields, codes, strict=True)]
    at = {"timestamp": stamp(1, dialect), "frame_id": "lidar"}
    return {**at, "point_stride": stride, "fields": packed, "data": data, "pose": None, **more}


def colours(*clouds: dict[str, Any]) -> list[Any]:
    (made,) = mapped("PointCloud", list(clouds))
    found: list[Any] = made["Points3D:colors"]
    return found


def coloured(kind: str, *colour: float) -> dict[str, Any]:
    code = next(code for code, k in KINDS.items() if k == kind)
    size = np.dtype(kind).itemsize
    names = ("red", "green", "blue", "alpha")[: len(colour)]
    fields = tuple((name, 12 + i * size, code) for i, name in enumerate(names))
    return cloud(bytes(12) + np.array(colour, kind).tobytes(), XYZ + fields, 12 + size * len(colour))


def test_points_their_colours_and_their_pose() -> None:
    data = b"".join(struct.pack("<3f4B", i, 1, 2, 255, 128, 0, 200) for i in range(2))
    pose = {"position": {"x": 1.0, "y": 0.0, "z": 0.0}, "orientation": {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0}}
    (made,) = mapped("PointCloud", [cloud(data, XYZ + RGBA, 16), cloud(data, XYZ, 16, pose=pose)])
    assert made == {
        "log": [0, 1],
        "timestamp": [1, 1],
        "CoordinateFrame:frame": [["lidar"]] * 2,
        "Points3D:positions": [[[0.0, 1.0, 2.0], [1.0, 1.0, 2.0]]] * 2,
        "Points3D:colors": [[0xFF8000C8] * 2, None],
        "InstancePoses3D:translations": [None, [[1.0, 0.0, 0.0]]],
        "InstancePoses3D:quaternions": [None, [[0.0, 0.0, 0.0, 1.0]]],
    }
    kinds = datatypes("PointCloud", [cloud(data, XYZ + RGBA, 16)])
    assert kinds["Points3D:positions"] == "list<item: fixed_size_list<item: float not null>[3]>"
    assert kinds["Points3D:colors"] == "list<item: uint32>"
    assert kinds["InstancePoses3D:translations"] == "list<item: fixed_size_list<item: float>[3]>"


@pytest.mark.parametrize("code", KINDS)
def test_coordinates_of_every_type(code: int) -> None:
    kind = np.dtype(KINDS[code])
    fields = tuple((name, 1 + i * kind.itemsize, code) for i, name in enumerate("xyz"))
    numbers = np.array([[1, 2, 3], [4, 5, np.iinfo(kind).max if kind.kind in "iu" else -0.5]], kind)
    data = b"".join(b"?" + row.tobytes() for row in numbers)
    (made,) = mapped("PointCloud", [cloud(data, fields, 1 + 3 * kind.itemsize)])
    assert made["Points3D:positions"] == [numbers.astype(np.float32).tolist()]


def test_clouds_of_several_layouts_in_one_column() -> None:
    doubles = tuple((name, 16 - 8 * i, 8) for i, name in enumerate("xyz"))
    rows = [
        cloud(struct.pack("<3f", 1, 2, 3)),
        cloud(struct.pack("<3d", 3, 2, 1), doubles, 24),
        cloud(b"", (), 0),
        cloud(struct.pack("<3f", 4, 5, 6) * 2 + b"rest"),
    ]
    (made,) = mapped("PointCloud", rows)
    assert made["Points3D:positions"] == [[[1, 2, 3]], [[1, 2, 3]], None, [[4, 5, 6]] * 2]
    assert made["Points3D:colors"] == [None] * 4
    assert made["CoordinateFrame:frame"] == [["lidar"]] * 4


def test_a_cloud_without_points_has_none() -> None:
    (made,) = mapped("PointCloud", [cloud(b"", XYZ + RGBA, 16), cloud(bytes(12), XYZ + RGBA, 2**32 - 1)])
    assert (made["Points3D:positions"], made["Points3D:colors"]) == ([[], []], [[], []])


def test_colours_of_whole_numbers_are_clamped_and_others_go_to_one() -> None:
    assert colours(coloured("<u1", 255, 128, 0, 200)) == [[0xFF8000C8]]
    assert colours(coloured("<u1", 1, 2, 3)) == [[0x010203FF]]
    assert colours(coloured("<i2", 300, -5, 128, 256)) == [[0xFF0080FF]]
    assert colours(coloured("<f4", 1.0, 0.5, -2.0, 0.25)) == [[0xFF800040]]
    assert colours(coloured("<f8", float("nan"), 2.0, 0.0)) == [[0x00FF00FF]]


def test_colours_of_several_types_in_one_column() -> None:
    rows = [coloured("<u1", 1, 2, 3), cloud(b""), coloured("<f4", 1, 0, 1), coloured("<u1", 4, 5, 6, 7)]
    assert colours(*rows) == [[0x010203FF], None, [0xFF00FFFF], [0x04050607]]


@pytest.mark.parametrize(
    ("fields", "stride"),
    [
        ((("x", 0, 9), *XYZ[1:]), 12),
        ((("x", 9, 7), *XYZ[1:]), 12),
        ((("q", 2**32 - 1, 7), *XYZ), 12),
        (XYZ[:2], 12),
        ((), 12),
        (XYZ, 0),
    ],
)
def test_a_cloud_whose_points_cannot_be_read_stays_as_it_is_and_the_others_do_not(fields: Any, stride: int) -> None:
    left, made = mapped("PointCloud", [cloud(struct.pack("<3f", 1, 2, 3)), cloud(bytes(12), fields, stride)])
    assert (left["log"], made["log"]) == ([1], [0])
    assert made["Points3D:positions"] == [[[1, 2, 3]]]


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_every_encoding_of_a_cloud_means_the_same(dialect: Any) -> None:
    packed = struct.pack("<3f4B", 1, 2, 3, 9, 8, 7, 6)
    data: Any = packed if dialect.binary == JSON.binary else list(packed)
    (made,) = mapped("PointCloud", [cloud(data, XYZ + RGBA, 16, dialect)], dialect)
    assert made["Points3D:positions"] == [[[1, 2, 3]]]
    assert made["Points3D:colors"] == [[0x09080706]]


def test_a_cloud_that_ends_within_a_point_is_remarked() -> None:
    rows = [cloud(struct.pack("<4f", 1, 2, 3, 4)), cloud(struct.pack("<3f", 1, 2, 3))]
    made = [o for o in LensSet(foxglove_lenses("foxglove.PointCloud")).outputs(chunk("PointCloud", rows)) if o.remarks]
    assert [output.remarks for output in made] == [((1, "have data that ends within a point, which is left out"),)]
