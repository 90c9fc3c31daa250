"""Images in ROS messages: each message by its own encoding, whatever its neighbours are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.chunk import IMAGE_ENCODINGS
from chunkmill.lenses import LensSet
from chunkmill.lenses.ros2 import ros2_lenses
from chunkmill.lenses.sensor_layouts import DATA_ENDS_EARLY, DATA_GOES_ON
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from ros_messages import BYTES, chunk, columns, header, mapped, message, times, types

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


@pytest.mark.parametrize("encoding", list(IMAGE_ENCODINGS))
def test_every_encoding_is_an_image_or_a_depth_image(encoding: str) -> None:
    known = IMAGE_ENCODINGS[encoding]
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
    "h265": "EncodedImage:blob",
    "h264; x": "EncodedImage:blob",
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


NUMBERS = {"mono8": "u1", "mono16": "u2", "16SC1": "i2", "32SC1": "i4", "32FC1": "f4", "64FC1": "f8"}
CHANNELS = {"rgb8": ("u1", 3), "bgra16": ("u2", 4), **{name: (kind, 1) for name, kind in NUMBERS.items()}}


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(list(CHANNELS)), st.integers(1, 4), st.integers(1, 4), st.integers(0, 5), st.booleans()
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(["sensor_msgs/msg/Image", "sensor_msgs/Image"]),
)
@example([("rgb8", 2, 2, 2, False), ("mono16", 2, 2, 0, True), ("32FC1", 1, 2, 4, True)], "sensor_msgs/Image")
def test_pixels_of_any_padding_and_byte_order(rows: list[tuple[str, int, int, int, bool]], name: str) -> None:
    messages, expected = [], {"Image": [], "DepthImage": []}
    for i, (encoding, height, width, padding, big) in enumerate(rows):
        kind, channels = CHANNELS[encoding]
        pixels = (np.arange(height * width * channels) + 250).astype(kind).reshape(height, -1)
        packed = [row.astype((">" if big else "<") + kind).tobytes() + b"\xee" * padding for row in pixels]
        size = {"height": height, "width": width, "step": len(packed[0]), "is_bigendian": int(big)}
        messages.append(image(i, encoding) | {"data": list(b"".join(packed))} | size)
        expected["DepthImage" if encoding in NUMBERS else "Image"].append([list(pixels.astype("<" + kind).tobytes())])
    cells = columns(mapped(name, IMAGE, messages))
    assert {kind: cells.get(f"{kind}:buffer", []) for kind in expected} == expected


def test_yuv_has_no_byte_order() -> None:
    row = image(0, "yuv422_yuy2") | {"width": 2, "step": 6, "is_bigendian": 1, "data": [1, 2, 3, 4, 9, 9]}
    assert columns(mapped("sensor_msgs/msg/Image", IMAGE, [row]))["Image:buffer"] == [[[1, 2, 3, 4]]]


def test_an_image_that_ends_early_or_goes_on_is_remarked() -> None:
    rows = [image(i, "rgb8") | {"width": 1, "data": list(range(n)), "step": 3} for i, n in enumerate([3, 2, 5, 4])]
    outputs = LensSet(ros2_lenses("sensor_msgs/msg/Image", "/t")).outputs(chunk("sensor_msgs/msg/Image", IMAGE, rows))
    made = next(output for output in outputs if output.chunk is not None and output.chunk.num_rows)
    assert columns([made.chunk])["Image:buffer"] == [[[0, 1, 2]], [[0, 1]], [[0, 1, 2]], [[0, 1, 2]]]
    assert made.remarks == ((1, DATA_ENDS_EARLY), (2, DATA_GOES_ON))
