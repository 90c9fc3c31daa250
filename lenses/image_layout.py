"""Images: what encodings say of them, as Rerun's formats, where their rows lie, and the cameras that took them.

Source: the encodings of ROS (``sensor_msgs/image_encodings.hpp``), which Foxglove's ``RawImage`` takes over; the codes
are those of Rerun's ``PixelFormat``, ``ColorModel`` and ``ChannelDatatype``.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .arrays import Bytes, blob_array, bytes_of, fixed_lists

FORMAT: Final = pa.struct(
    [
        pa.field("width", pa.uint32(), nullable=False),
        pa.field("height", pa.uint32(), nullable=False),
        pa.field("pixel_format", pa.uint8()),
        pa.field("color_model", pa.uint8()),
        pa.field("channel_datatype", pa.uint8()),
    ]
)
"""The type of Rerun's ``ImageFormat``."""

L: Final = 1
RGB: Final = 2
RGBA: Final = 3
BGR: Final = 4
BGRA: Final = 5

U8: Final = 6
I8: Final = 7
U16: Final = 8
I16: Final = 9
I32: Final = 11
F32: Final = 34
F64: Final = 35

NV12: Final = 26
YUY2: Final = 27

Ints = npt.NDArray[np.integer[Any]]


class ImageEncoding(NamedTuple):
    """An encoding of images: its format, the bytes of a pixel in a row, and the rows for one of its height.

    ``depth``: one channel that is shown as distance.
    """

    color_model: int | None = None
    datatype: int | None = None
    pixel_format: int | None = None
    pixel_bytes: int = 1
    row_factor: Fraction = Fraction(1)
    depth: bool = False


ENCODINGS: Final = {
    "rgb8": ImageEncoding(RGB, U8, pixel_bytes=3),
    "rgba8": ImageEncoding(RGBA, U8, pixel_bytes=4),
    "rgb16": ImageEncoding(RGB, U16, pixel_bytes=6),
    "rgba16": ImageEncoding(RGBA, U16, pixel_bytes=8),
    "bgr8": ImageEncoding(BGR, U8, pixel_bytes=3),
    "bgra8": ImageEncoding(BGRA, U8, pixel_bytes=4),
    "bgr16": ImageEncoding(BGR, U16, pixel_bytes=6),
    "bgra16": ImageEncoding(BGRA, U16, pixel_bytes=8),
    "8UC3": ImageEncoding(BGR, U8, pixel_bytes=3),
    "yuyv": ImageEncoding(pixel_format=YUY2, pixel_bytes=2),
    "yuv422_yuy2": ImageEncoding(pixel_format=YUY2, pixel_bytes=2),
    "nv12": ImageEncoding(pixel_format=NV12, row_factor=Fraction(3, 2)),
    "mono8": ImageEncoding(L, U8, depth=True),
    "mono16": ImageEncoding(L, U16, pixel_bytes=2, depth=True),
    "8UC1": ImageEncoding(None, U8, depth=True),
    "8SC1": ImageEncoding(None, I8, depth=True),
    "16UC1": ImageEncoding(None, U16, pixel_bytes=2, depth=True),
    "16SC1": ImageEncoding(None, I16, pixel_bytes=2, depth=True),
    "32SC1": ImageEncoding(None, I32, pixel_bytes=4, depth=True),
    "32FC1": ImageEncoding(None, F32, pixel_bytes=4, depth=True),
    "64FC1": ImageEncoding(None, F64, pixel_bytes=8, depth=True),
}
"""By name, exactly as written. Others (Bayer patterns, ``8UC4``, …) have no image format."""


@cache
def _encodings() -> pa.RecordBatch:
    """:data:`ENCODINGS` by column."""
    rows = ENCODINGS.values()
    codes = ("pixel_format", "color_model", "datatype")
    columns = [pa.array([getattr(row, name) for row in rows], pa.uint8()) for name in codes]
    columns += [pa.array(list(ENCODINGS)), pa.array([row.depth for row in rows])]
    return pa.RecordBatch.from_arrays(columns, [*codes, "name", "depth"])


_PIXEL_BYTES: Final = np.array([e.pixel_bytes for e in ENCODINGS.values()], np.int64)
_NUMERATORS: Final = np.array([e.row_factor.numerator for e in ENCODINGS.values()], np.int64)
_DENOMINATORS: Final = np.array([e.row_factor.denominator for e in ENCODINGS.values()], np.int64)


def encoding_codes(encodings: pa.Array) -> pa.Array:
    """The places (int32) of encodings in ``ENCODINGS``, null for those that are not there."""
    return pc.index_in(encodings, _encodings()["name"])


