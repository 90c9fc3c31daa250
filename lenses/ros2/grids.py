"""``nav_msgs/OccupancyGrid``: a map as an image of its cells."""

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


def _sizes(grids: pa.StructArray) -> tuple[np.ndarray, np.ndarray]:
    info = grids.field("info")
    widths, heights = (pc.cast(info.field(n), pa.int64()).to_numpy(zero_copy_only=False) for n in ("width", "height"))
    return widths, heights
