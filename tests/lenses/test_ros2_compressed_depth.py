"""``compressedDepth``: depth images in PNG behind the transport's header, 16UC1 as they are and 32FC1 dequantised."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from chunkmill.engine.errors import SelectorError
from chunkmill.lenses.arrays import blobs
from chunkmill.lenses.ros2 import compressed_depth
from chunkmill.lenses.ros2.compressed_depth import depth_images
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from ros_messages import BYTES, columns, header, mapped, message

NAME = "sensor_msgs/msg/CompressedImage"
COMPRESSED = message({"format": pa.string(), "data": BYTES})
OWN = "sensor_msgs.msg.CompressedImage:message"
DEPTH_16, DEPTH_32 = "16UC1; compressedDepth png", "32FC1; compressedDepth png"
A, B = 10100.0, -100.0
"""The parameters of the transport's defaults: a quantisation of 100, up to 10 m."""


def png(numbers: npt.NDArray[np.integer[Any]], filters: list[int], bits: int = 16) -> bytes:
    """A PNG of grey numbers, each line by its filter, as the standard defines them."""
    height, width = numbers.shape
    size = bits // 8
    lines = numbers.astype(f">u{size}").view(np.uint8).reshape(height, width * size).astype(int)
    raw = bytearray()
    for y, line in enumerate(lines):
        raw.append(filters[y])
        for x, value in enumerate(line):
            left, corner = (int(row[x - size]) if x >= size else 0 for row in (line, lines[y - 1]))
            above = int(lines[y - 1][x]) if y else 0
            corner = corner if y else 0
            near = min((abs(left + above - corner - n), i, n) for i, n in enumerate((left, above, corner)))[2]
            raw.append((int(value) - (0, left, above, (left + above) // 2, near)[filters[y]]) % 256)
    return framed(struct.pack(">2I5B", width, height, bits, 0, 0, 0, 0), zlib.compress(bytes(raw)))


def framed(head: bytes, body: bytes) -> bytes:
    parts = ((b"IHDR", head), (b"IDAT", body[:7]), (b"IDAT", body[7:]), (b"IEND", b""))
    made = [struct.pack(">I", len(p)) + k + p + struct.pack(">I", zlib.crc32(k + p)) for k, p in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)


def compressed(i: int, text: str, data: bytes) -> dict[str, Any]:
    return {"header": header(i, "cam"), "format": text, "data": list(data)}


def cells(*rows: tuple[str, bytes], name: str = NAME) -> dict[str, Any]:
    return columns(mapped(name, COMPRESSED, [compressed(i, *row) for i, row in enumerate(rows)]))


def quantised(depth: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """What the transport's encoder makes of depths in metres."""
    with np.errstate(invalid="ignore"):
        found = np.rint(np.float32(A) / depth + np.float32(B))
    return np.where(np.isnan(depth), 0, found).astype(np.uint16)


HEAD = struct.pack("<i2f", 0, A, B)
SOME = png(np.array([[1, 256], [1000, 65535]]), [0, 4])


@pytest.mark.parametrize(
    "text", [DEPTH_16, "16UC1; compressedDepth", "16uc1;CompressedDepth PNG", "mono16; compressedDepth"]
)
@pytest.mark.parametrize("name", [NAME, "sensor_msgs/CompressedImage"])
def test_a_16_bit_image_is_its_png_without_the_header(text: str, name: str) -> None:
    assert cells((text, HEAD + SOME), (text, SOME), name=name) == {
        "CoordinateFrame:frame": [["cam_image_plane"]] * 2,
        "EncodedDepthImage:blob": [[list(SOME)]] * 2,
        "EncodedDepthImage:media_type": [["image/png"]] * 2,
    }


def test_a_32_bit_image_is_dequantised() -> None:
    depth = np.array([[0.5, 1.25, np.nan], [3.0, 9.5, 0.2]], np.float32)
    made = cells((DEPTH_32, HEAD + png(quantised(depth), [2, 4])))
    (((buffer,),), ((form,),)) = (made[f"DepthImage:{part}"] for part in ("buffer", "format"))
    assert form == {"width": 3, "height": 2, "pixel_format": None, "color_model": None, "channel_datatype": 34}
    found = np.frombuffer(bytes(buffer), "<f4").reshape(2, 3)
    np.testing.assert_allclose(found, depth, rtol=0.005)
    assert OWN not in made


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.integers(1, 6), st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
@example(5, [0, 1, 2, 3, 4], 0)
@example(5, [4, 3, 2, 1, 0], 1)
def test_every_filter_of_png(width: int, filters: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    numbers = random.integers(1, 2**16, (len(filters), width)) // random.choice([1, 300])
    made = depth_images(blobs(pa.array([HEAD + png(numbers, filters)])), np.array([0]))
    with np.errstate(divide="ignore"):
        expected = np.where(numbers, np.float32(A) / (numbers.astype(np.float32) - np.float32(B)), np.float32(np.nan))
    assert bytes(made.field("buffer")[0].as_py()) == expected.astype("<f4").tobytes()


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (DEPTH_16, HEAD),
        (DEPTH_16, b""),
        (DEPTH_16, HEAD + b"\x89PNX" + SOME[4:]),
        (DEPTH_32, SOME),
        (DEPTH_32, struct.pack("<i2f", 0, 0, B) + SOME),
        (DEPTH_32, struct.pack("<i2f", 0, float("nan"), B) + SOME),
        (DEPTH_32, (HEAD + SOME)[:-20]),
        (DEPTH_32, (HEAD + SOME)[:40]),
        (DEPTH_32, HEAD + png(np.array([[1, 2]]), [0], 8)),
        (DEPTH_32, HEAD + framed(struct.pack(">2I5B", 2, 2, 16, 0, 0, 0, 1), zlib.compress(bytes(10)))),
        (DEPTH_32, HEAD + framed(struct.pack(">2I5B", 2, 2, 16, 0, 0, 0, 0), zlib.compress(b"\5" * 10))),
        (DEPTH_32, HEAD + framed(struct.pack(">2I5B", 2, 2, 16, 0, 0, 0, 0), zlib.compress(bytes(11)))),
        (DEPTH_32, HEAD + framed(struct.pack(">2I5B", 2**31, 2**31, 16, 0, 0, 0, 0), zlib.compress(bytes(10)))),
        ("; compressedDepth png", HEAD + SOME),
        ("8UC4; compressedDepth", HEAD + SOME),
        ("; compressedDepth RVL", HEAD),
    ],
)
def test_what_cannot_be_decoded_stays_a_message_and_the_others_do_not(text: str, data: bytes) -> None:
    made = cells((DEPTH_16, HEAD + SOME), (text, data), (DEPTH_32, HEAD + SOME), ("jpeg", b"\xff\xd8"))
    assert made["EncodedDepthImage:blob"] == [[list(SOME)]]
    assert len(made["DepthImage:buffer"]) == 1
    assert made["EncodedImage:blob"] == [[[255, 216]]]
    assert [cell[0]["format"] for cell in made[OWN]] == [text]


def test_depth_images_of_one_chunk_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed_depth, "MAX_DEPTH_IMAGES", 20)
    data = blobs(pa.array([HEAD + SOME] * 2))
    assert depth_images(data, np.array([1])).field("buffer").null_count == 1
    with pytest.raises(SelectorError, match="20 bytes"):
        depth_images(data, np.array([0, 1]))
