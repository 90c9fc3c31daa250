"""Videos as recordings: the same samples as Rerun reads, every track, edits, other containers, and damage."""

from __future__ import annotations

import io
import struct
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from chunkmill import Chunk, Mp4Reader, Mp4TranscodeOptions, RrdReader
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.errors import ReadError, ReadWarning, UnsupportedError, UsageError
from chunkmill.engine.video import detect_gop_start
from chunkmill.engine.video.bitstream import nal_units
from chunkmill.readers import inspect
from click.testing import CliRunner
from comparison import cells
from video_files import CODECS, box, boxes, edited, mutants, picture, video

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

H264, AV1, VP8 = 0x61766331, 0x61763031, 0x76703038
X265_MESSAGE = 39 << 1
"""The first byte of a prefix SEI message of H.265; x265 writes one with its settings."""
FRAME = 512
"""Ticks of a frame of 30 a second."""


def chunks(path: Path, **options: Any) -> tuple[list[Chunk], list[str]]:
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", ReadWarning)
        out = Mp4Reader(path, **options).stream().to_chunks(executor="inline")
    return out, [str(warning.message) for warning in raised]


Rows = list[tuple[str, str, int | None, Any]]


def rows(given: Sequence[Any]) -> Rows:
    """Entity, component, time in ns and value of each row, NAL units instead of their bytes."""
    out: Rows = []
    for chunk in given:
        batch = chunk.to_record_batch()
        names = [name for name in batch.schema.names if ":" in name]
        times = [None] * batch.num_rows
        if chunk.timeline_names:
            times = batch.column(batch.schema.names.index(chunk.timeline_names[0])).view("int64").to_pylist()
        for name in names:
            values = batch.column(batch.schema.names.index(name)).to_pylist()
            out += [(chunk.entity_path, name, at, _value(name, value)) for at, value in zip(times, values, strict=True)]
    return out


def _value(name: str, value: Any) -> Any:
    if not name.endswith(":sample"):
        return value
    data = bytes(value[0])
    if not data.startswith((b"\0\0\1", b"\0\0\0\1")):
        return data
    return [data[begin:end].rstrip(b"\0") for begin, end in nal_units(data)]


def vp8() -> bytes:
    """Return an MP4 with VP8, which FFmpeg reads and does not write: one with VP9, its name and its samples changed."""
    import av

    samples = list[bytes]()
    with av.open(io.BytesIO(), "w", format="webm") as file:
        stream: Any = file.add_stream("libvpx", rate=30, options={"lag-in-frames": "0"})
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = 64, 48, "yuv420p", 5
        for number in range(12):
            frame = av.VideoFrame.from_ndarray(picture(number), format="rgb24")
            frame.pts = number
            samples += [bytes(packet) for packet in stream.encode(frame)]
        samples += [bytes(packet) for packet in stream.encode()]
    assert [number for number, sample in enumerate(samples) if not sample[0] & 1] == [0, 5, 10]
    data = video("vp9", 12, gop=5)
    (at, _, size) = next(each for each in boxes(data) if each[1] == b"mdat")
    index = _words(data[at + size :].replace(b"vp09", b"vp08"), b"stsz", 12, *map(len, samples))
    return data[:at] + box(b"mdat", *samples) + index


SAME: dict[str, Callable[[], bytes]] = {
    **{codec: lambda codec=codec: video(codec, 12, gop=5) for codec in CODECS},
    "vp8": vp8,
    "QuickTime": lambda: video("h264", 12, gop=5, container="mov"),
    "fragments": lambda: video("h264", 12, gop=5, container_options={"movflags": "frag_keyframe+empty_moov"}),
    "uneven times": lambda: video("h264", 6, gop=3, times=[0, 1, 2, 9, 10, 30]),
    "only key frames": lambda: video("hevc", 6, gop=1),
    "with sound": lambda: video("av1", 12, gop=5, audio=True),
}


