"""Foxglove's ``PointCloud``, ``RawImage`` and ``VoxelGrid``: points, pixels and cells of packed numbers.

Numbers are little-endian, at the offsets and strides that the message names.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...engine.errors import SelectorError
from ..blobs import Bytes, blobs, bytes_of
from ..image_layout import encoding_codes, image_formats, packed_sizes, without_padding
from ..packed_points import FOXGLOVE_TYPES, Alike, FieldTable, Layout, PackedPoints
from ..selector import lists
from ..selector.type_names import type_name
from .values import channel, enumerated, member, number, texts, whole

_AXES: Final = ("x", "y", "z")
_COLORS: Final = ("red", "green", "blue")
_ALPHA: Final = "alpha"
_OPAQUE: Final = 255


def cloud_points(clouds: pa.Array) -> pa.StructArray:
    """Structs with the points of each cloud.

    ``positions`` are vectors of float32, from the fields x, y and z; ``colors`` are 0xRRGGBBAA, from red, green, blue
    and, where there is one, alpha. Integers are clamped to 0 to 255, other numbers go from 0 to 1. Either is null for
    clouds without these fields. ``readable`` is true for a cloud with positions, and for one without any data.
    """
    data = blobs(member(clouds, "data"))
    steps = whole(clouds, "point_stride", pa.uint32()).to_numpy()
    groups = FieldTable(fields_of(member(clouds, "fields")), steps.astype(np.int64), FOXGLOVE_TYPES).groups()
    filled = [group for group in groups if group.layout is not None and group.layout.step > 0]
    readable = np.diff(lists.offsets_of(data)) == 0
    for group in filled:
        if group.layout is not None and group.layout.has(_AXES):
            readable[group.clouds] = True
    return pa.StructArray.from_arrays(
        [pa.array(readable), PackedPoints(data, filled).vectors(_AXES), colors_of(data, filled)],
        ["readable", "positions", "colors"],
    )


def fields_of(fields: pa.Array) -> pa.ListArray:
    """The fields as a table of layouts takes them, the types as numbers."""
    if not (pa.types.is_list(fields.type) and pa.types.is_struct(fields.type.value_type)):
        raise SelectorError(f"Invalid argument error: expected fields of points, got type {type_name(fields.type)}")
    elements = fields.values
    offsets = number(elements, "offset").cast(pa.uint32())
    codes = enumerated(member(elements, "type")).cast(pa.int32())
    table = pa.StructArray.from_arrays(
        [texts(member(elements, "name")), offsets, codes], ["name", "offset", "datatype"]
    )
    return lists.list_array(table, lists.offsets_of(fields), lists.bitmap_of(fields))


def colors_of(data: pa.ListArray, groups: list[Alike]) -> pa.ListArray:
    """Colours, clouds together whose numbers are of the same types."""
    alike: dict[tuple[str, ...], list[Alike]] = {}
    for group in groups:
        if group.layout is not None and group.layout.has(_COLORS):
            alike.setdefault(_kinds(group.layout), []).append(group)
    columns = [_colors_of(PackedPoints(data, same), len(kinds) > len(_COLORS)) for kinds, same in alike.items()]
    if not columns:
        return pa.nulls(len(data), pa.list_(pa.uint32()))
    return columns[0] if len(columns) == 1 else pc.coalesce(*columns)


def _kinds(layout: Layout) -> tuple[str, ...]:
    fields = [layout.field(name) for name in (*_COLORS, _ALPHA)]
    return tuple(field.kind for field in fields if field is not None)


def _colors_of(points: PackedPoints, has_alpha: bool) -> pa.ListArray:
    columns = [points.numbers(name) for name in (*_COLORS, _ALPHA)[: len(_COLORS) + has_alpha]]
    channels = [_channel(column.values.to_numpy()) for column in columns]
    if not has_alpha:
        channels.append(np.full(len(channels[0]), _OPAQUE, np.uint32))
    rgba = reduce(lambda color, part: (color << np.uint32(8)) | part, channels)
    return lists.list_array(pa.array(rgba), lists.offsets_of(columns[0]), lists.bitmap_of(columns[0]))


def _channel(numbers: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    if numbers.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return channel(numbers * 255.0)
    clamped: npt.NDArray[np.uint32] = np.clip(numbers, 0, 255).astype(np.uint32)
    return clamped


_MOST: Final = 2**31
"""More bytes, or rows, than an image in memory can have; the product of two such numbers is an int64."""

Ints = npt.NDArray[np.integer[Any]]


def is_known_image(images: pa.Array) -> pa.Array:
    """Tell, for each image, whether its encoding is a format of Rerun's."""
    return _codes(images).is_valid()


