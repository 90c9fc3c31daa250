"""``PointCloud2``: points by name, each message by its own layout and at its own time."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.limits import MAX_POINT_FIELDS
from chunkmill.lenses import LensSet
from chunkmill.lenses.ros2 import ros2_lenses
from chunkmill.lenses.sensor_layouts import DATA_GOES_ON
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from ros_messages import BYTES, chunk, columns, header, mapped, message, types

FIELD = pa.struct({"name": pa.string(), "offset": pa.uint32(), "datatype": pa.uint8(), "count": pa.uint32()})
CLOUD = message(
    {"height": pa.uint32(), "width": pa.uint32(), "fields": pa.list_(FIELD), "is_bigendian": pa.bool_(),
     "point_step": pa.uint32(), "row_step": pa.uint32(), "data": BYTES, "is_dense": pa.bool_()}
)  # fmt: skip
NAME = "sensor_msgs/msg/PointCloud2"
XYZ = (("x", 0, 7), ("y", 4, 7), ("z", 8, 7))
FULL = (*XYZ, ("intensity", 12, 7), ("ring", 16, 4))


def cloud(
    i: int, data: bytes, fields: Any = FULL, step: int = 18, *, big: bool = False, count: int = 1
) -> dict[str, Any]:
    table = [{"name": n, "offset": o, "datatype": d, "count": count} for n, o, d in fields]
    size = {"height": 1, "width": 2, "row_step": 36, "is_dense": True}
    return {
        "header": header(i, "lidar"), "fields": table, "is_bigendian": big, "point_step": step, "data": list(data),
        **size,
    }  # fmt: skip


def point(k: int, order: str = "<") -> bytes:
    return struct.pack(order + "ffffH", k, k + 0.5, -k, 10 * k, k)


def test_positions_other_fields_and_the_message() -> None:
    rows = [cloud(0, point(1) + point(2)), cloud(1, point(3, ">"), big=True), cloud(2, b"")]
    found = mapped(NAME, CLOUD, rows)
    cells = columns(found)
    assert cells["Points3D:positions"] == [[[1, 1.5, -1], [2, 2.5, -2]], [[3, 3.5, -3]], []]
    assert cells["Points3D:intensity"] == [[10, 20], [30], []]
    assert cells["Points3D:ring"] == [[1, 2], [3], []]
    assert cells["CoordinateFrame:frame"] == [["lidar"]] * 3
    own = {key.removeprefix("sensor_msgs.msg.PointCloud2:"): value for key, value in cells.items() if "Cloud" in key}
    assert own["data"] == [[list(r["data"])] for r in rows]
    assert own["fields"] == [[r["fields"]] for r in rows]
    assert own["is_bigendian"] == [[False], [True], [False]]
    assert (own["height"], own["width"], own["point_step"], own["row_step"]) == (
        [[1]] * 3, [[2]] * 3, [[18]] * 3, [[36]] * 3,
    )  # fmt: skip
    assert own["is_dense"] == [[True]] * 3


def test_types() -> None:
    found = types(mapped(NAME, CLOUD, [cloud(0, point(1))]))
    assert found["Points3D:positions"] == "list<item: fixed_size_list<item: float not null>[3]>"
    assert found["Points3D:ring"] == "list<item: uint16>"
    assert found["sensor_msgs.msg.PointCloud2:data"] == "list<item: list<item: uint8 not null> not null>"
    assert found["sensor_msgs.msg.PointCloud2:fields"] == (
        "list<item: list<item: struct<name: string not null, offset: uint32 not null, datatype: uint8 not null, "
        "count: uint32 not null>>>"
    )


def test_each_cloud_by_its_own_layout() -> None:
    other = (("ring", 0, 2), ("x", 1, 8), ("y", 9, 8), ("z", 17, 3), ("time", 19, 8))
    rows = [
        cloud(0, point(1)),
        cloud(1, struct.pack("<BddhdBddhd", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), other, 27),
        cloud(2, point(2) + b"abc"),
        cloud(3, struct.pack("<ff", 1, 2), (("a", 0, 7), ("b", 4, 7)), 8),
    ]
    cells = columns(mapped(NAME, CLOUD, rows))
    assert cells["Points3D:positions"] == [[[1, 1.5, -1]], [[2, 3, 4], [7, 8, 9]], [[2, 2.5, -2]], None]
    assert cells["Points3D:intensity"] == [[10], None, [20], None]
    assert cells["Points3D:ring"] == [[1], [1, 6], [2], None]
    assert cells["Points3D:time"] == [None, [5, 10], None, None]
    assert "Points3D:a" not in cells
    assert len(cells["sensor_msgs.msg.PointCloud2:data"]) == 4


def test_without_a_position_there_are_no_points() -> None:
    cells = columns(mapped(NAME, CLOUD, [cloud(0, bytes(8), (("a", 0, 7), ("x", 4, 7)), 8)]))
    assert not any(name.startswith("Points3D:") and cells[name] != [None] for name in cells)
    assert len(cells["sensor_msgs.msg.PointCloud2:data"]) == 1


@pytest.mark.parametrize(
    "bad",
    [
        cloud(1, point(1), (*XYZ, ("v", 12, 9))),
        cloud(1, point(1), (*XYZ, ("v", 12, 0))),
        cloud(1, point(1), (*XYZ, ("v", 15, 7))),
        cloud(1, point(1), (("x", 2**32 - 1, 7), *XYZ[1:])),
        cloud(1, point(1), XYZ, 11),
    ],
)
def test_a_cloud_that_makes_no_sense_stays_a_message_and_the_others_do_not(bad: dict[str, Any]) -> None:
    cells = columns(mapped(NAME, CLOUD, [cloud(0, point(1)), bad, cloud(2, point(2))]))
    assert cells["Points3D:positions"] == [[[1, 1.5, -1]], [[2, 2.5, -2]]]
    assert [cell[0]["header"]["stamp"]["sec"] for cell in cells[f"{NAME.replace('/', '.')}:message"]] == [1]


def test_of_several_numbers_in_a_field_the_first_is_taken() -> None:
    cells = columns(mapped(NAME, CLOUD, [cloud(0, point(7), count=3)]))
    assert cells["Points3D:intensity"] == [[70]]


def test_points_of_no_bytes() -> None:
    cells = columns(mapped(NAME, CLOUD, [cloud(0, b"", step=0), cloud(1, point(1))]))
    assert cells["Points3D:positions"] == [None, [[1, 1.5, -1]]]
    assert cells["Points3D:intensity"] == [[], [10]]


def test_more_fields_than_a_cloud_ever_has() -> None:
    def fields(count: int) -> tuple[Any, ...]:
        return (*XYZ, *((f"f{i}", 12 + i, 2) for i in range(count)))

    most = MAX_POINT_FIELDS
    found = columns(mapped(NAME, CLOUD, [cloud(0, bytes(12 + most), fields(most), 12 + most)]))
    assert sum(name.startswith("Points3D:f") for name in found) == most
    many = columns(mapped(NAME, CLOUD, [cloud(0, bytes(13 + most), fields(most + 1), 13 + most)]))
    assert list(many) == ["sensor_msgs.msg.PointCloud2:message"]


def test_clouds_that_share_no_field_with_others_stay_messages_when_there_are_too_many() -> None:
    rows = [cloud(i, bytes(13), (*XYZ, (f"f{i}", 12, 2)), 13) for i in range(MAX_POINT_FIELDS + 5)]
    rows.append(cloud(999, bytes(13), (*XYZ, ("f7", 12, 2)), 13))
    cells = columns(mapped(NAME, CLOUD, rows))
    assert len(cells["Points3D:positions"]) == MAX_POINT_FIELDS + 1
    assert cells["Points3D:f7"][-1] == [0]
    kept = [cell[0]["header"]["stamp"]["sec"] for cell in cells["sensor_msgs.msg.PointCloud2:message"]]
    assert kept == list(range(MAX_POINT_FIELDS, MAX_POINT_FIELDS + 5))


def test_a_field_called_positions_does_not_take_their_place() -> None:
    cells = columns(mapped(NAME, CLOUD, [cloud(0, point(1), (*XYZ, ("positions", 12, 7)))]))
    assert cells["Points3D:positions"] == [[[1, 1.5, -1]]]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(0, 5), st.integers(0, 9)),
    st.booleans(),
    st.booleans(),
    st.integers(0, 40),
    st.sampled_from([NAME, "sensor_msgs/PointCloud2"]),
)
@example((1, 3, 4, 16), False, False, 0, NAME)  # a row of padding is no point
@example((2, 2, 0, 4), True, True, 0, "sensor_msgs/PointCloud2")
def test_organised_clouds_of_any_padding_and_byte_order(
    shape: tuple[int, int, int, int], big: bool, bare: bool, missing: int, name: str
) -> None:
    height, width, point_padding, row_padding = shape
    step = 14 + point_padding
    row_step = width * step + row_padding
    order = ">" if big else "<"
    kinds = {
        "names": ["xyz", "tag"],
        "formats": [(order + "f4", 3), order + "u2"],
        "offsets": [0, 12],
        "itemsize": step,
    }
    points = np.zeros((height, width), np.dtype(kinds))
    points["xyz"] = np.arange(height * width * 3).reshape(height, width, 3)
    points["tag"] = np.arange(height * width).reshape(height, width) + 300
    rows = [row.tobytes() + b"\xee" * row_padding for row in points]
    whole = b"".join(rows)[: -row_padding or None] if bare else b"".join(rows)
    data = whole[: max(len(whole) - missing, 0)]
    # The oracle: a point is there if all of its bytes are, at its place by row_step.
    ends = np.arange(height)[:, None] * row_step + (np.arange(width) + 1) * step
    there = ends <= len(data)
    if len(data) == height * width * step:  # by its size a packed cloud, whatever row_step says
        return
    message = cloud(0, data, (*XYZ, ("tag", 12, 4)), step, big=big) | {
        "height": height, "width": width, "row_step": row_step,
    }  # fmt: skip
    cells = columns(mapped(name, CLOUD, [message]))
    assert cells["Points3D:positions"] == [points["xyz"][there].tolist()]
    assert cells["Points3D:tag"] == [points["tag"][there].tolist()]
    (own,) = (cell for key, cell in cells.items() if key.endswith("PointCloud2:data"))
    assert own == [[list(data)]]


@pytest.mark.parametrize("row_step", [0, 36, 72, 18, 3600])
def test_a_stale_row_step_is_not_used_where_the_data_is_packed(row_step: int) -> None:
    data = b"".join(map(point, range(4)))
    cells = columns(mapped(NAME, CLOUD, [cloud(0, data) | {"height": 2, "width": 2, "row_step": row_step}]))
    assert cells["Points3D:ring"] == [[0, 1, 2, 3]]


def test_points_are_no_more_than_width_times_height() -> None:
    rows = [cloud(0, b"".join(map(point, range(3)))), cloud(1, point(1)) | {"width": 0}]
    outputs = LensSet(ros2_lenses(NAME, "/t")).outputs(chunk(NAME, CLOUD, rows))
    made = next(output for output in outputs if output.chunk is not None and output.chunk.num_rows)
    assert columns([made.chunk])["Points3D:ring"] == [[0, 1], []]
    assert made.remarks == ((2, DATA_GOES_ON),)