@pytest.mark.process
@pytest.mark.parametrize("name", SAME)
def test_chunks_are_those_of_rerun(name: str, tmp_path: Path) -> None:
    """In each mode the same rows in chunks of the same size, and samples NAL by NAL."""
    experimental = pytest.importorskip("rerun.experimental")
    path = tmp_path / "v.mp4"
    path.write_bytes(SAME[name]())
    for options in (
        {},
        {"mode": "asset"},
        {"chunk_by_gop": False, "timeline_type": "timestamp", "timeline_name": "t", "entity_path": "cam/x"},
    ):
        if name == "QuickTime" and "mode" in options:
            continue  # of which Rerun gives no frames, but a line of its log
        theirs = experimental.Mp4Reader(path, **options).stream().to_chunks()
        mine, raised = chunks(path, **options)
        assert len(raised) == (name == "with sound")
        assert [(c.entity_path, c.num_rows, c.timeline_names) for c in mine] == [
            (c.entity_path, c.num_rows, c.timeline_names) for c in theirs
        ]
        expected = rows(theirs)
        assert [row[:3] for row in rows(mine)] == [row[:3] for row in expected]
        assert _without_sets(rows(mine)) == _without_sets(expected)
        kinds = [{f.name: f.type for f in c.to_record_batch().schema if "RowId" not in f.name} for c in mine]
        assert kinds == [{f.name: f.type for f in c.to_record_batch().schema if "RowId" not in f.name} for c in theirs]


def _without_sets(given: Rows) -> Rows:
    """Each NAL unit of a sample once, in one order: Rerun puts sets before all else, also those that are there, and
    leaves out messages of the description.
    """

    def sorted_units(units: list[bytes]) -> list[bytes]:
        return sorted({unit for unit in units if unit[0] != X265_MESSAGE})

    return [(e, n, t, sorted_units(v) if isinstance(v, list) and n.endswith("sample") else v) for e, n, t, v in given]


def test_names_values_and_errors_are_those_of_rerun(tmp_path: Path) -> None:
    path = tmp_path / "v.mp4"
    path.write_bytes(video("h264", 3))
    reader = Mp4Reader(path)
    assert (reader.path, reader.entity_path, repr(reader)) == (path, str(path), f"Mp4Reader({path})")
    assert Mp4Reader(path, entity_path="a//b c").entity_path == "/a/b\\ c"
    for options, text in (
        ({"mode": "both"}, 'Invalid mode: "both"'),
        ({"timeline_type": "sequence"}, 'Invalid timeline_type: "sequence"'),
        ({"mode": "asset", "chunk_by_gop": False}, "`chunk_by_gop=False` is only valid"),
        ({"mode": "asset", "transcode": Mp4TranscodeOptions()}, "`transcode` is only valid"),
        ({"b_frames": "keep"}, "not 'reencode' or 'error'"),
    ):
        with pytest.raises(ValueError, match=text):
            Mp4Reader(path, **options)
    with pytest.raises(FileNotFoundError, match="MP4 file not found"):
        Mp4Reader(tmp_path / "none.mp4")
    with pytest.raises(TypeError, match=r"must be a rerun\.components\.VideoCodec, got str"):
        Mp4TranscodeOptions(output_codec="h264")
    with pytest.raises(UsageError, match="no encoder for VP8"):
        Mp4TranscodeOptions(output_codec=VP8)
    with pytest.raises(UsageError, match="gop_size must be at least 1, not 0"):
        Mp4TranscodeOptions(gop_size=0)
    with pytest.warns(ReadWarning, match="try_gpu has no effect"):
        Mp4TranscodeOptions(try_gpu=True)


@pytest.mark.process
def test_every_track_is_an_entity_and_others_are_named(tmp_path: Path) -> None:
    path = tmp_path / "v.mp4"
    path.write_bytes(video("hevc", 6, gop=3, tracks=3, audio=True))
    read, raised = chunks(path, entity_path="/cam")
    assert raised == [f"{path}: only video is read; other tracks: audio"]
    assert list(dict.fromkeys(c.entity_path for c in read)) == ["/cam", "/cam/track_1", "/cam/track_2"]
    values = [[row[1:] for row in rows([c for c in read if c.entity_path == e])] for e in ("/cam", "/cam/track_2")]
    assert values[0] == values[1]


@pytest.mark.process
def test_a_track_of_another_codec_is_named(tmp_path: Path) -> None:
    path = tmp_path / "v.mp4"
    path.write_bytes(video("h264", 6, tracks=2).replace(b"avc1\0", b"zzzz\0", 1))
    read, raised = chunks(path, entity_path="/cam")
    assert {c.entity_path for c in read} == {"/cam/track_1"}
    assert any("video track 0 is not read: the video codec" in text for text in raised)
    path.write_bytes(video("mpeg4", 6))
    with pytest.raises(UnsupportedError, match=r"mp4v|mpeg4"):
        chunks(path)
    path.write_bytes(b"no video at all, but a text")
    with pytest.raises(UnsupportedError) as refused:
        chunks(path)
    assert refused.value.offset == 0


