"""LeRobot datasets: metadata of both versions, episodes, features, and what is wrong with bad ones."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine.chunk import Chunk
from chunkmill.engine.cli import main
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.errors import ReadError, ReadWarning, SourceMissingError, UnsupportedError, UsageError
from chunkmill.readers import LeRobotDataset, LeRobotReader, RrdReader
from chunkmill.readers.lerobot import LeRobotRecording
from click.testing import CliRunner

FEATURES: dict[str, Any] = {
    "observation.state": {"dtype": "float32", "shape": [2], "names": {"motors": ["pan", "tilt"]}},
    "observation.image": {"dtype": "image", "shape": [2, 2, 3], "names": ["height", "width", "channel"]},
    "note": {"dtype": "string", "shape": [1], "names": None},
    "next.done": {"dtype": "bool", "shape": [1], "names": None},
    "pose": {"dtype": "float32", "shape": [2, 2], "names": None},
    "timestamp": {"dtype": "float32", "shape": [1], "names": None},
}
INFO: dict[str, Any] = {"fps": 10, "robot_type": "arm", "chunks_size": 2, "features": FEATURES, "video_path": None}
LENGTHS = (3, 4, 5)
TASKS = ("pick", "place")


def frames(episode: int) -> dict[str, list[Any]]:
    n = LENGTHS[episode]
    first = sum(LENGTHS[:episode])
    return {
        "observation.state": [[episode + 0.5, float(i)] for i in range(n)],
        "observation.image": [{"bytes": None if i == 1 else bytes([episode, i]), "path": None} for i in range(n)],
        "note": [f"{episode}/{i}" for i in range(n)],
        "next.done": [i == n - 1 for i in range(n)],
        "pose": [[[1.0, 2.0], [3.0, float(i)]] for i in range(n)],
        "timestamp": [i / 10 for i in range(n)],
        "frame_index": list(range(n)),
        "episode_index": [episode] * n,
        "index": list(range(first, first + n)),
        "task_index": [0, *[episode % 2] * (n - 1)],
    }


def table(*episodes: int) -> pa.Table:
    image = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    types = {"observation.state": pa.list_(pa.float32(), 2), "observation.image": image, "timestamp": pa.float32()}
    parts = [
        pa.table({name: pa.array(v, types.get(name)) for name, v in frames(episode).items()}) for episode in episodes
    ]
    return pa.concat_tables(parts)


def write(path: Path, content: pa.Table | str, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        path.write_text(content)
    else:
        pq.write_table(content, path, **options)


def make_v2(root: Path, **changes: Any) -> Path:
    data_path = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
    info = {**INFO, "codebase_version": "v2.1", "data_path": data_path, **changes}
    write(root / "meta/info.json", json.dumps(info))
    lines = [{"episode_index": e, "length": n, "tasks": list(TASKS)} for e, n in enumerate(LENGTHS)]
    write(root / "meta/episodes.jsonl", "\n".join(map(json.dumps, lines)) + "\n")
    write(root / "meta/tasks.jsonl", "\n".join(json.dumps({"task_index": i, "task": t}) for i, t in enumerate(TASKS)))
    for e in range(len(LENGTHS)):
        write(root / f"data/chunk-{e // 2:03d}/episode_{e:06d}.parquet", table(e))
    return root


def make_v3(root: Path) -> Path:
    data_path = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
    write(root / "meta/info.json", json.dumps({**INFO, "codebase_version": "v3.0", "data_path": data_path}))
    episodes = pa.table(
        {
            "episode_index": [0, 1, 2],
            "length": list(LENGTHS),
            "tasks": [list(TASKS)] * 3,
            "data/chunk_index": [0, 0, 0],
            "data/file_index": [0, 0, 1],
        }
    )
    write(root / "meta/episodes/chunk-000/file-000.parquet", episodes)
    write(root / "meta/tasks.parquet", pa.table({"task_index": [0, 1], "__index_level_0__": list(TASKS)}))
    write(root / "data/chunk-000/file-000.parquet", table(0, 1), row_group_size=2)
    write(root / "data/chunk-000/file-001.parquet", table(2))
    return root


@pytest.fixture(params=[make_v2, make_v3], ids=["v2", "v3"])
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return request.param(tmp_path / "set")


def column(chunks: list[Chunk], entity: str, name: str) -> list[Any]:
    found = [c.values for k in chunks if k.entity_path == entity for c in k.data.components]
    names = [c.descriptor.component for k in chunks if k.entity_path == entity for c in k.data.components]
    return [v for n, values in zip(names, found, strict=True) if n == name for v in values.to_pylist()]


def test_each_episode_is_a_recording(dataset: Path) -> None:
    episodes = LeRobotDataset(dataset).episodes()
    assert [(e.index, e.length, e.recording_id) for e in episodes] == [
        (i, n, f"episode_{i:06d}") for i, n in enumerate(LENGTHS)
    ]
    assert episodes[1].tasks == TASKS
    for episode in episodes:
        rows = frames(episode.index)
        chunks = episode.stream().to_chunks(executor="inline")
        assert column(chunks, "/observation/state", "Scalars:scalars") == rows["observation.state"]
        assert column(chunks, "/next/done", "Scalars:scalars") == [[float(v)] for v in rows["next.done"]]
        assert column(chunks, "/note", "TextDocument:text") == [[v] for v in rows["note"]]
        assert column(chunks, "/pose", "pose") == [[v] for v in rows["pose"]]
        images = [None if v["bytes"] is None else [list(v["bytes"])] for v in rows["observation.image"]]
        assert column(chunks, "/observation/image", "EncodedImage:blob") == images


def test_frames_are_on_three_timelines(dataset: Path) -> None:
    chunks = LeRobotDataset(dataset).episode(1).stream().filter(content="/observation/state").to_chunks()
    lines = {t.name: (t.kind.value, t.ticks.tolist()) for t in chunks[0].data.timelines}
    assert lines == {
        "frame_index": ("sequence", [0, 1, 2, 3]),
        "index": ("sequence", [3, 4, 5, 6]),
        "timestamp": ("duration", [0, 100_000_001, 200_000_003, 300_000_012]),
    }


def test_tasks_names_and_facts_come_too(dataset: Path) -> None:
    chunks = LeRobotDataset(dataset).episode(1).stream().to_chunks(executor="inline")
    assert column(chunks, "/task", "TextDocument:text") == [["pick"], ["place"]]
    (task,) = (c for c in chunks if c.entity_path == "/task")
    assert task.data.timelines[0].ticks.tolist() == [0, 1]
    assert column(chunks, "/observation/state", "SeriesLines:names") == [["pan", "tilt"]]
    assert column(chunks, "/__properties", "LeRobotEpisode:robot_type") == [["arm"]]
    assert column(chunks, "/__properties", "LeRobotEpisode:tasks") == [list(TASKS)]
    assert column(chunks, "/__properties", "LeRobotEpisode:fps") == [[10.0]]


def test_row_groups_of_other_episodes_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from chunkmill.readers.parquet.file import ParquetFile

    read: list[list[int]] = []
    real = ParquetFile.batches
    root = make_v3(tmp_path / "set")
    dataset = LeRobotDataset(root)
    assert len(dataset.episodes()) == 3

    def spy(self: ParquetFile, groups, columns, rows):
        read.append(list(groups))
        return real(self, groups, columns, rows)

    monkeypatch.setattr(ParquetFile, "batches", spy)
    assert dataset.episode(0).stream().to_chunks(executor="inline")
    assert read == [[0, 1]]  # of [0 0] [0 1] [1 1] [1]


def test_convert_writes_one_file_an_episode(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["chunkmill", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        assert not left.value.code, capfd.readouterr().err
        return capfd.readouterr().out

    run("convert", dataset, "-o", tmp_path / "out", "--executor", "inline", "-q")
    files = sorted((tmp_path / "out").iterdir())
    assert [f.name for f in files] == [f"episode_{i:06d}.rrd" for i in range(3)]
    (store,) = RrdReader(files[2]).recordings()
    assert store.recording_id == "episode_000002"
    rows = sum(c.num_rows for c in RrdReader(files[2]).stream().filter(content="/note").to_chunks(executor="inline"))
    assert rows == LENGTHS[2]
    assert "episodes 3, frames 12" in run("inspect", dataset)


def test_videos_are_named_with_a_warning(tmp_path: Path) -> None:
    features = {**FEATURES, "cam.top": {"dtype": "video", "shape": [2, 2, 3]}}
    video_path = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
    root = make_v2(tmp_path / "set", features=features, video_path=video_path)
    with pytest.warns(ReadWarning, match=r"the videos of cam\.top are not read"):
        chunks = LeRobotDataset(root).episode(2).stream().to_chunks(executor="inline")
    assert column(chunks, "/cam/top", "LeRobotVideo:path") == [["videos/chunk-001/cam.top/episode_000002.mp4"]]


def test_a_dataset_is_warned_of_its_videos_once(tmp_path: Path) -> None:
    features = {**FEATURES, "cam.top": {"dtype": "video", "shape": [2, 2, 3]}}
    root = make_v2(tmp_path / "set", features=features, video_path="videos/{video_key}/{episode_index:06d}.mp4")
    done = CliRunner().invoke(commands, ["convert", str(root), "-o", str(tmp_path / "out"), "--executor", "inline"])
    assert done.exit_code == 0, done.stderr
    assert len(list((tmp_path / "out").rglob("*.rrd"))) == len(LENGTHS)
    assert done.stderr.count("are not read") == 1


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"codebase_version": "v1.6"}, UnsupportedError, "LeRobot datasets of version 'v1.6'"),
        ({"data_path": "../{episode_index}.parquet"}, ReadError, "is outside the dataset"),
        ({"data_path": "/etc/{episode_index}"}, ReadError, "is outside the dataset"),
        ({"data_path": "{episode_index.__class__}"}, ReadError, "is outside the dataset"),
        ({"data_path": "{other:03d}"}, ReadError, "unknown field 'other'"),
        ({"fps": 0}, ReadError, "'fps' is 0"),
        ({"features": None}, ReadError, "'features' is missing"),
        ({"features": {"x": 3}}, ReadError, "not a mapping"),
        ({"features": {"x": {"shape": "big"}}}, ReadError, "the shape of feature 'x'"),
    ],
)
def test_bad_metadata_is_refused(tmp_path: Path, changes: dict[str, Any], error: type, text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        LeRobotDataset(make_v2(tmp_path / "set", **changes)).episodes()
    assert caught.value.path and caught.value.hint


def test_what_is_missing_or_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match="LeRobot dataset not found"):
        LeRobotDataset(tmp_path)
    root = make_v2(tmp_path / "set")
    with pytest.raises(UsageError, match="no episode 7"):
        LeRobotDataset(root).episode(7)
    (root / "data/chunk-000/episode_000001.parquet").unlink()
    with pytest.raises(SourceMissingError, match=r"episode_000001\.parquet"):
        LeRobotDataset(root).episode(1).stream().to_chunks(executor="inline")
    write(root / "data/chunk-000/episode_000000.parquet", table(0).slice(0, 2))
    with pytest.raises(ReadError, match="episode 0 has 2 frames, but 3 in meta"):
        LeRobotDataset(root).episode(0).stream().to_chunks(executor="inline")
    (root / "meta/episodes.jsonl").write_text("{nonsense")
    with pytest.raises(ReadError, match="is not JSON"):
        LeRobotDataset(root).episodes()


@pytest.mark.parametrize(("name", "count"), [("lerobot_v2_G1", 100), ("lerobot_v3_apple_storage", 3)])
def test_real_datasets_are_read(data: Path, name: str, count: int) -> None:
    dataset = LeRobotDataset(data / "parquet" / name)
    assert len(dataset.episodes()) == count
    for episode in (dataset.episode(0), dataset.episode(count - 1)):
        with pytest.warns(ReadWarning, match="the videos of"):
            chunks = episode.stream().to_chunks(executor="inline")
        states = column(chunks, "/observation/state", "Scalars:scalars")
        file = pq.read_table(
            dataset.path / episode.source().paths()[0], filters=[("episode_index", "=", episode.index)]
        )
        assert states == file["observation.state"].to_pylist()
        assert column(chunks, "/task", "TextDocument:text") == [[episode.tasks[0]]]


def test_the_reader_by_the_peers_calls(dataset: Path) -> None:
    reader = LeRobotReader(dataset)
    assert (reader.path, reader.episodes()) == (dataset, [e.index for e in LeRobotDataset(dataset).episodes()])
    assert reader.version in ("v2", "v3") and repr(reader) == f"LeRobotReader({dataset})"
    facts = reader.metadata()
    assert (facts.entity_path, facts.is_static, facts.num_rows) == ("/__lerobot", True, 1)
    found = {c.descriptor.component: c.values.to_pylist() for c in facts.data.components}
    assert found["info"] == [[(dataset / "meta" / "info.json").read_text(encoding="utf-8")]]
    assert reader.metadata(entity_path_prefix="/m").entity_path == "/m"

    episode = reader.episodes()[-1]
    plain = reader.stream(episode, video_mode="skip").to_chunks()
    moved = reader.stream(episode, entity_path_prefix="/arm", timeline="f", video_mode="skip").to_chunks()
    assert [c.entity_path for c in moved] == [
        c.entity_path if c.entity_path == "/__properties" else "/arm" + c.entity_path for c in plain
    ]
    for before, after in zip(plain, moved, strict=True):
        assert after.timeline_names == sorted("f" if n == "frame_index" else n for n in before.timeline_names)
        assert [c.values for c in after.data.components] == [c.values for c in before.data.components]
    for call in (lambda: reader.stream(99), lambda: reader.stream(episode, video_mode="all")):  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            call()


def with_images(root: Path, paths: list[str | None], kind: str) -> Path:
    """Give the three frames of episode 0 images by their paths, in structs or as text."""
    make_v2(root)
    place = root / "data/chunk-000/episode_000000.parquet"
    struct = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    values = pa.array([{"bytes": None, "path": p} for p in paths], struct) if kind == "struct" else pa.array(paths)
    frames_of_it = pq.read_table(place)
    position = frames_of_it.schema.get_field_index("observation.image")
    pq.write_table(frames_of_it.set_column(position, "observation.image", values), place)
    (root / "images/e0").mkdir(parents=True)
    (root / "data/chunk-000/near.png").write_bytes(b"near")
    (root / "images/e0/a.png").write_bytes(b"first")
    return root


def images_of(root: Path) -> list[bytes | None]:
    chunks = LeRobotDataset(root).episode(0).stream().filter(content="/observation/image").to_chunks(executor="inline")
    found = column([c for c in chunks if not c.is_static], "/observation/image", "EncodedImage:blob")
    return [None if v is None else bytes(v[0]) for v in found]


@pytest.mark.parametrize("kind", ["struct", "text"])
class TestImagesByPath:
    def test_are_read_below_the_dataset_or_beside_the_data(self, tmp_path: Path, kind: str) -> None:
        root = with_images(tmp_path / "set", ["images/e0/a.png", "near.png", None], kind)
        assert images_of(root) == [b"first", b"near", None]
        with_images(tmp_path / "other", [str(tmp_path / "other/images/e0/a.png"), None, "./near.png"], kind)
        assert images_of(tmp_path / "other") == [b"first", None, b"near"]

    def test_that_are_missing_are_named(self, tmp_path: Path, kind: str) -> None:
        root = with_images(tmp_path / "set", ["images/e0/a.png", "images/e0/gone.png", "gone.png"], kind)
        with pytest.warns(ReadWarning, match="the files of 2 images are missing.*images/e0/gone.png"):
            assert images_of(root) == [b"first", None, None]

    @pytest.mark.parametrize("path", ["../secret.png", "{root}/../secret.png", "/etc/hostname", "a/../../secret.png"])
    def test_other_files_of_the_machine_are_not_read(self, tmp_path: Path, kind: str, path: str) -> None:
        (tmp_path / "secret.png").write_bytes(b"secret")
        root = with_images(tmp_path / "set", ["images/e0/a.png", path.format(root=tmp_path / "set"), None], kind)
        with pytest.warns(ReadWarning, match="the files of 1 image"):
            assert images_of(root) == [b"first", None, None]

    def test_that_are_large_come_in_chunks_of_their_own(self, tmp_path: Path, kind: str) -> None:
        root = with_images(tmp_path / "set", ["images/e0/a.png"] * 3, kind)
        (root / "images/e0/a.png").write_bytes(bytes(3 * 2**20))
        stream = LeRobotDataset(root).episode(0).stream().filter(content="/observation/image")
        chunks = stream.to_chunks(executor="inline")
        assert [(c.num_rows, c.data.timelines[0].ticks.tolist()) for c in chunks] == [(1, [0]), (1, [1]), (1, [2])]


@pytest.mark.parametrize("make", [make_v2, make_v3])
def test_a_task_that_meta_lacks_is_named(tmp_path: Path, make: Any) -> None:
    root = make(tmp_path / "set")
    if make is make_v2:
        (root / "meta/tasks.jsonl").write_text(json.dumps({"task_index": 1, "task": "place"}))
    else:
        (root / "meta/tasks.parquet").unlink()
    with pytest.warns(ReadWarning, match=r"episode 1: task_index 0(, 1)? is not in meta"):
        chunks = LeRobotDataset(root).episode(1).stream().to_chunks(executor="inline")
    assert column(chunks, "/task", "TextDocument:text") == [[None], ["place"] if make is make_v2 else [None]]


def test_what_meta_says_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    root = make_v3(tmp_path / "set")

    def version() -> list[Any]:
        chunks = LeRobotRecording(root, episode=0).stream().to_chunks(executor="inline")
        return column(chunks, "/__properties", "LeRobotEpisode:robot_type")

    info = root / "meta/info.json"
    before = version()
    content = json.loads(info.read_text())
    info.write_text(json.dumps({**content, "robot_type": "another"}))
    os.utime(info, ns=(1, 1))
    assert version() == [["another"]] != before


def test_meta_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    root = make_v2(tmp_path / "set")
    for name in ("info.json", "tasks.jsonl", "episodes.jsonl"):
        place = root / "meta" / name
        place.write_bytes(b"\xef\xbb\xbf" + place.read_bytes().replace(b"\n", b"\r\n \r\n"))
    assert [e.tasks for e in LeRobotDataset(root).episodes()] == [TASKS] * 3
    assert LeRobotReader(root).metadata().num_rows == 1
