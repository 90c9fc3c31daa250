"""The cells of Foxglove's ``VoxelGrid``: slices of rows of packed numbers, at the strides that the message names."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..blobs import Bytes, blobs, bytes_of
from ..packed_layouts import FOXGLOVE_TYPES, FieldTable
from ..selector import lists
from .points import colors_of, fields_of
from .values import member, whole

_SHAPE = ("column_count", "row_count", "cell_stride", "row_stride", "slice_stride")


class _Shape(NamedTuple):
    """How the cells of one grid lie in its bytes. Strides are in bytes."""

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


def taken_apart(grids: pa.Array) -> pa.StructArray:
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
