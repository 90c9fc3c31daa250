"""Images and video in ROS messages: which kind a message holds, and how its pixels lie."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ..image_layout import encoding_codes, image_formats, is_depth

RVL: Final = "application/rvl"
"""The media type of depth images in RVL."""

H264: Final = 0x61766331
"""Rerun's code of the codec H.264."""

_PICTURE: Final = 1
_VIDEO: Final = 2
_RVL: Final = 3


def formats(images: pa.StructArray) -> pa.StructArray:
    """Rerun's formats of ``sensor_msgs/Image`` by its width, height and encoding; null for unknown encodings."""
    return image_formats(images.field("width"), images.field("height"), encoding_codes(images.field("encoding")))


def are_colour(encodings: pa.Array) -> pa.Array:
    """Which encodings (string) are of images in colour, or in YUV."""
    return pc.fill_null(pc.invert(is_depth(encoding_codes(encodings))), False)


def are_depth(encodings: pa.Array) -> pa.Array:
    """Which encodings (string) are of images with one channel, which are shown as depth."""
    return pc.fill_null(is_depth(encoding_codes(encodings)), False)


def kinds(texts: pa.Array) -> pa.Array:
    """What formats (string) of ``sensor_msgs/CompressedImage`` say, for the three functions below to look at."""
    coded = texts.dictionary_encode()  # each distinct one is looked at once
    return pa.array([_kind_of(text) for text in coded.dictionary.to_pylist()], pa.int8()).take(coded.indices)


def are_video(found: pa.Array) -> pa.Array:
    """Which kinds are H.264 video."""
    return pc.equal(found, _VIDEO)


def are_rvl(found: pa.Array) -> pa.Array:
    """Which kinds are depth images in RVL, as compressed_depth_image_transport writes them."""
    return pc.equal(found, _RVL)


def are_pictures(found: pa.Array) -> pa.Array:
    """Which kinds are anything else: files of their own, such as JPEG and PNG."""
    return pc.equal(found, _PICTURE)


def rvl_media_types(texts: pa.Array) -> pa.Array:
    """The media type of images in RVL, once for each."""
    return pa.repeat(RVL, len(texts))


def _kind_of(text: str) -> int:
    """The kind by texts such as ``jpeg``, ``rgb8; png compressed bgr8`` and ``16UC1; compressedDepth RVL``."""
    encoding, _, transport = text.lower().partition(";")
    if encoding == "h264":
        return _VIDEO if not transport else _PICTURE
    _, depth, codec = transport.partition("compresseddepth")
    return _RVL if encoding.strip() and depth and "rvl" in codec else _PICTURE
