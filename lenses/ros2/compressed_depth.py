"""``compressedDepth``: the depth images of ``compressed_depth_image_transport``, in PNG behind a header of 12 bytes.

Source: https://github.com/ros-perception/image_transport_plugins/tree/rolling/compressed_depth_image_transport. The
header is ``int32 format`` and two ``float32`` parameters, A and B, little-endian. The PNG of a ``16UC1`` image has its
numbers. The PNG of a ``32FC1`` image has ``A / depth + B``, rounded, and 0 where there is no depth.

Source of the PNG format: https://www.w3.org/TR/png-3. Only PNGs as the transport writes them are decoded: one
channel of 16 bits, not interlaced.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from zlib_ng import zlib_ng

from ...engine.chunk import IMAGE_ENCODINGS, IMAGE_FORMAT
from ...engine.errors import SelectorError
from ...engine.limits import MAX_DEPTH_IMAGE, MAX_DEPTH_IMAGES
from ..arrays import BLOB, Bytes, blob_array, bytes_of, list_array
from ..sensor_layouts import Ints

HEADER_BYTES: Final = 12

_FLOATS: Final = IMAGE_ENCODINGS["32FC1"]

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_HEADER: Final = struct.Struct("<i2f")
_PNG_CHUNK: Final = struct.Struct(">I4s")
_PNG_SIZE: Final = struct.Struct(">2I5B")
_GREY_16_BITS: Final = (16, 0, 0, 0, 0)
"""Bit depth, colour type, methods of compression and of filters, interlacing."""

_SUB, _UP, _AVERAGE, _PAETH = range(1, 5)


class _Quantised(NamedTuple):
    """The PNG of a ``32FC1`` image, not yet inflated, and the parameters of its numbers."""

    width: int
    height: int
    compressed: bytes
    a: float
    b: float


def png_starts(data: pa.ListArray, rows: Ints) -> Ints:
    """Return where the PNG of each of these rows begins: after the header, or at 0; -1 if there is no PNG."""
    content, offsets = bytes_of(data)

    def start(row: int) -> int:
        for place in (HEADER_BYTES, 0):
            begin, end = int(offsets[row]) + place, int(offsets[row + 1])
            if content[begin : min(begin + len(_SIGNATURE), end)].tobytes() == _SIGNATURE:
                return place
        return -1

    return np.array([start(row) for row in rows.tolist()], np.int64)


def without_starts(data: pa.ListArray, rows: Ints, starts: Ints) -> pa.ListArray:
    """Return the blobs, those of ``rows`` without the first ``starts`` bytes; the same array if all starts are 0."""
    if not starts.any():
        return data
    content, offsets = bytes_of(data)
    mask = np.ones(int(offsets[-1] - offsets[0]), bool)
    sizes = np.diff(offsets).astype(np.int64)
    for row, start in zip(rows.tolist(), starts.tolist(), strict=True):
        begin = int(offsets[row] - offsets[0])
        mask[begin : begin + start] = False
        sizes[row] -= start
    return blob_array(content[offsets[0] : offsets[-1]][mask], np.concatenate(([0], np.cumsum(sizes))))


def depth_images(data: pa.ListArray, rows: Ints) -> pa.StructArray:
    """Return structs of ``buffer`` and ``format``: the ``32FC1`` images in ``rows``, float32, NaN for no depth.

    Both are null for other rows, and for images that cannot be decoded. Decoding takes 0.1 s for 640 x 480. Raises
    :class:`SelectorError` if the images together have more than
    :data:`~chunkmill.engine.limits.MAX_DEPTH_IMAGES` bytes.
    """
    content, offsets = bytes_of(data)
    quantised = {row: _quantised(content[offsets[row] : offsets[row + 1]].tobytes()) for row in rows.tolist()}
    images = {row: image for row, image in quantised.items() if image is not None}
    if len(images) > 1 and sum(4 * image.width * image.height for image in images.values()) > MAX_DEPTH_IMAGES:
        raise SelectorError(f"depth images of one chunk have more than {MAX_DEPTH_IMAGES:,} bytes")
    depths = {row: depth for row, image in images.items() if (depth := _depth(image)) is not None}
    valid = np.zeros(len(data), bool)
    sizes = np.zeros(len(data) + 1, np.int64)
    formats: list[dict[str, int | None] | None] = [None] * len(data)
    for row, depth in depths.items():
        valid[row] = True
        sizes[row + 1] = depth.nbytes
        formats[row] = {"width": depth.shape[1], "height": depth.shape[0], "channel_datatype": _FLOATS.datatype}
    joined = np.concatenate([np.empty(0, np.uint8), *(depth.reshape(-1).view(np.uint8) for depth in depths.values())])
    buffers = list_array(pa.array(joined), np.cumsum(sizes), valid).cast(BLOB)
    return pa.StructArray.from_arrays([buffers, pa.array(formats, IMAGE_FORMAT)], ["buffer", "format"])


def _quantised(image: bytes) -> _Quantised | None:
    if not image.startswith(_SIGNATURE, HEADER_BYTES):
        return None
    _, a, b = _HEADER.unpack_from(image)
    parts: list[bytes] = []
    size = None
    place = HEADER_BYTES + len(_SIGNATURE)
    while place + _PNG_CHUNK.size <= len(image):
        length, kind = _PNG_CHUNK.unpack_from(image, place)
        begin = place + _PNG_CHUNK.size
        place = begin + length + 4
        if kind == b"IHDR" and length == _PNG_SIZE.size and begin + length <= len(image):
            size = _PNG_SIZE.unpack_from(image, begin)
        elif kind == b"IDAT":
            parts.append(image[begin : begin + length])
    if size is None or size[2:] != _GREY_16_BITS or not (np.isfinite([a, b]).all() and a):
        return None
    width, height = size[:2]
    if not 0 < 4 * width * height <= MAX_DEPTH_IMAGE:
        return None
    return _Quantised(width, height, b"".join(parts), a, b)


def _depth(image: _Quantised) -> npt.NDArray[np.float32] | None:
    """Return the depth of each pixel, or None if the PNG is damaged."""
    width, height = image.width, image.height
    size = height * (1 + 2 * width)
    inflater = zlib_ng.decompressobj()
    try:
        inflated = inflater.decompress(image.compressed, size)
        more = inflater.decompress(inflater.unconsumed_tail, 1)  # reads the checksum at the end
    except zlib_ng.error:  # type: ignore[misc]  # its stub does not say that it is an exception
        return None
    if len(inflated) != size or more or not inflater.eof:
        return None
    lines: Bytes = np.frombuffer(inflated, np.uint8).reshape(height, 1 + 2 * width)
    if (lines[:, 0] > _PAETH).any():
        return None
    numbers = _unfiltered(lines[:, 0], lines[:, 1:].reshape(height, width, 2))
    levels = numbers.view(">u2")[:, :, 0].astype(np.float32)
    with np.errstate(divide="ignore", over="ignore"):
        depth: npt.NDArray[np.float32] = np.float32(image.a) / (levels - np.float32(image.b))
    depth[levels == 0] = np.nan
    return depth


def _unfiltered(filters: Bytes, lines: Bytes) -> Bytes:
    """Undo the filter of each line, and return the pixels' bytes (height, width, 2).

    A pixel needs the pixels to its left, above, and above left. All pixels with the same sum of x and y are computed
    at once, as a loop over pixels would take minutes for a recording.
    """
    height, width, _ = lines.shape
    # One row for each sum, shifted by two, and one column for each y, shifted by one. Pixels outside are 0.
    sums = np.zeros((width + height + 1, height + 1, 2), np.int16)
    across, down, byte = sums.strides
    pixels = np.lib.stride_tricks.as_strided(sums[2:, 1:], lines.shape, (across + down, across, byte))
    pixels[:] = lines
    by_filter = [np.flatnonzero(filters == number) for number in range(5)]
    for number in range(width + height - 1):
        first, end = max(0, number - width + 1), min(height, number + 1)
        for kind, rows in enumerate(by_filter):
            ys = rows[np.searchsorted(rows, first) : np.searchsorted(rows, end)]
            if kind and len(ys):
                line = sums[number + 2]
                line[ys + 1] = (line[ys + 1] + _predicted(kind, sums, number, ys)) & 255
    return np.ascontiguousarray(pixels.astype(np.uint8))


def _predicted(kind: int, sums: npt.NDArray[np.int16], number: int, ys: Ints) -> npt.NDArray[np.int16]:
    """Return a filter's predictions for the pixels in lines ``ys`` whose x and y have this sum."""
    left: npt.NDArray[np.int16] = sums[number + 1][ys + 1]
    above: npt.NDArray[np.int16] = sums[number + 1][ys]
    if kind == _SUB:
        return left
    if kind == _UP:
        return above
    if kind == _AVERAGE:
        mean: npt.NDArray[np.int16] = (left + above) >> 1
        return mean
    corner: npt.NDArray[np.int16] = sums[number][ys]
    by_left, by_above = np.abs(above - corner), np.abs(left - corner)
    by_corner = np.abs(left + above - 2 * corner)
    nearest = np.where((by_left <= by_above) & (by_left <= by_corner), left, corner)
    predicted: npt.NDArray[np.int16] = np.where((by_above < by_left) & (by_above <= by_corner), above, nearest)
    return predicted
