"""Pixel images: their encodings, by ROS name, and Rerun's image formats for these.

Source: the encodings of ROS (``sensor_msgs/image_encodings.hpp``), which Foxglove's ``RawImage`` shares; the codes are
those of Rerun's ``PixelFormat``, ``ColorModel`` and ``ChannelDatatype``.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

IMAGE_FORMAT: Final = pa.struct(
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
BAYER_RGGB: Final = 128
BAYER_BGGR: Final = 129
BAYER_GBRG: Final = 130
BAYER_GRBG: Final = 131


_NUMBER_BYTES: Final = {U8: 1, I8: 1, U16: 2, I16: 2, I32: 4, F32: 4, F64: 8}


class ImageEncoding(NamedTuple):
    """An image encoding: its format, the bytes per pixel of a stored row, and the stored rows per row of pixels.

    ``depth``: one channel that is shown as distance.
    """

    color_model: int | None = None
    datatype: int | None = None
    pixel_format: int | None = None
    pixel_bytes: int = 1
    row_factor: Fraction = Fraction(1)
    depth: bool = False

    @property
    def number_bytes(self) -> int:
        """The bytes of a channel's number; 1 for encodings with a pixel format."""
        return _NUMBER_BYTES.get(self.datatype or U8, 1)


IMAGE_ENCODINGS: Final = {
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
    "bayer_rggb8": ImageEncoding(pixel_format=BAYER_RGGB),
    "bayer_bggr8": ImageEncoding(pixel_format=BAYER_BGGR),
    "bayer_gbrg8": ImageEncoding(pixel_format=BAYER_GBRG),
    "bayer_grbg8": ImageEncoding(pixel_format=BAYER_GRBG),
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
"""By name, exactly as written. Others (Bayer patterns of 16 bits, ``8UC4``, …) have no image format."""


@cache
def _encodings() -> pa.RecordBatch:
    """:data:`IMAGE_ENCODINGS` by column."""
    rows = IMAGE_ENCODINGS.values()
    codes = ("pixel_format", "color_model", "datatype")
    columns = [pa.array([getattr(row, name) for row in rows], pa.uint8()) for name in codes]
    columns += [pa.array(list(IMAGE_ENCODINGS)), pa.array([row.depth for row in rows])]
    return pa.RecordBatch.from_arrays(columns, [*codes, "name", "depth"])


def encoding_codes(encodings: pa.Array) -> pa.Array:
    """Return the indexes (int32) of encodings in ``IMAGE_ENCODINGS``; null for unknown ones."""
    return pc.index_in(encodings, _encodings()["name"])


def is_depth(codes: pa.Array) -> pa.Array:
    """Return, for each encoding, whether it is for depth images (bool); null for unknown ones."""
    return _encodings()["depth"].take(codes)


def image_formats(widths: pa.Array, heights: pa.Array, codes: pa.Array) -> pa.StructArray:
    """Return :data:`IMAGE_FORMAT` values for sizes in pixels (uint32) and codes of encodings; null for unknown codes.

    >>> image_formats(pa.array([2], "uint32"), pa.array([1], "uint32"), encoding_codes(pa.array(["rgb8"])))[0].as_py()
    {'width': 2, 'height': 1, 'pixel_format': None, 'color_model': 2, 'channel_datatype': 6}
    """
    parts = [_encodings()[name].take(codes) for name in ("pixel_format", "color_model", "datatype")]
    whole = [pc.fill_null(values.cast(pa.uint32()), 0) for values in (widths, heights)]
    unknown = codes.is_null() if codes.null_count else None
    return pa.StructArray.from_arrays([*whole, *parts], fields=list(IMAGE_FORMAT), mask=unknown)
