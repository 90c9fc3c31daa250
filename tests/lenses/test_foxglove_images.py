"""Foxglove's images, videos and cameras as Rerun's archetypes."""

from __future__ import annotations

from typing import Any

import pytest
from foxglove_messages import DIALECTS, JSON, datatypes, mapped, stamp

RGB8 = {"width": 2, "height": 2, "pixel_format": None, "color_model": 2, "channel_datatype": 6}
K = [500.0, 0.0, 320.0, 0.0, 501.0, 240.0, 0.0, 0.0, 1.0]
BY_COLUMN = [500.0, 0.0, 0.0, 0.0, 501.0, 0.0, 320.0, 240.0, 1.0]


def image(data: bytes, step: int = 0, encoding: str = "rgb8", width: int = 2, height: int = 2) -> dict[str, Any]:
    size = {"width": width, "height": height, "step": step}
    return {"timestamp": stamp(1), "frame_id": "cam", "encoding": encoding, "data": data, **size}


def buffers(*images: dict[str, Any]) -> list[bytes]:
    (made,) = mapped("RawImage", list(images))
    return [bytes(blob) for (blob,) in made["Image:buffer"]]


def test_a_compressed_image_is_its_bytes_and_what_they_are() -> None:
    rows = [
        {"timestamp": stamp(4), "frame_id": f, "data": d, "format": "jpeg"} for f, d in (("cam", b"\xff"), ("", b""))
    ]
    (made,) = mapped("CompressedImage", rows)
    assert made == {
        "log": [0, 1],
        "timestamp": [4, 4],
        "CoordinateFrame:frame": [["cam_image_plane"], [""]],
        "EncodedImage:blob": [[[255]], [[]]],
        "EncodedImage:media_type": [["image/jpeg"], ["image/jpeg"]],
    }
    assert datatypes("CompressedImage", rows)["EncodedImage:blob"] == "list<item: list<item: uint8 not null>>"


@pytest.mark.parametrize(
    ("name", "code"),
    [("h264", 0x61766331), ("H265", 0x68657631), ("av1", 0x61763031), ("vp8", 0x76703038), ("vp9", 0x76703039)],
)
def test_a_video_has_a_codec(name: str, code: int) -> None:
    (made,) = mapped("CompressedVideo", [{"timestamp": stamp(1), "frame_id": "cam", "data": b"\1\2", "format": name}])
    assert made["VideoStream:codec"] == [[code]]
    assert made["VideoStream:sample"] == [[[1, 2]]]


def test_a_frame_of_an_unknown_codec_stays_as_it_is_and_the_others_do_not() -> None:
    rows = [
        {"timestamp": stamp(i), "frame_id": "", "data": b"%d" % i, "format": f}
        for i, f in enumerate(["av1", "mpeg4", "av1"])
    ]
    left, made = mapped("CompressedVideo", rows)
    assert (left["log"], left["foxglove.CompressedVideo:message"]) == ([1], [[rows[1]]])
    assert (made["log"], made["VideoStream:sample"]) == ([0, 2], [[[48]], [[50]]])


def test_an_image_and_its_format() -> None:
    (made,) = mapped("RawImage", [image(bytes(range(12)))])
    assert made == {
        "log": [0],
        "timestamp": [1],
        "CoordinateFrame:frame": [["cam_image_plane"]],
        "Image:format": [[RGB8]],
        "Image:buffer": [[list(range(12))]],
    }
    kinds = datatypes("RawImage", [image(bytes(12))])
    assert kinds["Image:buffer"] == "list<item: list<item: uint8 not null>>"
    assert kinds["Image:format"] == (
        "list<item: struct<width: uint32 not null, height: uint32 not null, pixel_format: uint8, color_model: uint8, "
        "channel_datatype: uint8>>"
    )


def test_depth_images_are_images_here() -> None:
    (made,) = mapped("RawImage", [image(bytes(8), encoding="16UC1"), image(bytes(4), encoding="mono8")])
    formats = [(f["color_model"], f["channel_datatype"]) for (f,) in made["Image:format"]]
    assert formats == [(None, 8), (1, 6)]


@pytest.mark.parametrize("step", [8, 0])
def test_what_pads_the_rows_is_taken_away(step: int) -> None:
    padded = bytes(range(16))
    assert buffers(image(padded, step)) == [padded[:6] + padded[8:14]]


