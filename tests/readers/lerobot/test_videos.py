"""Videos of LeRobot datasets: samples as they are in the file, on the timelines of the frames."""

from __future__ import annotations

import json
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine.chunk import Chunk
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.errors import ReadError, ReadWarning, UnsupportedError, UsageError
from chunkmill.engine.storage.positional import open_positional
from chunkmill.engine.video import VideoSample, VideoTrack, coding, decode, demultiplex
from chunkmill.readers import LeRobotDataset, LeRobotReader, RrdReader
from click.testing import CliRunner
from video_files import picture, video

LENGTHS = (13, 12, 15)
RATE = 30
CAMERA = "observation.images.top"
ENTITY = "/observation/images/top"

pytestmark = pytest.mark.process


def write(path: Path, content: pa.Table | str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        path.write_text(content)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        pq.write_table(content, path)


def table(*episodes: int) -> pa.Table:
    rows = [(e, i, sum(LENGTHS[:e]) + i) for e in episodes for i in range(LENGTHS[e])]
    return pa.table(
        {
            "observation.state": pa.array([[e + 0.5, float(i)] for e, i, _ in rows], pa.list_(pa.float32(), 2)),
            "timestamp": pa.array([i / RATE for _, i, _ in rows], pa.float32()),
            "frame_index": [i for _, i, _ in rows],
            "episode_index": [e for e, _, _ in rows],
            "index": [n for _, _, n in rows],
            "task_index": [0 for _ in rows],
        }
    )


def info(version: str, **more: Any) -> str:
    features = {
        "observation.state": {"dtype": "float32", "shape": [2], "names": None},
        CAMERA: {"dtype": "video", "shape": [48, 64, 3], "names": ["height", "width", "channels"]},
    }
    return json.dumps({"codebase_version": version, "fps": RATE, "robot_type": "arm", "features": features, **more})


def make_v2(root: Path, version: str = "v2.1", codec: str = "av1", **options: Any) -> Path:
    paths = {
        "chunks_size": 2,
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
    }
    write(root / "meta/info.json", info(version, **paths))
    lines = [{"episode_index": e, "length": n, "tasks": ["pick"]} for e, n in enumerate(LENGTHS)]
    write(root / "meta/episodes.jsonl", "\n".join(map(json.dumps, lines)))
    write(root / "meta/tasks.jsonl", json.dumps({"task_index": 0, "task": "pick"}))
    for e, length in enumerate(LENGTHS):
        write(root / f"data/chunk-{e // 2:03d}/episode_{e:06d}.parquet", table(e))
        place = root / f"videos/chunk-{e // 2:03d}/{CAMERA}/episode_{e:06d}.mp4"
        write(place, video(codec, length, gop=5, **options))
    return root


def make_v3(root: Path, codec: str = "av1", gop: int = 5, **options: Any) -> Path:
    """One file of all episodes, whose groups of pictures do not begin where the episodes do."""
    paths = {
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    }
    write(root / "meta/info.json", info("v3.0", **paths))
    begins = [sum(LENGTHS[:e]) for e in range(3)]
    episodes = pa.table(
        {
            "episode_index": [0, 1, 2],
            "length": list(LENGTHS),
            "tasks": [["pick"]] * 3,
            "data/chunk_index": [0] * 3,
            "data/file_index": [0] * 3,
            f"videos/{CAMERA}/chunk_index": [0] * 3,
            f"videos/{CAMERA}/file_index": [0] * 3,
            f"videos/{CAMERA}/from_timestamp": [b / RATE for b in begins],
            f"videos/{CAMERA}/to_timestamp": [(b + n) / RATE for b, n in zip(begins, LENGTHS, strict=True)],
        }
    )
    write(root / "meta/episodes/chunk-000/file-000.parquet", episodes)
    write(root / "meta/tasks.parquet", pa.table({"task_index": [0], "__index_level_0__": ["pick"]}))
    write(root / "data/chunk-000/file-000.parquet", table(0, 1, 2))
    write(root / f"videos/{CAMERA}/chunk-000/file-000.mp4", video(codec, sum(LENGTHS), gop=gop, **options))
    return root


def samples(path: Path) -> tuple[VideoTrack, list[VideoSample]]:
    with open_positional(str(path)) as file, demultiplex(file) as opened:
        return opened.track, list(opened.samples())


def rows(chunks: list[Chunk], component: str) -> list[tuple[dict[str, int], Any]]:
    """The times and the value of each row."""
    out: list[tuple[dict[str, int], Any]] = []
    for chunk in (c for c in chunks if c.entity_path == ENTITY):
        for column in (c for c in chunk.data.components if c.descriptor.component == component):
            times = {t.name: t.ticks.tolist() for t in chunk.data.timelines}
            out += [
                ({name: ticks[i] for name, ticks in times.items()}, value[0])
                for i, value in enumerate(column.values.to_pylist())
            ]
    return out


@pytest.mark.parametrize("version", ["v2.0", "v2.1"])
def test_the_file_of_an_episode_is_its_video(version: str, tmp_path: Path) -> None:
    root = make_v2(tmp_path / "set", version)
    for episode in LeRobotDataset(root).episodes():
        chunks = episode.stream().to_chunks(executor="inline")
        _, wanted = samples(root / f"videos/chunk-{episode.index // 2:03d}/{CAMERA}/episode_{episode.index:06d}.mp4")
        read = rows(chunks, "VideoStream:sample")
        assert [bytes(value) for _, value in read] == [s.data for s in wanted]
        stamps = np.rint(np.float32([i / RATE for i in range(episode.length)]).astype(float) * 1e9).astype(int)
        begin = sum(LENGTHS[: episode.index])
        assert [times for times, _ in read] == [
            {"frame_index": i, "index": begin + i, "timestamp": stamps[i]} for i in range(episode.length)
        ]
        assert [t["frame_index"] for t, _ in rows(chunks, "VideoStream:is_keyframe")] == list(
            range(0, episode.length, 5)
        )
        assert [value for _, value in rows(chunks, "VideoStream:codec")] == [0x61763031]


@pytest.mark.parametrize("codec", ["av1", "h264", "hevc", "vp9"])
def test_an_episode_within_a_shared_file_has_its_lead_in(codec: str, tmp_path: Path) -> None:
    root = make_v3(tmp_path / "set", codec)
    track, whole = samples(root / f"videos/{CAMERA}/chunk-000/file-000.mp4")
    for episode in LeRobotReader(root).episodes():
        chunks = LeRobotReader(root).stream(episode, video_mode="native").to_chunks(executor="inline")
        begin = sum(LENGTHS[:episode])
        first = begin - begin % 5
        end = begin + LENGTHS[episode]
        read = rows(chunks, "VideoStream:sample")
        assert [bytes(value) for _, value in read] == [s.data for s in whole[first:end]]
        assert [t["frame_index"] for t, _ in read] == list(range(first - begin, LENGTHS[episode]))
        assert [t["index"] for t, _ in read] == list(range(first, end))
        assert [t["timestamp"] for t, _ in read if t["frame_index"] < 0] == [
            round(Fraction(n - begin, RATE) * 10**9) for n in range(first, begin)
        ]
        keys = [t["index"] for t, _ in rows(chunks, "VideoStream:is_keyframe")]
        assert keys == [n for n in range(first, end) if n % 5 == 0]
        decoded = list(decode(track, [VideoSample(i, i, i == 0, bytes(v)) for i, (_, v) in enumerate(read)]))
        for number, frame in zip(range(first, end), decoded, strict=True):
            assert np.abs(frame.image.astype(int) - picture(number)).mean() < 12


def test_groups_are_packed(tmp_path: Path) -> None:
    root = make_v3(tmp_path / "set")
    chunks = LeRobotDataset(root).episode(2).stream().to_chunks(executor="inline")
    assert sum(1 for c in chunks if "VideoStream:sample" in str(c.data.components)) == 1


def test_videos_with_b_frames(tmp_path: Path) -> None:
    root = make_v3(tmp_path / "set", "h264", b_frames=True)
    with pytest.warns(ReadWarning, match="re-encoded as H.264 by libx264"):
        chunks = LeRobotDataset(root).episode(1).stream().to_chunks(executor="inline")
    read = rows(chunks, "VideoStream:sample")
    assert [t["frame_index"] for t, _ in read] == list(range(LENGTHS[1]))
    with pytest.raises(UnsupportedError, match="B-frames"):
        LeRobotReader(root).stream(1, b_frames="error").to_chunks(executor="inline")


def test_videos_are_skipped_and_modes_checked(tmp_path: Path) -> None:
    root = make_v3(tmp_path / "set")
    chunks = LeRobotReader(root).stream(0, video_mode="skip").to_chunks(executor="inline")
    assert ENTITY not in {c.entity_path for c in chunks}
    with pytest.raises(UsageError, match="Unknown b_frames"):
        LeRobotReader(root).stream(0, b_frames="drop")  # type: ignore[arg-type]


def test_only_what_is_wanted_is_read(tmp_path: Path) -> None:
    root = make_v3(tmp_path / "set")
    (root / f"videos/{CAMERA}/chunk-000/file-000.mp4").write_bytes(b"no video")
    episode = LeRobotDataset(root).episode(0)
    assert episode.stream().filter(content="/observation/state").to_chunks(executor="inline")
    with pytest.raises(UnsupportedError, match="not an MP4"):
        episode.stream().to_chunks(executor="inline")
    (chunk, *_) = make_only_video(tmp_path)
    assert chunk.entity_path == ENTITY


def make_only_video(tmp_path: Path) -> list[Chunk]:
    stream = LeRobotDataset(make_v3(tmp_path / "other")).episode(0).stream()
    return stream.filter(content=ENTITY).to_chunks(executor="inline")


def test_a_video_that_does_not_fit_is_said(tmp_path: Path) -> None:
    root = make_v2(tmp_path / "set")
    place = root / f"videos/chunk-000/{CAMERA}/episode_000000.mp4"
    place.write_bytes(video("av1", 11, gop=5))
    with pytest.warns(ReadWarning, match=rf"episode 0, {CAMERA}: 2 frames of 13 without a picture"):
        LeRobotDataset(root).episode(0).stream().to_chunks(executor="inline")
    place.write_bytes(video("av1", 15, gop=5))
    with pytest.warns(ReadWarning, match="2 pictures without a frame"):
        chunks = LeRobotDataset(root).episode(0).stream().to_chunks(executor="inline")
    assert [t["frame_index"] for t, _ in rows(chunks, "VideoStream:sample")] == list(range(15))
    place.write_bytes(video("av1", 26, gop=5, rate=60))
    with pytest.warns(ReadWarning, match="13 pictures without a frame|pictures at a frame that already has one"):
        LeRobotDataset(root).episode(0).stream().to_chunks(executor="inline")
    place.write_bytes(video("av1", 13)[:-20])
    with pytest.raises(ReadError, match="left") as raised:
        LeRobotDataset(root).episode(0).stream().to_chunks(executor="inline")
    assert raised.value.path == str(place)


def test_plain_videos_need_no_pyav_and_others_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stream(root: Path) -> list[Chunk]:
        return LeRobotDataset(root).episode(0).stream().to_chunks(executor="inline")

    roots = [make_v3(tmp_path / "plain"), make_v2(tmp_path / "other")]
    (roots[1] / f"videos/chunk-000/{CAMERA}/episode_000000.mp4").write_bytes(video("h264", 13, b_frames=True))
    monkeypatch.setattr(coding, "has_video_extra", lambda: False)
    assert rows(stream(roots[0]), "VideoStream:sample")
    why = r"needs PyAV, because it has B-frames.*PyAV is not installed: pip install '\.\[video\]'"
    with pytest.warns(ReadWarning, match=rf"the videos of {CAMERA} are not read, because .*{why}"):
        chunks = stream(roots[1])
    assert [v for _, v in rows(chunks, "LeRobotVideo:path")]
    assert not rows(chunks, "VideoStream:sample")


def test_the_command_line_reads_videos(tmp_path: Path) -> None:
    root = make_v3(tmp_path / "set")
    out = tmp_path / "out"
    done = CliRunner().invoke(commands, ["convert", str(root), "-o", str(out), "--executor", "inline"])
    assert done.exit_code == 0, done.stderr
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chunks = RrdReader(next(out.rglob("*000001.rrd"))).stream().to_chunks()
    assert len(rows(chunks, "VideoStream:sample")) == LENGTHS[1] + 3
    skipped = ["convert", str(root), "-o", str(tmp_path / "s"), "--executor", "inline", "--video-mode", "skip"]
    assert CliRunner().invoke(commands, skipped).exit_code == 0
    chunks = RrdReader(next((tmp_path / "s").rglob("*000001.rrd"))).stream().to_chunks()
    assert not rows(chunks, "VideoStream:sample")


@pytest.mark.slow
def test_forty_minutes(tmp_path: Path) -> None:
    global LENGTHS
    before, LENGTHS = LENGTHS, (40 * 60 * RATE, 1, 1)
    try:
        root = make_v3(tmp_path / "set", "h264", gop=60, options={"preset": "ultrafast"})
        chunks = LeRobotDataset(root).episode(0).stream().to_chunks(executor="inline")
        read = [t["frame_index"] for t, _ in rows(chunks, "VideoStream:sample")]
        assert read == list(range(LENGTHS[0]))
    finally:
        LENGTHS = before


@pytest.mark.spark
def test_videos_on_spark(tmp_path: Path, spark: object) -> None:
    root = make_v3(tmp_path / "set")
    stream = LeRobotDataset(root).episode(1).stream()
    inline = rows(stream.to_chunks(executor="inline"), "VideoStream:sample")
    assert rows(stream.to_chunks(executor="spark"), "VideoStream:sample") == inline
