"""Maps: ``nav_msgs/OccupancyGrid`` as an image of its cells, ``nav2_msgs/VoxelGrid`` as those cells that are known."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..blobs import Bytes, blobs, bytes_of
from ..image_layout import FORMAT, U8, L
from ..selector import lists

RVIZ_MAP: Final = 10
"""Rerun's code of the colour map that RViz gives to maps."""

_MOST_VOXELS: Final = 16
_MARKED: Final = 0xFF0000FF
_FREE: Final = 0x00FF00FF


def are_whole(grids: pa.StructArray) -> pa.Array:
    """Which grids have one byte for each of ``info.width`` times ``info.height`` cells."""
    widths, heights = _sizes(grids)
    return pa.array(np.diff(lists.offsets_of(blobs(grids.field("data")))) == widths * heights)


def cells(grids: pa.StructArray) -> pa.ListArray:
    """The cells as lists of uint8, upper row first (ROS has the lower one first); unknown ones (-1) are 255.

    All grids have to be whole.
    """
    widths, heights = _sizes(grids)
    content, offsets = bytes_of(blobs(grids.field("data")))
    flipped: Bytes = np.empty(int(offsets[-1] - offsets[0]), np.uint8)
    shapes = np.stack([heights, widths])
    borders = [0, *(np.flatnonzero((shapes[:, 1:] != shapes[:, :-1]).any(axis=0)) + 1).tolist(), len(grids)]
    for begin, end in pairwise(borders):
        source = content[offsets[begin] : offsets[end]].reshape(end - begin, *shapes[:, begin].tolist())
        target = flipped[offsets[begin] - offsets[0] : offsets[end] - offsets[0]]
        target.reshape(source.shape)[:] = source[:, ::-1]
    return lists.list_array(pa.array(flipped), offsets - offsets[0], None)


def formats(infos: pa.StructArray) -> pa.StructArray:
    """The format of the cells of grids, by their ``info``: bytes of one channel."""
    count = len(infos)
    codes = [pa.nulls(count, pa.uint8()), *(pa.repeat(pa.scalar(code, pa.uint8()), count) for code in (L, U8))]
    sizes = [infos.field(name).cast(pa.uint32()) for name in ("width", "height")]
    return pa.StructArray.from_arrays([*sizes, *codes], fields=list(FORMAT))


def colour_maps(grids: pa.Array) -> pa.Array:
    """RViz's colour map for each."""
    return pa.repeat(pa.scalar(RVIZ_MAP, pa.uint8()), len(grids))


def are_columns(grids: pa.StructArray) -> pa.Array:
    """Which grids have one number for each of ``size_x`` times ``size_y`` columns of voxels."""
    across, along, _ = _voxel_sizes(grids)
    return pa.array(np.diff(lists.offsets_of(grids.field("data"))) == across * along)


def known_voxels(grids: pa.StructArray) -> pa.StructArray:
    """Structs with the voxels of each grid of which something is known.

    ``indices`` are x, y and z of each, int32; ``colors`` and ``values`` tell marked ones (red, 1) from free ones
    (green, 0). A column has two bits for each of at most 16 voxels, z and 16 above it: none is free, one is unknown,
    both are marked. All grids have to be whole.
    """
    data = grids.field("data")
    offsets = lists.offsets_of(data)
    numbers = data.values.to_numpy(zero_copy_only=False).astype(np.uint32)
    indices, marked, counts = [np.empty((0, 3), np.int32)], [np.empty(0, bool)], [0]
    for across, along, up, begin, end in zip(*_voxel_sizes(grids), offsets[:-1], offsets[1:], strict=True):
        columns = numbers[begin:end].reshape(int(along), int(across))[..., None]
        heights = np.arange(min(int(up), _MOST_VOXELS), dtype=np.uint32)
        bits = (columns >> heights & 1) + (columns >> (heights + _MOST_VOXELS) & 1)
        y, x, z = np.nonzero(bits != 1)
        indices.append(np.stack([x, y, z], axis=1).astype(np.int32))
        marked.append(bits[y, x, z] == 2)
        counts.append(len(x))
    starts, both = np.cumsum(counts), np.concatenate(marked)
    item = pa.list_(pa.field("item", pa.int32(), nullable=False), 3)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(np.concatenate(indices).reshape(-1)), type=item)
    columns = [flat, pa.array(np.where(both, _MARKED, _FREE).astype(np.uint32)), pa.array(both.astype(np.float32))]
    return pa.StructArray.from_arrays(
        [lists.list_array(column, starts, None) for column in columns], ["indices", "colors", "values"]
    )


def half_opaque(grids: pa.Array) -> pa.Array:
    """An opacity of one half for each."""
    return pa.repeat(pa.scalar(0.5, pa.float32()), len(grids))


def _voxel_sizes(grids: pa.StructArray) -> list[np.ndarray]:
    return [pc.cast(grids.field(f"size_{axis}"), pa.int64()).to_numpy(zero_copy_only=False) for axis in "xyz"]


def _sizes(grids: pa.StructArray) -> tuple[np.ndarray, np.ndarray]:
    info = grids.field("info")
    widths, heights = (pc.cast(info.field(n), pa.int64()).to_numpy(zero_copy_only=False) for n in ("width", "height"))
    return widths, heights