def test_images_of_several_sizes_in_one_column() -> None:
    data = bytes(range(16))
    images = [
        image(data, 8),
        image(data[:12], 6),
        image(data[:4], 4, "mono8", 3, 1),
        image(data, 8, "rgba8"),
        image(b"", 6),
    ]
    assert buffers(*images) == [data[:6] + data[8:14], data[:12], data[:3], data, b""]


def test_what_follows_the_last_row_is_cut_off_and_what_is_missing_stays_missing() -> None:
    data = bytes(range(16))
    assert buffers(image(data, 6), image(data[:7], 6), image(data[:9], 8)) == [
        data[:12],
        data[:7],
        data[:6] + data[8:9],
    ]


def test_half_the_rows_of_nv12_are_of_its_colours() -> None:
    data = bytes(range(12))
    assert buffers(image(data, 4, "nv12"), image(data[:6], 0, "nv12")) == [bytes([0, 1, 4, 5, 8, 9]), data[:6]]


@pytest.mark.parametrize("size", [0, 1, 2**31, 2**32 - 1])
def test_sizes_that_no_image_has_harm_nothing(size: int) -> None:
    data = bytes(range(12))
    wide = image(data, 0, "rgba16", width=size, height=2**32 - 1)
    tall = image(data, 2**32 - 1, "rgba16", width=size, height=size)
    assert all(data.startswith(kept) for kept in buffers(wide, tall, image(data, 6))[:2])
    assert buffers(wide, image(data, 6))[1] == data


@pytest.mark.parametrize("encoding", ["zzz", "", "RGB8", "bayer_rggb16", None])
def test_an_image_of_an_unknown_encoding_stays_as_it_is_and_the_others_do_not(encoding: str | None) -> None:
    strange = image(bytes(4)) | {"encoding": encoding}
    left, made = mapped("RawImage", [image(bytes(12)), strange, image(bytes(12))])
    assert left["log"] == [1]
    assert left["foxglove.RawImage:message"] == [[{**strange, "timestamp": stamp(1)}]]
    assert (made["log"], made["Image:format"]) == ([0, 2], [[RGB8], [RGB8]])


def test_a_camera() -> None:
    row = {"timestamp": stamp(1), "frame_id": "cam", "width": 640, "height": 480, "K": K}
    (made,) = mapped("CameraCalibration", [row, row | {"frame_id": ""}])
    assert made == {
        "log": [0, 1],
        "timestamp": [1, 1],
        "Pinhole:image_from_camera": [[BY_COLUMN]] * 2,
        "Pinhole:resolution": [[[640.0, 480.0]]] * 2,
        "Pinhole:parent_frame": [["cam"], [""]],
        "Pinhole:child_frame": [["cam_image_plane"], [""]],
    }
    kinds = datatypes("CameraCalibration", [row])
    assert kinds["Pinhole:image_from_camera"] == "list<item: fixed_size_list<item: float not null>[9]>"
    assert kinds["Pinhole:resolution"] == "list<item: fixed_size_list<item: float not null>[2]>"


@pytest.mark.parametrize("matrix", [None, [], [1.0, 2.0, 3.0], [*K, 0.0], [*K[:8], None]])
def test_a_camera_without_nine_numbers_stays_as_it_is_and_the_others_do_not(matrix: Any) -> None:
    row = {"timestamp": stamp(1), "frame_id": "cam", "width": 640, "height": 480}
    left, made = mapped("CameraCalibration", [row | {"K": matrix}, row | {"K": K}])
    assert (left["log"], made["log"]) == ([0], [1])
    assert made["Pinhole:image_from_camera"] == [[BY_COLUMN]]


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_every_encoding_of_an_image_means_the_same(dialect: Any) -> None:
    at = {"timestamp": stamp(1_000_000_002, dialect), "frame_id": "cam"}
    data: Any = b"\1\2\3\4" if dialect.binary == JSON.binary else [1, 2, 3, 4]
    raw = {"width": 1, "height": 1, "encoding": "rgb8", "step": 4, "data": data}
    (made,) = mapped("RawImage", [at | raw], dialect)
    assert (made["Image:buffer"], made["timestamp"]) == ([[[1, 2, 3]]], [1_000_000_002])
    (made,) = mapped("CompressedImage", [at | {"data": data, "format": "png"}], dialect)
    assert (made["EncodedImage:blob"], made["EncodedImage:media_type"]) == ([[[1, 2, 3, 4]]], [["image/png"]])
    (made,) = mapped("CameraCalibration", [at | {"width": 1, "height": 2, dialect.matrix: K}], dialect)
    assert made["Pinhole:image_from_camera"] == [[BY_COLUMN]]
