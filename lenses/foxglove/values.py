"""Fields of Foxglove's messages as Rerun's components hold them; each function takes a whole column.

The same messages come encoded as protobuf, JSON, ROS or FlatBuffers. So an enumerated value may be a number, or a
struct with its name. The fraction of a stamp may be ``nanos`` or ``nsec``. Bytes may be binary or a list. The points,
pixels and cells of ``PointCloud``, ``RawImage`` and ``VoxelGrid`` are little-endian, at offsets and strides that the
message names.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...engine.chunk import encoding_codes, image_formats
from ...engine.errors import SelectorError
from .. import arrays
from ..arrays import Bytes, blobs, bytes_of, type_name
from ..selector import beside, cast, nanoseconds
from ..sensor_layouts import (
    FOXGLOVE_TYPES,
    MATRIX,
    CloudGroup,
    FieldTable,
    PackedPoints,
    PointLayout,
    image_plane,
    image_rows,
    projections_of,
)

CODECS: Final = MappingProxyType(
    {"h264": 0x61766331, "h265": 0x68657631, "av1": 0x61763031, "vp8": 0x76703038, "vp9": 0x76703039}
)
"""Rerun's ``VideoCodec`` for the formats of ``CompressedVideo``: their four-character codes in MP4."""

_MATRIX_FIELDS: Final = ("K", "k")


def stamps(values: pa.Array) -> pa.Array:
    """Stamps as int64 nanoseconds; 0 for one that was not set."""
    if pa.types.is_null(values.type):
        return pa.array(np.zeros(len(values), np.int64))
    try:
        return pc.fill_null(nanoseconds(values), 0)
    except pa.ArrowInvalid as error:
        raise SelectorError("a time does not fit into 64 bits of nanoseconds") from error


def image_planes(frames: pa.Array) -> pa.Array:
    """The image frames for the camera ``frames``; an empty name stays empty."""
    return image_plane(texts(frames))


def texts(values: pa.Array) -> pa.Array:
    """Strings as they are. Raises :class:`SelectorError` for another type, unless all values are null."""
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), pa.string())
    if not pa.types.is_string(values.type):
        raise SelectorError(f"Invalid argument error: expected text, got type {type_name(values.type)}")
    return values


def media_types(formats: pa.Array) -> pa.Array:
    """``image/jpeg`` for ``jpeg``."""
    return pc.binary_join_element_wise("image/", texts(formats), "")


def is_codec(formats: pa.Array) -> pa.Array:
    """Return, for each video format, whether it is known."""
    return pc.is_in(pc.utf8_lower(texts(formats)), pa.array(list(CODECS)))


def codecs(formats: pa.Array) -> pa.Array:
    """Video formats as Rerun's codecs, uint32; null for unknown ones."""
    places = pc.index_in(pc.utf8_lower(texts(formats)), pa.array(list(CODECS)))
    return pa.array(list(CODECS.values()), pa.uint32()).take(places)


_LEVELS: Final = {
    "UNKNOWN": None,
    "DEBUG": "DEBUG",
    "INFO": "INFO",
    "WARNING": "WARN",
    "ERROR": "ERROR",
    "FATAL": "CRITICAL",
}
"""Rerun's names for the levels of log messages, which are numbered in this order."""


def levels(values: pa.Array) -> pa.Array:
    """Levels of log messages by Rerun's names; null for an unknown one."""
    if pa.types.is_string(values.type):
        places = pc.index_in(values, pa.array(list(_LEVELS)))
    else:
        places = pc.index_in(enumerated(values).cast(pa.int64()), pa.array(range(len(_LEVELS)), pa.int64()))
    return pa.array(list(_LEVELS.values())).take(places)


def vectors(values: pa.Array) -> pa.FixedSizeListArray:
    """Structs of x, y, z as vectors of float32; a coordinate that is not set is null."""
    return packed(values, ("x", "y", "z"))


def quaternions(values: pa.Array) -> pa.FixedSizeListArray:
    """Structs of x, y, z, w as quaternions of float32; a part that is not set is null."""
    return packed(values, ("x", "y", "z", "w"))


def coordinates(fixes: pa.Array) -> pa.FixedSizeListArray:
    """The latitude and longitude of each struct, float64."""
    return packed(fixes, ("latitude", "longitude"), np.float64)