@pytest.mark.process
def test_a_video_without_samples_is_an_error(tmp_path: Path) -> None:
    """The first part of a video in fragments, as players get it."""
    path = tmp_path / "v.mp4"
    data = video("h264", 6, container_options={"movflags": "frag_keyframe+empty_moov"})
    path.write_bytes(data[: data.index(b"moof") - 4])
    for mode in ("stream", "asset"):
        with pytest.raises(ReadError, match="the video has no samples"):
            chunks(path, mode=mode)


def turned(data: bytes, *matrix: int) -> bytes:
    """Return a video whose head has another matrix."""
    out = bytearray(data)
    struct.pack_into(">5i", out, data.index(b"tkhd") + 4 + 40, *(value << 16 for value in matrix))
    return bytes(out)


@pytest.mark.process
@pytest.mark.parametrize(
    ("matrix", "said"),
    [
        ((0, 1, 0, -1, 0), "turned by 90 degrees clockwise"),
        ((-1, 0, 0, 0, -1), "turned by 180 degrees"),
        ((-1, 0, 0, 0, 1), "mirrored"),
    ],
)
def test_rotation_is_said(matrix: tuple[int, ...], said: str, tmp_path: Path) -> None:
    path = tmp_path / "v.mp4"
    path.write_bytes(turned(video("h264", 3), *matrix))
    for mode in ("stream", "asset"):
        (text,) = chunks(path, mode=mode)[1]
        assert f"video track 0 is shown {said}" in text


@pytest.mark.process
def test_edits_are_honoured_in_both_modes(tmp_path: Path) -> None:
    """An edit from frame 7 on, of 5 frames: those before it that its decoding needs have negative times."""
    path = tmp_path / "v.mp4"
    path.write_bytes(edited(video("h264", 15, gop=5), (167, FRAME * 7)))
    stream, asset = (rows(chunks(path, mode=mode)[0]) for mode in ("stream", "asset"))
    at = [time for _, name, time, _ in stream if name.endswith("sample")]
    shown = [round(i * 1e9 / 30) for i in range(-2, 6)]
    assert at == shown[: len(at)] and len(at) >= 7
    frames = [(time, value) for _, name, time, value in asset if name.endswith("timestamp")]
    assert frames[:5] == [(round(i * 1e9 / 30), [round((i + 7) * 1e9 / 30)]) for i in range(5)]
    assert [time for time in at if time >= 0] == [time for time, _ in frames]
    path.write_bytes(edited(video("h264", 15, gop=5), (100, FRAME * 10), (100, 0)))
    frames = [value for _, name, _, value in rows(chunks(path, mode="asset")[0]) if name.endswith("timestamp")]
    assert frames == [[round(i * 1e9 / 30)] for i in (10, 11, 12, 0, 1, 2)]
    stream, (said,) = chunks(path)
    assert "several parts" in said
    assert [row[2] for row in rows(stream) if row[1].endswith("sample")] == [round(i * 1e9 / 30) for i in range(6)]
    path.write_bytes(edited(video("h264", 15, gop=5), *[(10_000, 0)] * 400_000))
    with pytest.raises(ReadError, match="repeats frames too often"):
        chunks(path)


@pytest.mark.process
@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_matroska_has_the_samples_of_the_mp4(codec: str, live: bool, tmp_path: Path) -> None:
    options = {"live": "1"} if live else {}
    mp4, mkv = tmp_path / "v.mp4", tmp_path / "v.mkv"
    mp4.write_bytes(video(codec, 12, gop=5))
    mkv.write_bytes(video(codec, 12, gop=5, container="matroska", container_options=options))
    (first, _), (second, raised) = chunks(mp4, entity_path="/v"), chunks(mkv, entity_path="/v")
    assert raised == []
    samples = [[sorted(row[3]) for row in rows(each) if row[1].endswith("sample")] for each in (first, second)]
    assert samples[0] == samples[1]
    times = [row[2] for row in rows(second) if row[1].endswith("sample")]
    assert times == [1_000_000 * round(1000 * i / 30) for i in range(12)]


