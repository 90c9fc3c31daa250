"""Packed sensor data: image formats, rows with padding, byte orders, short data, and point clouds by their layout."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.chunk import IMAGE_ENCODINGS, IMAGE_FORMAT, encoding_codes, image_formats, is_depth
from chunkmill.engine.errors import SelectorError
from chunkmill.engine.limits import MAX_POINT_FIELD_OVERLAP
from chunkmill.lenses.arrays import BLOB, blob_array, blobs, bytes_of
from chunkmill.lenses.sensor_layouts import (
    FOXGLOVE_TYPES,
    ROS_TYPES,
    FieldTable,
    PackedField,
    PackedPoints,
    PointLayout,
    RowLayout,
    cloud_rows,
    image_rows,
    little_endian,
)
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

COLOURS = {
    "rgb8": (2, 6), "rgba8": (3, 6), "rgb16": (2, 8), "rgba16": (3, 8), "bgr8": (4, 6), "bgra8": (5, 6),
    "bgr16": (4, 8), "bgra16": (5, 8), "8UC3": (4, 6),
}  # fmt: skip
DEPTHS = {
    "mono8": (1, 6), "mono16": (1, 8), "8UC1": (None, 6), "8SC1": (None, 7), "16UC1": (None, 8), "16SC1": (None, 9),
    "32SC1": (None, 11), "32FC1": (None, 34), "64FC1": (None, 35),
}  # fmt: skip
PIXELS = {
    "yuyv": 27, "yuv422_yuy2": 27, "nv12": 26,
    "bayer_rggb8": 128, "bayer_bggr8": 129, "bayer_gbrg8": 130, "bayer_grbg8": 131,
}  # fmt: skip
UNKNOWN = ("", "RGB8", "8UC4", "bayer_rggb16", "uyvy", "nope")


def test_every_encoding_has_the_format_of_the_table() -> None:
    names = pa.array([*COLOURS, *DEPTHS, *PIXELS, *UNKNOWN, None])
    codes = encoding_codes(names)
    size = pa.array([7] * len(names), pa.uint32())
    formats = image_formats(size, pa.array([5] * len(names), pa.uint32()), codes)
    assert formats.type == IMAGE_FORMAT
    expected = [(None, *parts) for parts in (COLOURS | DEPTHS).values()] + [(p, None, None) for p in PIXELS.values()]
    shape = {"width": 7, "height": 5}
    keys = ("pixel_format", "color_model", "channel_datatype")
    assert formats.to_pylist()[: len(IMAGE_ENCODINGS)] == [shape | dict(zip(keys, e, strict=True)) for e in expected]
    assert formats.to_pylist()[len(IMAGE_ENCODINGS) :] == [None] * (len(UNKNOWN) + 1)
    depths = [False] * len(COLOURS) + [True] * len(DEPTHS) + [False] * len(PIXELS) + [None] * (len(UNKNOWN) + 1)
    assert is_depth(codes).to_pylist() == depths


@pytest.mark.parametrize(
    ("encoding", "height", "row_bytes", "rows"),
    [
        ("rgb8", 4, 6, 4),
        ("bgra16", 4, 16, 4),
        ("yuyv", 4, 4, 4),
        ("nv12", 4, 2, 6),
        ("nv12", 1, 2, 2),
        ("64FC1", 4, 16, 4),
    ],
)
def test_rows_of_images(encoding: str, height: int, row_bytes: int, rows: int) -> None:
    codes = encoding_codes(pa.array([encoding])).to_numpy()
    found = image_rows(blobs(pa.array([b""])), np.array([2]), np.array([height]), np.array([0]), codes)
    assert (found.row_bytes.tolist(), found.rows.tolist()) == ([row_bytes], [rows])


class Packed(NamedTuple):
    """Rows of a random size, and how they lie in a blob."""

    rows: int
    row_bytes: int
    step: int
    data: bytes

    def expected(self) -> bytes:
        """The rows, by numpy: one record a row, of which the padding is not read."""
        if self.rows * self.row_bytes == len(self.data):
            return self.data
        stride = max(self.step, self.row_bytes)
        whole = np.frombuffer(self.data.ljust(self.rows * stride, b"\0")[: self.rows * stride], np.uint8)
        taken = whole.reshape(self.rows, stride)[:, : self.row_bytes]
        there = np.arange(self.rows * stride).reshape(self.rows, stride)[:, : self.row_bytes] < len(self.data)
        return bytes(taken[there])

    @property
    def goes_on(self) -> bool:
        """Whether there is more than the rows and their padding."""
        size = self.rows * self.row_bytes
        return len(self.data) > (max(size, self.rows * self.step) if size else 0) and len(self.data) != size


@st.composite
def packed(draw: st.DrawFn) -> Packed:
    rows, row_bytes, padding = draw(st.integers(0, 5)), draw(st.integers(0, 7)), draw(st.integers(0, 4))
    stride = row_bytes + padding
    whole = rows * stride
    size = draw(st.sampled_from([whole, rows * row_bytes, max(whole - padding, 0)]) | st.integers(0, whole + 3))
    stale = st.sampled_from([0, whole, max(row_bytes - 1, 0), 2**31, 2**32 - 1])
    step = stride if size != rows * row_bytes else draw(stale | st.just(stride))
    return Packed(rows, row_bytes, step, bytes(i % 251 for i in range(size)))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(packed(), max_size=4))
@example([Packed(2, 2, 3, b"12x34x")] * 2)
@example([Packed(2, 2, 3, b"12x34")] * 2)
@example([Packed(2, 2, 3, b"")] * 2)
@example([Packed(2, 2, 2, b"12345"), Packed(2, 2, 2, b"678")])
@example([Packed(2, 2, 3, b"12x3"), Packed(2, 2, 0, b"1234")])
@example([Packed(1, 3, 7, b"123pads"), Packed(2, 2, 4, b"1234")])
def test_rows_lose_their_padding_and_nothing_else(blob_rows: list[Packed]) -> None:
    data = blobs(pa.array([b.data for b in blob_rows], pa.binary()))
    numbers = np.array([(b.row_bytes, b.rows, b.step) for b in blob_rows], np.int64).reshape(-1, 3)
    layout = RowLayout.of(data, *numbers.T)
    found = layout.packed(data)
    assert found.type == BLOB
    assert [bytes(blob) for blob in found.to_pylist()] == [b.expected() for b in blob_rows]
    assert layout.short.tolist() == [len(b.expected()) < b.rows * b.row_bytes for b in blob_rows]
    assert layout.long.tolist() == [b.goes_on for b in blob_rows]


def test_rows_without_padding_are_not_copied() -> None:
    data = blobs(pa.array([b"1234", b"5678"]))
    two = np.array([2, 2])
    for step in (0, 2, 9):
        assert RowLayout.of(data, two, two, np.array([step, step])).packed(data) is data
    assert little_endian(data, two, np.array([False, False])) is data
    assert little_endian(data, np.array([1, 1]), np.array([True, True])) is data


@pytest.mark.parametrize("size", [0, 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("other", [0, 3, 2**32 - 1])
def test_sizes_that_no_data_has_harm_nothing(size: int, other: int) -> None:
    data = blobs(pa.array([b"123456"]))
    one, two = np.array([size], np.uint32), np.array([other], np.uint32)
    for sizes in ((one, two, two, one), (two, one, one, two), (one, one, two, two), (two, two, one, one)):
        layout = cloud_rows(data, *sizes)
        assert b"123456".startswith(bytes(layout.packed(data)[0].as_py()))
        width, height, point_step, row_step = (int(numbers[0]) for numbers in sizes)
        row = width * point_step
        stride = row if row * height == 6 else max(row_step, row)
        assert layout.short[0] == (row * height > 0 and stride * (height - 1) + row > 6)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.tuples(st.sampled_from([1, 2, 4, 8]), st.booleans(), st.binary(max_size=20)), max_size=4))
def test_big_endian_numbers_are_swapped(blob_numbers: list[tuple[int, bool, bytes]]) -> None:
    data = blobs(pa.array([b"cut off", *(content for *_, content in blob_numbers)])).slice(1)
    sizes, big = (np.array([n[i] for n in blob_numbers], kind) for i, kind in ((0, np.int64), (1, bool)))
    expected = []
    for size, is_big, content in blob_numbers:
        whole = len(content) // size * size
        numbers = np.frombuffer(content[:whole], f">u{size}" if is_big else f"<u{size}")
        expected.append(numbers.astype(f"<u{size}").tobytes() + content[whole:])
    assert [bytes(blob) for blob in little_endian(data, sizes, big).to_pylist()] == expected


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.list_(pa.uint8()), pa.list_(pa.int8()), BLOB])
def test_bytes_of_every_type_are_blobs(kind: pa.DataType) -> None:
    rows = [[1, 2], None, [], [3]]
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    array = pa.array([None if r is None or not binary else bytes(r) for r in rows] if binary else rows, kind)
    assert blobs(array).type == BLOB
    assert blobs(array).to_pylist() == rows
    assert blobs(array.slice(2)).to_pylist() == rows[2:]
    assert blobs(array.slice(0, 0)).to_pylist() == []
    content, offsets = bytes_of(blobs(array))
    assert (content.tolist(), offsets.tolist()) == ([1, 2, 3], [0, 2, 2, 2, 3])
    assert blob_array(content, offsets).to_pylist() == [[1, 2], [], [], [3]]


def test_a_blob_shares_the_memory_of_its_bytes() -> None:
    array = pa.array([[1, 2], [3]], pa.list_(pa.uint8()))
    assert blobs(array).values.buffers()[1].address == array.values.buffers()[1].address


@pytest.mark.parametrize("array", [pa.array([1.0]), pa.array([["a"]]), pa.array([[1, None]], pa.list_(pa.uint8()))])
def test_what_is_no_bytes_is_an_error(array: pa.Array) -> None:
    with pytest.raises(SelectorError, match="expected bytes"):
        blobs(array)


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
