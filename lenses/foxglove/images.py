"""The pixels of Foxglove's ``RawImage``."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..blobs import blobs
from ..image_layout import encoding_codes, image_formats, packed_sizes, without_padding
from ..selector import lists
from .values import member, texts, whole

_MOST: Final = 2**31
"""More bytes, or rows, than an image in memory can have; the product of two such numbers is an int64."""

Ints = npt.NDArray[np.integer[Any]]


def is_known(images: pa.Array) -> pa.Array:
    """Which images have an encoding that is a format of Rerun's."""
    return _codes(images).is_valid()


def formats(images: pa.Array) -> pa.StructArray:
    """Rerun's formats of the images; null for those of an unknown encoding."""
    return image_formats(_sizes(images, "width"), _sizes(images, "height"), _codes(images))


def buffers(images: pa.Array) -> pa.ListArray:
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
