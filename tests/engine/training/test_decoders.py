"""Pictures and frames in each form: of pixels, of planes, cut and scaled; and streams that are not in order."""

from __future__ import annotations

import io
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill import Chunk, LazyChunkStream, RecordingStore
from chunkmill.engine.chunk import IMAGE_ENCODINGS, IMAGE_FORMAT, ComponentDescriptor
from chunkmill.engine.errors import ReadError, UsageError
from chunkmill.engine.training import samples as reading
from chunkmill.engine.video import CODECS, H265_OPEN, H265_SKIPPED, h265_picture
from chunkmill.training import DataSource, Field, ImageDecoder, SampleIndex, SampleReader, VideoFrameDecoder
from drives import FRAMES, SIDE, blobs, drive, times
from PIL import Image

av = pytest.importorskip("av")

VIDEO = "/front:VideoStream:sample"
HEIGHT, WIDTH = 6, 8
_CODEC = ComponentDescriptor("VideoStream:codec", "rerun.archetypes.VideoStream", "rerun.components.VideoCodec")
_SAMPLE = ComponentDescriptor("VideoStream:sample", "rerun.archetypes.VideoStream", "rerun.components.VideoSample")


def store(folder: Path, chunks: list[Chunk]) -> RecordingStore:
    """Chunks as a store of one recording."""
    LazyChunkStream.from_iter(chunks).collect(into=folder, recording_id="one", executor="inline")
    return RecordingStore.open(folder)


def read(source: Any, field: Field, index: str = "frame", **options: Any) -> dict[int, Any]:
    """The values of a field, by the numbers of samples."""
    found = SampleIndex.build(DataSource(source), index, {"value": field}, **options)
    made = SampleReader(found).read(np.arange(len(found)))
    return {number: sample["value"] for number, sample in made.items()}


# --- images of pixels


def images(data: list[bytes], forms: list[dict[str, Any]], archetype: str = "Image") -> list[Chunk]:
    """Images of pixels, one a frame; the format in a chunk of its own, where it is the same for all."""
    whole = [{"pixel_format": None, "color_model": None, "channel_datatype": None, **form} for form in forms]
    frames = {"frame": pa.array(range(len(data)))}
    buffer, form = (ComponentDescriptor(f"{archetype}:{name}") for name in ("buffer", "format"))
    formats = pa.array([[some] for some in whole], pa.list_(IMAGE_FORMAT))
    if len(forms) == 1:
        return [Chunk.build("/cam", {}, [(form, formats)]), Chunk.build("/cam", frames, [(buffer, blobs(data))])]
    return [Chunk.build("/cam", frames, [(buffer, blobs(data)), (form, formats)])]