def raw_image_formats(images: pa.Array) -> pa.StructArray:
    """Rerun's formats of the images; null for those of an unknown encoding."""
    return image_formats(_sizes(images, "width"), _sizes(images, "height"), _codes(images))


def image_buffers(images: pa.Array) -> pa.ListArray:
    """The bytes of the images, without what pads their rows or follows the last one.

    Rows lie ``step`` bytes apart; where that is 0, the data is as many rows as the image has. All encodings are known.
    """
    data = blobs(member(images, "data"))
    widths, heights = (_sizes(images, name).to_numpy() for name in ("width", "height"))
    row_bytes, rows = packed_sizes(widths, heights, _codes(images).fill_null(0).to_numpy(zero_copy_only=False))
    row_bytes, rows = np.minimum(row_bytes, _MOST), np.minimum(rows, _MOST)
    steps = _sizes(images, "step").to_numpy().astype(np.int64)
    lengths = np.diff(lists.offsets_of(data)).astype(np.int64)
    return without_padding(data, row_bytes, rows, np.where(steps > 0, steps, lengths // np.maximum(rows, 1)))


def _codes(images: pa.Array) -> pa.Array:
    return encoding_codes(texts(member(images, "encoding")))


def _sizes(images: pa.Array, name: str) -> pa.Array:
    return whole(images, name, pa.uint32())


_SHAPE = ("column_count", "row_count", "cell_stride", "row_stride", "slice_stride")


class _Shape(NamedTuple):
    """The layout of the cells of one grid in its bytes. Strides are in bytes."""

    columns: int
    rows: int
    cell: int
    row: int
    slices: int

    @property
    def is_readable(self) -> bool:
        """Whether there are cells, and none lies in another: there are no more of them than bytes."""
        return min(self) > 0 and self.row >= self.columns * self.cell and self.slices >= self.rows * self.row

    def cells(self, content: Bytes) -> Bytes:
        """The bytes of the cells of all whole slices, one cell after the other, x before y before z."""
        depth = len(content) // self.slices
        strides = (self.slices, self.row, self.cell, 1)
        shape = (depth, self.rows, self.columns, self.cell)
        return np.lib.stride_tricks.as_strided(content[: depth * self.slices], shape, strides, writeable=False)


def grid_voxels(grids: pa.Array) -> pa.StructArray:
    """Structs with the cells of each grid.

    ``indices`` are x, y and z of each cell, int32; ``colors`` are 0xRRGGBBAA, as those of points are, null for grids
    without such fields. ``readable`` is false for a grid without cells, or whose cells lie in each other.
    """
    content, offsets = bytes_of(blobs(member(grids, "data")))
    sizes = np.stack([whole(grids, name, pa.uint32()).to_numpy().astype(np.int64) for name in _SHAPE], axis=1)
    shapes = [_Shape(*row) for row in sizes.tolist()]
    readable = np.array([shape.is_readable for shape in shapes], bool)
    indices, cells, counts = [np.empty((0, 3), np.int32)], [np.empty(0, np.uint8)], [0]
    for shape, begin, end in zip(shapes, offsets[:-1], offsets[1:], strict=True):
        found = shape.cells(content[begin:end]) if shape.is_readable else np.empty((0, 0, 0, 1), np.uint8)
        indices.append(_indices(found.shape[:3]))
        cells.append(found.reshape(-1))
        counts.append(len(indices[-1]))
    starts = np.cumsum(counts)
    item = pa.list_(pa.field("item", pa.int32(), nullable=False), 3)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(np.concatenate(indices).reshape(-1)), type=item)
    bytes_before = np.cumsum([len(part) for part in cells])
    data = lists.list_array(pa.array(np.concatenate(cells)), bytes_before, None)
    table = FieldTable(fields_of(member(grids, "fields")), sizes[:, 2], FOXGLOVE_TYPES)
    groups = [group for group in table.groups() if group.layout is not None and group.layout.step > 0]
    return pa.StructArray.from_arrays(
        [pa.array(readable), lists.list_array(flat, starts, None), colors_of(data, groups)],
        ["readable", "indices", "colors"],
    )


def _indices(shape: tuple[int, ...]) -> npt.NDArray[np.int32]:
    """x, y, z of the cells of slices (z) of rows (y)."""
    z, y, x = np.indices(shape, np.int32)
    return np.stack([x.reshape(-1), y.reshape(-1), z.reshape(-1)], axis=1)
