"""Point clouds taken apart: by name, by layout, in every byte order."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.limits import MAX_POINT_FIELD_OVERLAP
from chunkmill.lenses.arrays import blobs
from chunkmill.lenses.packed_points import FOXGLOVE_TYPES, ROS_TYPES, FieldTable, PackedField, PackedPoints, PointLayout

FIELDS = pa.list_(pa.struct([("name", pa.string()), ("offset", pa.uint32()), ("datatype", pa.uint8())]))
XYZ = (("x", 0, 7), ("y", 4, 7), ("z", 8, 7))


def table(*clouds: tuple[tuple[str, int, int], ...], steps: list[int], big: list[bool] | None = None) -> FieldTable:
    rows = [[dict(zip(("name", "offset", "datatype"), f, strict=True)) for f in cloud] for cloud in clouds]
    return FieldTable(pa.array(rows, FIELDS), np.array(steps), ROS_TYPES, None if big is None else np.array(big))


def layout(cloud: tuple[tuple[str, int, int], ...], step: int) -> PointLayout | None:
    (group,) = table(cloud, steps=[step]).groups()
    return group.layout


def test_clouds_of_equal_layout_are_one_group() -> None:
    other = (("x", 0, 7), ("y", 4, 7), ("w", 8, 7))
    groups = table(XYZ, other, XYZ, (), XYZ, XYZ, steps=[12, 12, 12, 12, 16, 12]).groups()
    assert sorted(g.clouds.tolist() for g in groups) == [[0, 2, 5], [1], [3], [4]]
    swapped = table(XYZ, XYZ, steps=[12, 12], big=[True, False]).groups()
    assert sorted((g.clouds.tolist(), g.layout and g.layout.big_endian) for g in swapped) == [([0], True), ([1], False)]


@pytest.mark.parametrize("code", range(10))
def test_a_type_is_known_or_the_layout_cannot_be_read(code: int) -> None:
    found = layout((("v", 3, code),), 11)
    kind = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}.get(code)
    assert found == (None if kind is None else PointLayout((PackedField("v", 3, kind),), 11))


def test_a_field_has_to_end_within_the_point() -> None:
    assert layout(XYZ, 12) is not None
    assert layout(XYZ, 11) is None
    assert layout((("x", 2**32 - 1, 7),), 2**32 - 1) is None
    assert layout(XYZ, 0) is not None


def test_a_name_that_comes_twice_means_its_first_field() -> None:
    assert layout((("v", 0, 2), ("v", 1, 4)), 3) == PointLayout((PackedField("v", 0, "u1"),), 3)


def test_fields_may_lie_one_over_the_other_but_not_without_end() -> None:
    assert layout((("rgb", 0, 7), ("rgba", 0, 6)), 4) is not None
    many = tuple((f"f{i}", 0, 6) for i in range(MAX_POINT_FIELD_OVERLAP + 1))
    assert layout(many[:-1], 4) is not None
    assert layout(many, 4) is None


def shown(values: pa.ListArray) -> list[Any]:
    return [None if row is None else row for row in values.to_pylist()]


def test_mixed_layouts_partial_points_and_points_of_no_bytes() -> None:
    tagged = (*XYZ, ("tag", 12, 4))
    wide = (("x", 0, 8), ("tag", 8, 1), ("y", 9, 8), ("z", 17, 3))
    content = [
        struct.pack("<fffHfffH", 1, 2, 3, 4, 5, 6, 7, 8) + b"xx",
        struct.pack("<dbdh", 1.5, -1, 2.5, -3),
        struct.pack("<fff", 9, 9, 9),
        b"junk",
        struct.pack("<fffH", 7, 8, 9, 65535),
        b"",
    ]
    groups = table(tagged, wide, XYZ, (("x", 0, 0),), tagged, tagged, steps=[14, 19, 12, 4, 14, 0]).groups()
    points = PackedPoints(blobs(pa.array(content)), groups)
    assert points.numbers("tag").to_pylist() == [[4, 8], [-1], None, None, [65535], []]
    assert points.numbers("tag").type.value_type == pa.int32()
    assert points.vectors(("x", "y", "z")).to_pylist() == [
        [[1, 2, 3], [5, 6, 7]],
        [[1.5, 2.5, -3]],
        [[9, 9, 9]],
        None,
        [[7, 8, 9]],
        [],
    ]
    with pytest.raises(KeyError):
        points.numbers("nothing")


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("kind", sorted(ROS_TYPES.values()))
@pytest.mark.parametrize("codes", [ROS_TYPES, FOXGLOVE_TYPES])
def test_every_type_comes_out_as_it_is(kind: str, big: bool, codes: dict[int, str]) -> None:
    dtype = np.dtype((">" if big else "<") + kind)
    random = np.random.default_rng(len(kind)).bytes(30 * dtype.itemsize)
    values = np.frombuffer(random, dtype).reshape(10, 3)
    record = np.zeros(10, np.dtype({"names": ["v"], "formats": [(dtype, 3)], "offsets": [5], "itemsize": 40}))
    record["v"] = values
    code = next(c for c, k in codes.items() if k == kind)
    size = dtype.itemsize
    rows = [[{"name": n, "offset": 5 + i * size, "type": code} for i, n in enumerate("abc")]] * 2
    fields = pa.array(rows, pa.list_(pa.struct([("name", pa.string()), ("offset", pa.uint32()), ("type", pa.int32())])))
    groups = FieldTable(fields, np.array([40, 40]), codes, np.array([big] * 2), code="type").groups()
    points = PackedPoints(blobs(pa.array([record[:4].tobytes(), record[4:].tobytes()])), groups)
    for i, name in enumerate("abc"):
        found = points.numbers(name)
        assert found.type == pa.list_(pa.from_numpy_dtype(np.dtype(kind)))
        assert found.values.to_numpy().tobytes() == values[:, i].astype(np.dtype(kind)).tobytes()
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values[:, [2, 0]].astype(np.float32)
    assert points.vectors(("c", "a")).values.flatten().to_numpy().tobytes() == expected.tobytes()
    with np.errstate(over="ignore", invalid="ignore"):
        straight = values.astype(np.float32)
    assert points.vectors(("a", "b", "c")).values.flatten().to_numpy().tobytes() == straight.tobytes()