def resolutions(calibrations: pa.Array) -> pa.FixedSizeListArray:
    """The width and height of each struct, float32."""
    return packed(calibrations, ("width", "height"))


def packed(values: pa.Array, names: Sequence[str], kind: type[np.floating[Any]] = np.float32) -> pa.FixedSizeListArray:
    """The named numbers of each struct as one vector. A number that is not set is null; a vector never is."""
    numbers, missing = beside([number(values, name) for name in names], kind)
    flat = pa.array(numbers.reshape(-1), mask=None if missing is None else missing.reshape(-1))
    return arrays.fixed_lists(flat, len(names), nullable=missing is not None)


def number(values: pa.Array, name: str) -> pa.Array:
    """Return a field of numbers of structs, null where the struct is.

    Raises :class:`SelectorError` if the field is missing, or of another type.
    """
    return _numbers(member(values, name), name)


def whole(values: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    """Like :func:`number`, but as integers of a type, with 0 for null."""
    column = cast(number(values, name), kind)
    return pc.fill_null(column, 0) if column.null_count else column


def enumerated(values: pa.Array) -> pa.Array:
    """Return enumerated values (numbers, or structs with them) as numbers. Raises :class:`SelectorError` for others."""
    return number(values, "value") if pa.types.is_struct(values.type) else _numbers(values, "enumerated values")


def _numbers(column: pa.Array, name: str) -> pa.Array:
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.float64())
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise SelectorError(f"Invalid argument error: expected numbers in `{name}`, got type {type_name(column.type)}")
    return column


def member(values: pa.Array, *names: str) -> pa.Array:
    """Return the first field that has one of these names, null where the struct is. Raises :class:`SelectorError`."""
    kind = values.type
    present = [name for name in names if pa.types.is_struct(kind) and len(kind.get_all_field_indices(name)) == 1]
    if not present:
        raise SelectorError(f"Invalid argument error: no field `{' or '.join(names)}` in type {type_name(kind)}")
    if values.null_count == 0:
        return values.field(present[0])
    return pc.struct_field(values, [present[0]])