def is_depth(codes: pa.Array) -> pa.Array:
    """Tell, for each encoding, whether it is of depth images (bool); null for unknown ones."""
    return _encodings()["depth"].take(codes)


def image_formats(widths: pa.Array, heights: pa.Array, codes: pa.Array) -> pa.StructArray:
    """Formats, as :data:`FORMAT`, of images in pixels (uint32) by their encodings' codes; null for unknown ones.

    >>> image_formats(pa.array([2], "uint32"), pa.array([1], "uint32"), encoding_codes(pa.array(["rgb8"])))[0].as_py()
    {'width': 2, 'height': 1, 'pixel_format': None, 'color_model': 2, 'channel_datatype': 6}
    """
    parts = [_encodings()[name].take(codes) for name in ("pixel_format", "color_model", "datatype")]
    whole = [pc.fill_null(values.cast(pa.uint32()), 0) for values in (widths, heights)]
    unknown = codes.is_null() if codes.null_count else None
    return pa.StructArray.from_arrays([*whole, *parts], fields=list(FORMAT), mask=unknown)


def packed_sizes(widths: Ints, heights: Ints, codes: Ints) -> tuple[Ints, Ints]:
    """Bytes of one row without padding, and the number of rows, as int64; all encodings known."""
    rows = heights.astype(np.int64) * _NUMERATORS[codes] // _DENOMINATORS[codes]
    return widths.astype(np.int64) * _PIXEL_BYTES[codes], rows


def without_padding(data: pa.ListArray, row_bytes: Ints, rows: Ints, strides: Ints) -> pa.ListArray:
    """Images with ``row_bytes`` of each of their rows, which lie ``strides`` bytes apart; all else is cut off.

    The very same blobs where nothing has to go. An image that ends early keeps what it has.
    """
    content, offsets = bytes_of(data)
    lengths = np.diff(offsets).astype(np.int64)
    if not ((strides > row_bytes) & (rows > 0)).any() and not (lengths > row_bytes * rows).any():
        return data
    # Images alike are cut as one array: a fifth of the time of one by one (50 of 640 x 480: 8 ms, not 34), and the
    # converting of camera topics is guarded by benchmarks/bench_convert.py.
    layouts = np.stack([lengths, row_bytes, rows, strides])
    if len(offsets) > 1 and (layouts == layouts[:, :1]).all():
        length, *layout = layouts[:, 0].tolist()
        whole = content[offsets[0] : offsets[-1]].reshape(-1, length)
        images = _narrowed(whole, *layout)
        sizes = np.full(len(images), images.shape[1], np.int64)
        return blob_array(images.reshape(-1), _offsets(sizes))
    cut = [
        _narrowed(content[begin : begin + length].reshape(1, length), *layout).reshape(-1)
        for begin, (length, *layout) in zip(offsets[:-1].tolist(), layouts.T.tolist(), strict=True)
    ]
    return blob_array(np.concatenate(cut), _offsets(np.array([len(image) for image in cut], np.int64)))


def _narrowed(images: Bytes, row_bytes: int, rows: int, stride: int) -> Bytes:
    """The wanted bytes of images of equal size, one image per row."""
    count, length = images.shape
    if stride <= row_bytes:
        return images[:, : row_bytes * rows]
    whole = min(length // stride, rows)
    kept = images[:, : whole * stride].reshape(count, whole, stride)[:, :, :row_bytes].reshape(count, -1)
    if whole == rows:
        return kept
    return np.concatenate((kept, images[:, whole * stride : whole * stride + row_bytes]), axis=1)


def _offsets(sizes: Ints) -> Ints:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


_IMAGE_PLANE: Final = "_image_plane"
"""The suffix that makes the name of a camera's frame that of the frame of its images."""

MATRIX: Final = 9
"""The numbers of a camera's matrix."""


def image_plane(frames: pa.Array) -> pa.Array:
    """The frames of images, by the frames (string) of their cameras; a camera without one has none for its images.

    >>> image_plane(pa.array(["camera", ""])).to_pylist()
    ['camera_image_plane', '']
    """
    planes = pc.binary_join_element_wise(frames, _IMAGE_PLANE, "")
    return pc.if_else(pc.equal(frames, ""), frames, planes)


def projections_of(numbers: npt.NDArray[Any]) -> pa.FixedSizeListArray:
    """Matrices of cameras as Rerun's projections, float32 by column, from their numbers row by row."""
    with np.errstate(over="ignore"):
        by_column = numbers.astype(np.float32).reshape(-1, 3, 3).swapaxes(1, 2)
    return fixed_lists(pa.array(by_column.reshape(-1)), MATRIX)
