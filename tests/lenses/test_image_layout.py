"""Image formats by encoding, packed rows, and bytes as blobs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.errors import SelectorError
from chunkmill.lenses.arrays import BLOB, blob_array, blobs, bytes_of
from chunkmill.lenses.image_layout import (
    ENCODINGS,
    FORMAT,
    encoding_codes,
    image_formats,
    is_depth,
    packed_sizes,
    without_padding,
)

COLOURS = {
    "rgb8": (2, 6), "rgba8": (3, 6), "rgb16": (2, 8), "rgba16": (3, 8), "bgr8": (4, 6), "bgra8": (5, 6),
    "bgr16": (4, 8), "bgra16": (5, 8), "8UC3": (4, 6),
}  # fmt: skip
DEPTHS = {
    "mono8": (1, 6), "mono16": (1, 8), "8UC1": (None, 6), "8SC1": (None, 7), "16UC1": (None, 8), "16SC1": (None, 9),
    "32SC1": (None, 11), "32FC1": (None, 34), "64FC1": (None, 35),
}  # fmt: skip
PIXELS = {"yuyv": 27, "yuv422_yuy2": 27, "nv12": 26}
UNKNOWN = ("", "RGB8", "8UC4", "bayer_rggb8", "uyvy", "nope")


def test_every_encoding_has_the_format_of_the_table() -> None:
    names = pa.array([*COLOURS, *DEPTHS, *PIXELS, *UNKNOWN, None])
    codes = encoding_codes(names)
    size = pa.array([7] * len(names), pa.uint32())
    formats = image_formats(size, pa.array([5] * len(names), pa.uint32()), codes)
    assert formats.type == FORMAT
    expected = [(None, *parts) for parts in (COLOURS | DEPTHS).values()] + [(p, None, None) for p in PIXELS.values()]
    shape = {"width": 7, "height": 5}
    keys = ("pixel_format", "color_model", "channel_datatype")
    assert formats.to_pylist()[: len(ENCODINGS)] == [shape | dict(zip(keys, e, strict=True)) for e in expected]
    assert formats.to_pylist()[len(ENCODINGS) :] == [None] * (len(UNKNOWN) + 1)
    depths = [False] * len(COLOURS) + [True] * len(DEPTHS) + [False] * len(PIXELS) + [None] * (len(UNKNOWN) + 1)
    assert is_depth(codes).to_pylist() == depths


@pytest.mark.parametrize(
    ("encoding", "size"),
    [("rgb8", (6, 4)), ("bgra16", (16, 4)), ("yuyv", (4, 4)), ("nv12", (2, 6)), ("64FC1", (16, 4))],
)
def test_packed_sizes(encoding: str, size: tuple[int, int]) -> None:
    codes = encoding_codes(pa.array([encoding])).to_numpy()
    row_bytes, rows = packed_sizes(np.array([2]), np.array([4]), codes)
    assert (int(row_bytes[0]), int(rows[0])) == size


@pytest.mark.parametrize(
    ("images", "strides", "found"),
    [
        ([b"1234", b"5678"], [2, 2], [b"1234", b"5678"]),
        ([b"12x34x", b"56x78x"], [3, 3], [b"1234", b"5678"]),
        ([b"12x34", b"56x78"], [3, 3], [b"1234", b"5678"]),
        ([b"12x34xyz", b"5678"], [3, 2], [b"1234", b"5678"]),
        ([b"12345", b"678"], [2, 2], [b"1234", b"678"]),
        ([b"12x3", b""], [3, 3], [b"123", b""]),
        ([b"12345", b"56789"], [0, 1], [b"1234", b"5678"]),
    ],
)
def test_padding_behind_rows_and_bytes_behind_images_go(
    images: list[bytes], strides: list[int], found: list[bytes]
) -> None:
    two = np.array([2, 2])
    cut = without_padding(blobs(pa.array(images)), two, two, np.array(strides))
    assert cut.type == BLOB
    assert [bytes(image) for image in cut.to_pylist()] == found


def test_images_without_padding_are_not_copied() -> None:
    data = blobs(pa.array([b"1234", b"5678"]))
    assert without_padding(data, np.array([2, 2]), np.array([2, 2]), np.array([2, 2])) is data


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