def smooth(height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """A picture in which colours change slowly."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([200 - 3 * rows, 40 + 2 * columns, 90 + rows + columns], -1).astype(np.uint8)


def planes(form: str, full: bool) -> bytes:
    """The bytes of the smooth picture as FFmpeg makes them, of BT.601."""
    frame = av.VideoFrame.from_ndarray(smooth(), format="rgb24")
    made = frame.reformat(format=form, dst_colorspace=5, dst_color_range=2 if full else 1)
    wide = {"yuyv422": 2}.get(form, 1)
    rows = []
    for number, plane in enumerate(made.planes):
        columns = plane.width * (2 if form == "nv12" and number else wide)
        rows.append(np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: plane.height, :columns])
    return b"".join(some.tobytes() for some in rows)


@pytest.mark.parametrize(
    ("kind", "form", "full"),
    [
        (20, "yuv420p", False), (44, "yuv420p", True), (26, "nv12", False), (27, "yuyv422", False),
        (39, "yuv444p", False), (40, "yuv444p", True), (49, "yuv422p", False), (50, "yuv422p", True),
    ],
)  # fmt: skip
def test_yuv_becomes_rgb(kind: int, form: str, full: bool, tmp_path: Path) -> None:
    given = {"width": WIDTH, "height": HEIGHT, "pixel_format": kind}
    made = read(
        store(tmp_path / "kept", images([planes(form, full)], [given])), Field("/cam:Image:buffer", ImageDecoder())
    )
    assert made[0].shape == (3, HEIGHT, WIDTH) and made[0].dtype == np.uint8
    assert np.abs(made[0].astype(int) - smooth().transpose(2, 0, 1)).max() <= 6


_DTYPES = {"U8": (6, "u1"), "I8": (7, "i1"), "U16": (8, "<u2"), "I16": (9, "<i2"), "U32": (10, "<u4"),
           "I32": (11, "<i4"), "U64": (12, "<u8"), "I64": (13, "<i8"), "F16": (33, "<f2"), "F32": (34, "<f4"),
           "F64": (35, "<f8")}  # fmt: skip


@pytest.mark.parametrize("name", _DTYPES)
@pytest.mark.parametrize(("model", "order"), [(1, "L"), (2, "RGB"), (3, "RGBA"), (4, "BGR"), (5, "BGRA")])
def test_colours_of_every_type(name: str, model: int, order: str, tmp_path: Path) -> None:
    code, kind = _DTYPES[name]
    shown = {"L": "L", "RGB": "RGB", "BGR": "RGB", "RGBA": "RGBA", "BGRA": "RGBA"}[order]
    random = np.random.default_rng(model)
    stored = random.integers(0, 100, (HEIGHT, WIDTH, len(order))).astype(kind)
    form = {"width": WIDTH, "height": HEIGHT, "color_model": model, "channel_datatype": code}
    (made,) = ImageDecoder().decode_raw(blobs([stored.tobytes()]), np.array([0]), [form], blends=True)
    assert made.dtype == np.dtype(kind)
    assert np.array_equal(made, np.stack([stored[..., order.index(colour)] for colour in shown]))


@pytest.mark.parametrize(("kind", "pattern"), [(128, "RGGB"), (129, "BGGR"), (130, "GBRG"), (131, "GRBG")])
def test_patterns_of_a_sensor(kind: int, pattern: str, tmp_path: Path) -> None:
    picture = smooth(16, 18)
    raw = np.empty((16, 18), np.uint8)
    for place, colour in enumerate(pattern):
        row, column = divmod(place, 2)
        raw[row::2, column::2] = picture[row::2, column::2, "RGB".index(colour)]
    form = {"width": 18, "height": 16, "pixel_format": kind}
    made = read(store(tmp_path / "kept", images([raw.tobytes()], [form])), Field("/cam:Image:buffer", ImageDecoder()))
    inner = np.abs(made[0].astype(int) - picture.transpose(2, 0, 1))
    assert inner[:, 1:-1, 1:-1].max() <= 1 and inner.max() <= 4


@pytest.mark.parametrize("name", IMAGE_ENCODINGS)
def test_what_the_lenses_make_of_ros_is_decoded(name: str) -> None:
    encoding = IMAGE_ENCODINGS[name]
    data = bytes(int(HEIGHT * encoding.row_factor) * WIDTH * encoding.pixel_bytes)
    form = {
        "width": WIDTH, "height": HEIGHT, "pixel_format": encoding.pixel_format,
        "color_model": encoding.color_model, "channel_datatype": encoding.datatype,
    }  # fmt: skip
    (made,) = ImageDecoder().decode_raw(blobs([data]), np.array([0]), [form], blends=True)
    assert made.shape[1:] == (HEIGHT, WIDTH) and made.shape[0] in (1, 3, 4)


def test_formats_change_with_time_and_the_latest_counts(tmp_path: Path) -> None:
    grey = {"color_model": 1, "channel_datatype": 6}
    data = [bytes(range(6)), bytes(range(4)), bytes(range(4))]
    forms = [{"width": 3, "height": 2, **grey}, {"width": 1, "height": 4, **grey}, {"width": 2, "height": 2, **grey}]
    made = read(store(tmp_path / "kept", images(data, forms)), Field("/cam:Image:buffer", ImageDecoder()))
    assert [value.shape for value in made.values()] == [(1, 2, 3), (1, 4, 1), (1, 2, 2)]
    early = Chunk.build(
        "/cam",
        {"frame": pa.array([0])},
        [
            (
                ComponentDescriptor("Image:format"),
                pa.array([[{"width": 2, "height": 1, **grey}]], pa.list_(IMAGE_FORMAT)),
            )
        ],
    )
    late = Chunk.build(
        "/cam", {"frame": pa.array([4, 5])}, [(ComponentDescriptor("Image:buffer"), blobs([b"ab", b"cd"]))]
    )
    made = read(store(tmp_path / "late", [early, late]), Field("/cam:Image:buffer", ImageDecoder(), fill="skip"))
    assert [value.ravel().tolist() for value in made.values()] == [[97, 98], [99, 100]]


def test_distances_are_not_blended(tmp_path: Path) -> None:
    depth = np.array([[0, 65_535], [65_535, 0]], "<u2")
    form = {"width": 2, "height": 2, "channel_datatype": 8}
    made = read(
        store(tmp_path / "kept", images([depth.tobytes()], [form], "DepthImage")),
        Field("/cam:DepthImage:buffer", ImageDecoder(size=(4, 4))),
    )
    assert np.array_equal(made[0][0], depth.repeat(2, 0).repeat(2, 1))
    classes = np.array([[0, 200], [200, 0]], np.uint8)
    form = {"width": 2, "height": 2, "color_model": 1, "channel_datatype": 6}
    made = read(
        store(tmp_path / "classes", images([classes.tobytes()], [form], "SegmentationImage")),
        Field("/cam:SegmentationImage:buffer", ImageDecoder(size=(3, 3))),
    )
    assert set(np.unique(made[0]).tolist()) == {0, 200}


@pytest.mark.parametrize(
    ("data", "form", "message"),
    [
        (b"abc", {"width": 2, "height": 2, "color_model": 1}, "3 bytes, not 4"),
        (b"abc", {"width": 0, "height": 2, "color_model": 1}, "0 x 2 pixels is empty or too large"),
        (b"abc", {"width": 1 << 20, "height": 1 << 20, "color_model": 1}, "pixels is empty or too large"),
        (b"abc", {"width": 2, "height": 2, "pixel_format": 99}, "pixel format 99 is not known"),
        (b"abc", {"width": 2, "height": 2, "color_model": 9}, "color model 9"),
        (bytes(13), {"width": 3, "height": 3, "pixel_format": 26}, "3 x 3 pixels do not divide into blocks"),
        (b"abc", {"width": 3, "height": 1, "pixel_format": 128}, "lacks a colour"),
    ],
)
def test_images_that_are_wrong(data: bytes, form: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises((ReadError, UsageError), match=message):
        read(store(tmp_path / "kept", images([data], [form])), Field("/cam:Image:buffer", ImageDecoder()))


def test_pixels_without_a_format(tmp_path: Path) -> None:
    chunk = Chunk.build("/cam", {"frame": pa.array([0])}, [(ComponentDescriptor("Image:buffer"), blobs([b"abcd"]))])
    with pytest.raises(ValueError, match="no column /cam:Image:format"):
        read(store(tmp_path / "kept", [chunk]), Field("/cam:Image:buffer", ImageDecoder()))


# --- parts of pictures


def encoded(picture: np.ndarray, form: str, **options: Any) -> pa.Array:
    """A picture as a file has it."""
    out = io.BytesIO()
    Image.fromarray(picture).save(out, form, **options)
    return blobs([out.getvalue()])


def test_pictures_are_cut_and_scaled() -> None:
    picture = smooth(40, 60)
    (cut,) = ImageDecoder(crop=(4, 7, 20, 31)).decode(encoded(picture, "PNG"), np.array([0]))
    assert np.array_equal(cut, picture[4:24, 7:38].transpose(2, 0, 1))
    (both,) = ImageDecoder(crop=(4, 8, 20, 32), size=(10, 16)).decode(encoded(picture, "PNG"), np.array([0]))
    assert both.shape == (3, 10, 16)
    assert np.abs(both.astype(int) - picture[4:24:2, 8:40:2].transpose(2, 0, 1)).max() <= 4
    raw = {"width": 60, "height": 40, "color_model": 2}
    (same,) = ImageDecoder(crop=(4, 8, 20, 32), size=(10, 16)).decode_raw(
        blobs([picture.tobytes()]), np.array([0]), [raw], blends=True
    )
    assert np.array_equal(both, same)
    big = smooth(40, 60).repeat(8, 0).repeat(8, 1)
    for decoder in (ImageDecoder(size=(20, 30)), ImageDecoder(crop=(80, 120, 160, 240), size=(20, 30))):
        jpeg, png = (
            decoder.decode(encoded(big, form, **options), np.array([0]))[0]
            for form, options in (("JPEG", {"quality": 95}), ("PNG", {}))
        )
        assert jpeg.shape == (3, 20, 30)
        assert np.abs(jpeg.astype(int) - png).max() <= 12, "JPEG is decoded small, and the same part"
    with pytest.raises(ValueError, match="the crop ends at 41 x 60"):
        ImageDecoder(crop=(1, 0, 40, 60)).decode(encoded(picture, "PNG"), np.array([0]))


@pytest.mark.parametrize("decoder", [ImageDecoder, VideoFrameDecoder])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": (0, 4)}, "size: expected"), ({"size": (4,)}, "size: expected"),
        ({"size": (4.5, 4)}, "size: expected"),
        ({"crop": (0, 0, 4)}, "crop: expected"), ({"crop": (-1, 0, 4, 4)}, "crop: expected"),
        ({"crop": (0, 0, 0, 4)}, "crop: expected"), ({"output_format": "nv12"}, "rgb or yuv420p"),
        ({"crop": (1, 0, 4, 4), "output_format": "yuv420p"}, "must be even"),
    ],
)  # fmt: skip
def test_parts_that_cannot_be(decoder: Callable[..., Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decoder(**options)


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[int, np.ndarray], RecordingStore]:
    """Video, and its frames."""
    known, chunks = drive(0)
    return known.frames, store(tmp_path_factory.mktemp("front") / "kept", chunks)


def test_frames_are_cut_and_scaled(front: tuple[dict[int, np.ndarray], RecordingStore]) -> None:
    frames, source = front
    made = read(source, Field(VIDEO, VideoFrameDecoder(crop=(3, 5, 20, 17))))
    assert len(made) == FRAMES
    assert all(np.array_equal(value, frames[number][:, 3:23, 5:22]) for number, value in made.items())
    half = read(source, Field(VIDEO, VideoFrameDecoder(size=(SIDE // 2, SIDE // 2)), window=(0, 1)))
    assert half[3].shape == (2, 3, SIDE // 2, SIDE // 2)
    means = frames[3].reshape(3, SIDE // 2, 2, SIDE // 2, 2).mean(axis=(2, 4))
    assert np.abs(half[3][0] - means).mean() < 25
    with pytest.raises(ValueError, match="the crop ends at 33 x 32"):
        read(source, Field(VIDEO, VideoFrameDecoder(crop=(1, 0, 32, 32))))
    for crop in ((4, 6, 20, 16), (5, 7, 20, 16)):  # where colours begin, and where not
        whole = read(source, Field(VIDEO, VideoFrameDecoder(crop=crop)))
        both = read(source, Field(VIDEO, VideoFrameDecoder(crop=crop, size=(10, 8))))
        for number in (0, 7, 44):
            means = whole[number].reshape(3, 10, 2, 8, 2).mean(axis=(2, 4))
            error = np.abs(both[number] - means)
            assert both[number].shape == (3, 10, 8) and error.mean() < 25
            others = [np.abs(both[number] - np.roll(means, by, 2)).mean() for by in (-2, 2)]
            assert error.mean() < min(others), "the right part"


def test_frames_as_planes(front: tuple[dict[int, np.ndarray], RecordingStore]) -> None:
    pytest.importorskip("torch")
    frames, source = front
    made = read(source, Field(VIDEO, VideoFrameDecoder(output_format="yuv420p")))
    assert made[7].y.shape == (1, SIDE, SIDE) and made[7].uv.shape == (2, SIDE // 2, SIDE // 2)
    rgb = made[7].to_rgb(normalize=False, color_space="bt601", color_range="limited").numpy()
    assert np.abs(rgb - frames[7]).mean() < 25, "chroma is not smoothed as FFmpeg does"
    cut = read(source, Field(VIDEO, VideoFrameDecoder(output_format="yuv420p", crop=(4, 6, 9, 11)), window=(0, 1)))
    assert np.array_equal(cut[7].y[0], made[7].y[:, 4:13, 6:17]) and cut[7].y.shape == (2, 1, 9, 11)
    assert np.array_equal(cut[7].uv[0], made[7].uv[:, 2:7, 3:9])
    small = read(source, Field(VIDEO, VideoFrameDecoder(output_format="yuv420p", crop=(0, 0, 8, 8), size=(5, 4))))
    assert small[0].y.shape == (1, 5, 4) and small[0].uv.shape == (2, 3, 2)


def test_raw_planes_are_not_converted(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    data = planes("nv12", False)
    given = {"width": WIDTH, "height": HEIGHT, "pixel_format": 26}
    source = store(tmp_path / "kept", images([data], [given]))
    made = read(source, Field("/cam:Image:buffer", ImageDecoder(output_format="yuv420p")))[0]
    assert made.y.numpy().tobytes() == data[: WIDTH * HEIGHT]
    assert made.uv.numpy().transpose(1, 2, 0).tobytes() == data[WIDTH * HEIGHT :]
    assert (made.color_space, made.color_range) == ("bt601", "limited")
    assert np.abs(made.to_rgb(normalize=False).numpy() - smooth().transpose(2, 0, 1)).max() <= 6
    cut = read(source, Field("/cam:Image:buffer", ImageDecoder(output_format="yuv420p", crop=(2, 4, 4, 4))))[0]
    assert np.array_equal(cut.y, made.y[:, 2:6, 4:8]) and np.array_equal(cut.uv, made.uv[:, 1:3, 2:4])
    rgb = store(tmp_path / "rgb", images([smooth().tobytes()], [{"width": WIDTH, "height": HEIGHT, "color_model": 2}]))
    with pytest.raises(ValueError, match=r"is not YUV 4:2:0"):
        read(rgb, Field("/cam:Image:buffer", ImageDecoder(output_format="yuv420p")))
    with pytest.raises(ValueError, match="no YUV planes"):
        ImageDecoder(output_format="yuv420p").decode(encoded(smooth(), "PNG"), np.array([0]))


# --- streams that are not in order


def reordered(name: str = "libx264", count: int = 24, **options: str) -> list[tuple[int, bytes]]:
    """Samples with B-frames in the order in which they are decoded, each with the time at which it is shown."""
    encoder = av.CodecContext.create(name, "w")
    encoder.width = encoder.height = SIDE
    encoder.pix_fmt, encoder.time_base, encoder.framerate = "yuv420p", Fraction(1, 30), Fraction(30)
    encoder.gop_size, encoder.max_b_frames = 12, 3
    encoder.options = options
    picture = np.kron(np.random.default_rng(0).integers(0, 255, (8, 8, 3)), np.ones((4, 4, 1))).astype(np.uint8)
    packets = []
    for number in range(count):
        frame = av.VideoFrame.from_ndarray(np.roll(picture, number, 1), format="rgb24")
        frame.pts = number
        packets += encoder.encode(frame)
    return [(packet.pts, bytes(packet)) for packet in [*packets, *encoder.encode(None)]]


def shown(samples: list[tuple[int, bytes]], name: str = "h264") -> dict[int, np.ndarray]:
    """The frame at each time, as FFmpeg decodes samples that are in order."""
    decoder = av.CodecContext.create(name, "r")
    frames = []
    for pts, data in [*samples, (0, None)]:
        packet = None if data is None else av.Packet(data)
        if packet is not None:
            packet.pts = pts
        frames += decoder.decode(packet)
    return {frame.pts: frame.to_ndarray(format="rgb24").transpose(2, 0, 1) for frame in frames}


def stream(samples: list[tuple[int, bytes]], cut: int, codec: int = 0x61766331) -> list[Chunk]:
    """Samples as chunks of so many."""
    chunks = [Chunk.build("/front", {}, [(_CODEC, pa.array([[codec]], pa.list_(pa.uint32())))])]
    for begin in range(0, len(samples), cut):
        some = samples[begin : begin + cut]
        lines = times(np.array([pts for pts, _ in some]))
        chunks.append(Chunk.build("/front", lines, [(_SAMPLE, blobs([data for _, data in some]))]))
    return chunks


H264 = {"preset": "medium", "x264-params": "b-adapt=0:b-pyramid=2"}


@pytest.mark.parametrize("cut", [24, 7])
def test_b_frames_are_decoded_in_the_order_in_which_they_were_logged(cut: int, tmp_path: Path) -> None:
    samples = reordered(**H264)
    assert [pts for pts, _ in samples] != sorted(pts for pts, _ in samples)
    source = store(tmp_path / "kept", stream(samples, cut))
    expected = shown(samples)
    made = read(source, Field(VIDEO, VideoFrameDecoder()))
    assert len(made) == 24 and all(np.array_equal(value, expected[number]) for number, value in made.items())
    found = SampleIndex.build(DataSource(source), "frame", {"value": Field(VIDEO, VideoFrameDecoder())})
    for number in range(24):  # each by itself
        (sample,) = SampleReader(found).read(np.array([number])).values()
        assert np.array_equal(sample["value"], expected[number])


def test_b_frames_that_were_sorted_are_an_error(tmp_path: Path) -> None:
    """And not wrong frames: the sample that they need comes after them."""
    samples = reordered(**H264)
    expected = shown(samples)
    source = store(tmp_path / "kept", stream(sorted(samples), 24))
    found = SampleIndex.build(DataSource(source), "frame", {"value": Field(VIDEO, VideoFrameDecoder())})
    right, errors = one_by_one(found, expected)
    assert right == [0, 12]
    assert all("B-frames" in error or "cannot be decoded" in error for error in errors)


def one_by_one(found: SampleIndex, expected: dict[int, np.ndarray]) -> tuple[list[int], list[str]]:
    """Read each sample by itself: the numbers of those that are as expected, and the errors of the others."""
    right, errors = [], []
    for number in range(len(found)):
        try:
            (sample,) = SampleReader(found).read(np.array([number])).values()
        except ReadError as error:
            errors.append(f"{error} {error.hint}")
        else:
            assert np.array_equal(sample["value"], expected[number]), number
            right.append(number)
    return right, errors


OPEN = {
    "preset": "fast",
    "x265-params": "open-gop=1:keyint=12:min-keyint=12:scenecut=0:repeat-headers=1:log-level=none:b-adapt=0",
}


def test_open_groups_of_h265(tmp_path: Path) -> None:
    """Pictures that need the group before get it, and the others do without them."""
    samples = reordered("libx265", 36, **OPEN)
    kinds = [h265_picture(data) for _, data in samples]
    assert kinds.count(H265_OPEN) >= 2 and not H265_SKIPPED.isdisjoint(kinds)
    expected = shown(samples, "hevc")
    for cut in (36, 5):
        source = store(tmp_path / f"kept_{cut}", stream(samples, cut, CODECS["hevc"]))
        found = SampleIndex.build(DataSource(source), "frame", {"value": Field(VIDEO, VideoFrameDecoder())})
        assert one_by_one(found, expected) == ([*range(36)], [])
        apart = SampleReader(found).read(np.array([1, 11, 14, 30, 35]))
        assert all(np.array_equal(sample["value"], expected[number]) for number, sample in apart.items())


def test_a_stream_that_begins_with_an_open_group(tmp_path: Path) -> None:
    samples = reordered("libx265", 36, **OPEN)
    expected = shown(samples, "hevc")
    first = next(n for n, (_, data) in enumerate(samples) if h265_picture(data) == H265_OPEN)
    source = store(tmp_path / "kept", stream(samples[first:], 36, CODECS["hevc"]))
    made = read(source, Field(VIDEO, VideoFrameDecoder(), fill="skip"))
    begin = min(pts for pts, _ in samples[first:])
    lost = {pts - begin for pts, data in samples[first:] if h265_picture(data) in H265_SKIPPED and pts < 12}
    assert lost and set(made) == set(range(36 - begin)) - lost
    assert all(np.array_equal(value, expected[number + begin]) for number, value in made.items())


# --- long groups


def test_blocks_are_bounded_where_key_frames_are_rare() -> None:
    every = np.arange(10_000)
    starts = reading._cuts(every, [np.array([0])], 100)
    assert np.diff([*starts, 10_000]).max() <= 1024 and starts[1] == 100
    starts = reading._cuts(every, [np.arange(0, 10_000, 250)], 100)
    assert starts.tolist() == list(range(0, 10_000, 250))
    assert len(reading._cuts(every, [np.array([0])], 5_000)) == 1


def test_a_stream_without_key_frames_is_not_held_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [(number, b"\0\0\1\x41" + bytes(1000)) for number in range(64)]
    source = store(tmp_path / "kept", stream(samples, 4))
    found = SampleIndex.build(DataSource(source), "frame", {"value": Field(VIDEO, VideoFrameDecoder(), fill="skip")})
    assert SampleReader(found).read(np.array([63])) == {}
    monkeypatch.setattr(reading, "_MOST_GROUP", 20_000)
    with pytest.raises(ReadError, match="without a key frame") as caught:
        SampleReader(found).read(np.array([63]))
    assert "key frame every" in str(caught.value.hint)