def colors(values: pa.Array) -> pa.Array:
    """Structs of r, g, b, a (0 to 1) as 0xRRGGBBAA; null where the struct is."""
    rgba = np.zeros(len(values), np.uint32)
    for shift, name in ((24, "r"), (16, "g"), (8, "b"), (0, "a")):
        parts = pc.fill_null(number(values, name).cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
        rgba |= channel(parts * 255.0) << np.uint32(shift)
    valid = arrays.validity_of(values)
    return pa.array(rgba, mask=None if valid is None else ~valid)


def channel(parts: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.uint32]:
    """Return numbers rounded and clamped to 0 to 255; 0 for NaN."""
    rounded = np.floor(np.nan_to_num(parts, nan=0.0, posinf=255.0, neginf=0.0) + 0.5)
    numbers: npt.NDArray[np.uint32] = np.clip(rounded, 0, 255).astype(np.uint32)
    return numbers


def is_calibrated(calibrations: pa.Array) -> pa.Array:
    """Return, for each camera calibration, whether it has a 3x3 intrinsic matrix: nine numbers in ``K``."""
    matrices = member(calibrations, *_MATRIX_FIELDS)
    if not (pa.types.is_list(matrices.type) or pa.types.is_fixed_size_list(matrices.type)):
        raise SelectorError(f"Invalid argument error: no list of numbers in `K`, got {type_name(matrices.type)}")
    elements, offsets = arrays.grouped(matrices, hidden=False)
    totals = np.zeros(len(elements) + 1, np.int64)
    np.cumsum(elements.is_valid(), out=totals[1:])
    counts = totals[offsets[1:]] - totals[offsets[:-1]]
    return pa.array((counts == MATRIX) & (np.diff(offsets) == counts))


def projections(calibrations: pa.Array) -> pa.FixedSizeListArray:
    """The intrinsic matrices of camera calibrations, by column, float32; all must be calibrated."""
    matrices = member(calibrations, *_MATRIX_FIELDS)
    if not pc.all(is_calibrated(calibrations), min_count=0).as_py():
        raise SelectorError("Invalid argument error: expected nine numbers in `K`")
    numbers = cast(arrays.flattened(matrices), pa.float64()).to_numpy(zero_copy_only=False)
    return projections_of(numbers)


_AXES: Final = ("x", "y", "z")
_COLORS: Final = ("red", "green", "blue")
_ALPHA: Final = "alpha"
_OPAQUE: Final = 255


def cloud_points(clouds: pa.Array) -> pa.StructArray:
    """Structs with the points of each cloud.

    ``positions`` are vectors of float32, from the fields x, y and z; ``colors`` are 0xRRGGBBAA, from red, green, blue
    and optional alpha. Integers are clamped to 0 to 255; other numbers range from 0 to 1. Clouds without these fields
    have null positions or colours. ``readable`` is true for a cloud with positions or without any data, ``partial`` for
    one whose data ends within a point.
    """
    data = blobs(member(clouds, "data"))
    steps = whole(clouds, "point_stride", pa.uint32()).to_numpy()
    groups = FieldTable(fields_of(member(clouds, "fields")), steps.astype(np.int64), FOXGLOVE_TYPES).groups()
    filled = [group for group in groups if group.layout is not None and group.layout.step > 0]
    readable = np.diff(arrays.offsets_of(data)) == 0
    for group in filled:
        if group.layout is not None and group.layout.has(_AXES):
            readable[group.clouds] = True
    partial = np.diff(arrays.offsets_of(data)) % np.maximum(steps, 1) > 0
    return pa.StructArray.from_arrays(
        [pa.array(readable), pa.array(partial), PackedPoints(data, filled).vectors(_AXES), colors_of(data, filled)],
        ["readable", "partial", "positions", "colors"],
    )


def fields_of(fields: pa.Array) -> pa.ListArray:
    """The fields in the form for :class:`FieldTable`, with types as numbers."""
    if not (pa.types.is_list(fields.type) and pa.types.is_struct(fields.type.value_type)):
        raise SelectorError(f"Invalid argument error: expected fields of points, got type {type_name(fields.type)}")
    elements = fields.values
    offsets = number(elements, "offset").cast(pa.uint32())
    codes = enumerated(member(elements, "type")).cast(pa.int32())
    table = pa.StructArray.from_arrays(
        [texts(member(elements, "name")), offsets, codes], ["name", "offset", "datatype"]
    )
    return arrays.list_array(table, arrays.offsets_of(fields), arrays.bitmap_of(fields))


def colors_of(data: pa.ListArray, groups: list[CloudGroup]) -> pa.ListArray:
    """The colours of the points. Clouds whose numbers have the same types are computed together."""
    alike: dict[tuple[str, ...], list[CloudGroup]] = {}
    for group in groups:
        if group.layout is not None and group.layout.has(_COLORS):
            alike.setdefault(_kinds(group.layout), []).append(group)
    columns = [_colors_of(PackedPoints(data, same), len(kinds) > len(_COLORS)) for kinds, same in alike.items()]
    if not columns:
        return pa.nulls(len(data), pa.list_(pa.uint32()))
    return columns[0] if len(columns) == 1 else pc.coalesce(*columns)


def _kinds(layout: PointLayout) -> tuple[str, ...]:
    fields = [layout.field(name) for name in (*_COLORS, _ALPHA)]
    return tuple(field.kind for field in fields if field is not None)


def _colors_of(points: PackedPoints, has_alpha: bool) -> pa.ListArray:
    columns = [points.numbers(name) for name in (*_COLORS, _ALPHA)[: len(_COLORS) + has_alpha]]
    channels = [_channel(column.values.to_numpy()) for column in columns]
    if not has_alpha:
        channels.append(np.full(len(channels[0]), _OPAQUE, np.uint32))
    rgba = reduce(lambda color, part: (color << np.uint32(8)) | part, channels)
    return arrays.list_array(pa.array(rgba), arrays.offsets_of(columns[0]), arrays.bitmap_of(columns[0]))


def _channel(numbers: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    if numbers.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return channel(numbers * 255.0)
    clamped: npt.NDArray[np.uint32] = np.clip(numbers, 0, 255).astype(np.uint32)
    return clamped


def is_known_image(images: pa.Array) -> pa.Array:
    """Return, for each image, whether Rerun has a format for its encoding."""
    return _codes(images).is_valid()


def raw_image_formats(images: pa.Array) -> pa.StructArray:
    """Rerun's formats of the images; null for images with an unknown encoding."""
    return image_formats(_sizes(images, "width"), _sizes(images, "height"), _codes(images))


def raw_pixels(images: pa.Array) -> pa.StructArray:
    """Structs with the pixels of images, which are little-endian; all encodings must be known.

    ``buffer`` has their rows without padding; if ``step`` is 0, all rows are equally long. ``short`` is true for data
    that ends before the last row, ``long`` for data that continues after it.
    """
    data = blobs(member(images, "data"))
    widths, heights, steps = (_sizes(images, name).to_numpy() for name in ("width", "height", "step"))
    rows = image_rows(data, widths, heights, steps, _codes(images).fill_null(0).to_numpy(zero_copy_only=False))
    return pa.StructArray.from_arrays(
        [rows.packed(data), pa.array(rows.short), pa.array(rows.long)], ["buffer", "short", "long"]
    )


def _codes(images: pa.Array) -> pa.Array:
    return encoding_codes(texts(member(images, "encoding")))


def _sizes(images: pa.Array, name: str) -> pa.Array:
    return whole(images, name, pa.uint32())


_SHAPE = ("column_count", "row_count", "cell_stride", "row_stride", "slice_stride")


class _Shape(NamedTuple):
    """The layout of one grid's cells in its data. Strides are in bytes."""

    columns: int
    rows: int
    cell: int
    row: int
    slices: int

    @property
    def is_readable(self) -> bool:
        """Return whether there are cells and none overlap; then there are no more cells than bytes."""
        return min(self) > 0 and self.row >= self.columns * self.cell and self.slices >= self.rows * self.row

    def cells(self, content: Bytes) -> Bytes:
        """The bytes of the cells in all whole slices, as an array by z, y, x and byte."""
        depth = len(content) // self.slices
        strides = (self.slices, self.row, self.cell, 1)
        shape = (depth, self.rows, self.columns, self.cell)
        return np.lib.stride_tricks.as_strided(content[: depth * self.slices], shape, strides, writeable=False)


def grid_voxels(grids: pa.Array) -> pa.StructArray:
    """Return structs with the cells of each grid.

    ``indices`` are x, y and z of each cell, int32; ``colors`` are 0xRRGGBBAA like those of points, null for grids
    without colour fields. ``readable`` is false for a grid without cells, or with overlapping cells; ``partial`` is
    true if the data ends within a slice.
    """
    content, offsets = bytes_of(blobs(member(grids, "data")))
    sizes = np.stack([whole(grids, name, pa.uint32()).to_numpy().astype(np.int64) for name in _SHAPE], axis=1)
    shapes = [_Shape(*row) for row in sizes.tolist()]
    readable = np.array([shape.is_readable for shape in shapes], bool)
    indices, cells, counts = [np.empty((0, 3), np.int32)], [np.empty(0, np.uint8)], [0]
    for shape, begin, end in zip(shapes, offsets[:-1], offsets[1:], strict=True):
        voxels = shape.cells(content[begin:end]) if shape.is_readable else np.empty((0, 0, 0, 1), np.uint8)
        indices.append(_indices(voxels.shape[:3]))
        cells.append(voxels.reshape(-1))
        counts.append(len(indices[-1]))
    starts = np.cumsum(counts)
    flat = arrays.fixed_lists(pa.array(np.concatenate(indices).reshape(-1)), 3)
    bytes_before = np.cumsum([len(part) for part in cells])
    data = arrays.list_array(pa.array(np.concatenate(cells)), bytes_before, None)
    table = FieldTable(fields_of(member(grids, "fields")), sizes[:, 2], FOXGLOVE_TYPES)
    groups = [group for group in table.groups() if group.layout is not None and group.layout.step > 0]
    partial = np.diff(offsets) % np.maximum(sizes[:, -1], 1) > 0
    return pa.StructArray.from_arrays(
        [pa.array(readable), pa.array(partial), arrays.list_array(flat, starts, None), colors_of(data, groups)],
        ["readable", "partial", "indices", "colors"],
    )


def _indices(shape: tuple[int, ...]) -> npt.NDArray[np.int32]:
    """x, y, z of each cell, in slices (z) of rows (y)."""
    z, y, x = np.indices(shape, np.int32)
    return np.stack([x.reshape(-1), y.reshape(-1), z.reshape(-1)], axis=1)
