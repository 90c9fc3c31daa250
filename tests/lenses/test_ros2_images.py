"""Images in ROS messages: each message by its own encoding, whatever its neighbours are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from chunkmill.lenses.sensor_layouts import ENCODINGS
from ros_messages import BYTES, columns, header, mapped, message, times, types

IMAGE = message(
    {"height": pa.uint32(), "width": pa.uint32(), "encoding": pa.string(), "is_bigendian": pa.uint8(),
     "step": pa.uint32(), "data": BYTES}
)  # fmt: skip
COMPRESSED = message({"format": pa.string(), "data": BYTES})


def image(i: int, encoding: str, frame: str = "cam") -> dict[str, Any]:
    size = {"height": 1, "width": 4, "step": 0, "is_bigendian": 0}
    return {"header": header(i, frame), "encoding": encoding, "data": list(range(i, i + 3)), **size}


def compressed(i: int, text: str) -> dict[str, Any]:
    return {"header": header(i, "cam"), "format": text, "data": [i]}


@pytest.mark.parametrize("encoding", list(ENCODINGS))
def test_every_encoding_is_an_image_or_a_depth_image(encoding: str) -> None:
    known = ENCODINGS[encoding]
    found = mapped("sensor_msgs/msg/Image", IMAGE, [image(0, encoding), image(1, encoding, "")])
    kind = "DepthImage" if known.depth else "Image"
    codes = dict(zip(("pixel_format", "color_model", "channel_datatype"), (known[2], known[0], known[1]), strict=True))
    assert columns(found) == {
        "CoordinateFrame:frame": [["cam_image_plane"], [""]],
        f"{kind}:buffer": [[[0, 1, 2]], [[1, 2, 3]]],
        f"{kind}:format": [[{"width": 4, "height": 1, **codes}]] * 2,
    }
    assert types(found)[f"{kind}:buffer"] == "list<item: list<item: uint8 not null>>"
    assert times(found) == [5, 1_000_000_005]


def test_encodings_that_change_on_a_topic() -> None:
    encodings = ["rgb8", "16UC1", "nope", "bgr8", "RGB8", "32FC1"]
    found = mapped("sensor_msgs/msg/Image", IMAGE, [image(i, e) for i, e in enumerate(encodings)])
    cells = columns(found)
    assert cells["Image:buffer"] == [[[0, 1, 2]], [[3, 4, 5]]]
    assert cells["DepthImage:buffer"] == [[[1, 2, 3]], [[5, 6, 7]]]
    assert [cell[0]["encoding"] for cell in cells["sensor_msgs.msg.Image:message"]] == ["nope", "RGB8"]
    assert sorted(times(found)) == [i * 10**9 + 5 for i in (0, 1, 3, 5)]


KINDS = {
    "jpeg": "EncodedImage:blob",
    "rgb8; jpeg compressed bgr8": "EncodedImage:blob",
    "16UC1; compressedDepth png": "EncodedImage:blob",
    "16UC1; compressedDepth": "EncodedImage:blob",
    "h265": "EncodedImage:blob",
    "h264; x": "EncodedImage:blob",
    "; compressedDepth RVL": "EncodedImage:blob",
    "rvl compressedDepth; x": "EncodedImage:blob",
    "": "EncodedImage:blob",
    "h264": "VideoStream:sample",
    "H264": "VideoStream:sample",
    "16UC1; compressedDepth RVL": "EncodedDepthImage:blob",
    "32FC1;COMPRESSEDDEPTH rvl": "EncodedDepthImage:blob",
}


@pytest.mark.parametrize("text", list(KINDS))
def test_the_format_says_what_a_compressed_image_is(text: str) -> None:
    found = mapped("sensor_msgs/msg/CompressedImage", COMPRESSED, [compressed(1, text)])
    expected: dict[str, Any] = {"CoordinateFrame:frame": [["cam_image_plane"]], KINDS[text]: [[[1]]]}
    if KINDS[text] == "VideoStream:sample":
        expected["VideoStream:codec"] = [[0x61766331]]
    if KINDS[text] == "EncodedDepthImage:blob":
        expected["EncodedDepthImage:media_type"] = [["application/rvl"]]
    assert columns(found) == expected
    assert [c.is_static for c in found] == [False] + [True] * ("VideoStream:codec" in expected)


def test_kinds_that_change_on_a_topic() -> None:
    found = mapped("sensor_msgs/msg/CompressedImage", COMPRESSED, [compressed(i, t) for i, t in enumerate(KINDS)])
    cells = columns(found)
    for component in set(KINDS.values()):
        assert cells[component] == [[[i]] for i, kind in enumerate(KINDS.values()) if kind == component]
    assert len(times(found)) == len(KINDS)
    assert "sensor_msgs.msg.CompressedImage:message" not in cells


def test_a_long_format_takes_no_time() -> None:
    texts = ["x" * 1_000_000, " " * 1_000_000 + ";" * 1_000_000]
    found = mapped("sensor_msgs/msg/CompressedImage", COMPRESSED, [compressed(i, t) for i, t in enumerate(texts)])
    assert columns(found)["EncodedImage:blob"] == [[[0]], [[1]]]