@pytest.mark.process
def test_matroska_that_is_cut_or_lacks_blocks_is_an_error_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "v.mkv"
    for options in ({}, {"live": "1"}):
        data = video("h264", 12, gop=5, container="matroska", container_options=options)
        last = data.rindex(b"\xa3", 0, len(data) - 60)
        for size in (3, 20, 200, len(data) // 2, last + 10):
            path.write_bytes(data[:size])
            with pytest.raises(ReadError) as raised:
                chunks(path)
            assert raised.value.path == str(path) and 0 <= raised.value.offset <= size
    with pytest.raises(UnsupportedError, match='mode="stream" also supports Matroska'):
        chunks(path, mode="asset")
    path.write_bytes(b"\x1a\x45\xdf\xa3\x84\x42\x82\x81x")
    with pytest.raises(UnsupportedError, match="neither Matroska nor WebM"):
        chunks(path)


@pytest.mark.process
def test_b_frames_are_encoded_anew_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.mp4"
    path.write_bytes(video("h264", 12, gop=6, b_frames=True))
    read, (said,) = chunks(path)
    assert "B-frames" in said and "libx264" in said
    times = [row[2] for row in rows(read) if row[1].endswith("sample")]
    assert times == [round(i * 1e9 / 30) for i in range(12)]
    with pytest.raises(UnsupportedError, match="has B-frames"):
        chunks(path, b_frames="error")
    assert len([r for r in rows(chunks(path, mode="asset")[0]) if r[1].endswith("timestamp")]) == 12


@pytest.mark.process
@pytest.mark.parametrize("codec", [None, *(0x61766331, 0x68657631, AV1, 0x76703039)])
@pytest.mark.parametrize("gop", [None, 4])
def test_transcoding(codec: int | None, gop: int | None, tmp_path: Path) -> None:
    path = tmp_path / "v.mp4"
    path.write_bytes(video("h264", 14, gop=5, b_frames=codec == AV1))
    read, raised = chunks(path, transcode=Mp4TranscodeOptions(output_codec=codec, gop_size=gop))
    assert raised == []
    content = rows(read)
    wanted = codec or H264
    assert content[0][3] == [wanted]
    samples = [row for row in content if row[1].endswith("sample")]
    assert [row[2] for row in samples] == [round(i * 1e9 / 30) for i in range(14)]
    keys = [row[2] for row in content if row[1].endswith("is_keyframe")]
    if gop:
        assert keys == [round(i * 1e9 / 30) for i in (0, 4, 8, 12)]
    whole = [bytes(c.to_record_batch().column(2).to_pylist()[0][0]) for c in read[1:-1]]
    assert all(detect_gop_start(sample, wanted) for sample in whole)


def test_a_video_goes_through_every_front(tmp_path: Path) -> None:
    path = tmp_path / "drive.mp4"
    path.write_bytes(video("vp9", 12, gop=5))
    out = tmp_path / "out.rrd"
    options = ["--entity-path", "/cam", "--timeline-name", "t", "--executor", "inline"]
    done = CliRunner().invoke(commands, ["convert", str(path), "-o", str(out), *options])
    assert done.exit_code == 0, done.stderr
    mine = chunks(path, entity_path="/cam", timeline_name="t")[0]
    assert cells(RrdReader(out).stream().to_chunks(executor="inline")) == cells(mine)
    report = inspect(path)
    assert report.format == "mp4" and report.stores[0].rows == 16


@pytest.mark.spark
def test_spark_reads_a_video(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "drive.mp4"
    path.write_bytes(video("h264", 12, gop=5, tracks=2))
    on_spark = Mp4Reader(path).stream().to_chunks(executor="spark")
    assert cells(on_spark) == cells(chunks(path)[0])


def _words(data: bytes, kind: bytes, at: int, *values: int) -> bytes:
    out = bytearray(data)
    struct.pack_into(f">{len(values)}I", out, data.rindex(kind) + 4 + at, *values)
    return bytes(out)


def _matroska() -> bytes:
    return video("h264", 12, gop=5, container="matroska")


PLAIN = video("h264", 12, gop=5)
PLAYLIST = b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:neighbour.mp4\n"
FORGED: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "playlist": lambda: PLAYLIST,
    "concatenation": lambda: b"ffconcat version 1.0\nfile 'neighbour.mp4'\n",
    "playlist behind a box": lambda: box(b"free", PLAYLIST) + PLAYLIST,
    "playlist in EBML": lambda: b"\x1a\x45\xdf\xa3\x88\x42\x82\x85matro" + PLAYLIST,
    "session description": lambda: b"v=0\no=- 0 0 IN IP4 127.0.0.1\nm=video 5000 RTP/AVP 96\n",
    "external data": lambda: PLAIN.replace(box(b"url ", b"\0\0\0\1"), box(b"url ", b"\0\0\0\0")),
    "alias of a file": lambda: PLAIN.replace(b"url \0\0\0\1", b"alis\0\0\0\0"),
    "compressed index": lambda: PLAIN.replace(b"moov", b"cmov"),
    "samples beyond the file": lambda: _words(PLAIN, b"stco", 8, 0x7FFFFFFF),
    "a sample of 2 GiB": lambda: _words(PLAIN, b"stsz", 12, 0x7FFFFFFF),
    "billions of samples": lambda: _words(PLAIN, b"stsz", 4, 1, 0xFFFFFFF0),
    "samples over each other": lambda: _words(PLAIN, b"stsz", 4, 1500, 5_000_000),
    "billions of edits": lambda: _words(PLAIN, b"elst", 4, 0xFFFFFFF0),
    "an edit that shows nothing": lambda: _words(PLAIN, b"elst", 8, 100, 0x7FFFFFF0),
    "no index": lambda: b"".join(PLAIN[at : at + size] for at, kind, size in boxes(PLAIN) if kind != b"moov"),
    "only sound": lambda: PLAIN.replace(b"vide", b"soun"),
    "an unknown codec": lambda: PLAIN.replace(b"avc1", b"zzzz"),
    "a cut": lambda: PLAIN[:-40],
    "Matroska of no segment": lambda: _matroska().replace(b"\x18\x53\x80\x67", b"\x18\x53\x80\x68"),
    "Matroska of a block of 2^56 bytes": lambda: _matroska().replace(b"\xa3\x42", b"\xa3\x01", 1),
    "Matroska without tracks": lambda: _matroska().replace(b"\x16\x54\xae\x6b", b"\x16\x54\xae\x6c"),
    "Matroska of another segment": lambda: _matroska() + b"\x18\x53\x80\x67\x01\xff\xff\xff",
    "Matroska of an unknown codec": lambda: _matroska().replace(b"V_MPEG4/ISO/AVC", b"V_MPEG4/ISO/ABC"),
}
RIGHT = {"external data", "alias of a file", "Matroska of another segment"}
"""Forged in what is not looked at: data are taken from the file itself, and the first segment is the recording."""


@pytest.mark.process
@pytest.mark.parametrize("name", FORGED)
def test_a_forged_file_gives_nothing_from_outside(name: str, tmp_path: Path) -> None:
    path = tmp_path / "forged.mp4"
    path.write_bytes(FORGED[name]())
    (tmp_path / "neighbour.mp4").write_bytes(video("vp9", 3))
    begin = time.monotonic()
    if name in RIGHT:
        samples = [row[3] for row in rows(chunks(path)[0]) if row[1].endswith("sample")]
        assert len(samples) == 12 and all(isinstance(sample, list) for sample in samples)
    else:
        with pytest.raises(ReadError) as raised:
            chunks(path)
        assert raised.value.path == str(path) and raised.value.hint
    assert time.monotonic() - begin < 10


@pytest.mark.process
@pytest.mark.parametrize("kind", ["mp4", "matroska"])
def test_mutants_are_read_or_are_errors_with_their_place(kind: str, tmp_path: Path) -> None:
    odd: list[str] = []

    def read(path: Path) -> None:
        try:
            chunks(path)
        except ReadError as error:
            if error.path != str(path) or (error.offset is None and not isinstance(error, UnsupportedError)):
                odd.append(str(error))
            raise

    data = video("h264", 12, gop=5, container=kind)
    assert mutants(data, 60, 5, tmp_path / "v.mp4", read)["crashed"] == 0
    assert odd == []


def test_times_ascend_in_each_chunk(tmp_path: Path) -> None:
    path = tmp_path / "v.mp4"
    path.write_bytes(video("h264", 30, gop=4))
    for chunk in chunks(path)[0]:
        times = [row[2] for row in rows([chunk])]
        assert chunk.is_static or (np.diff(times) > 0).all()
