"""Forged LeRobot datasets, of versions 2 and 3: what they say leaves their folder, or asks for much."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.append(str(Path(__file__).parents[1]))

from video_files import video

CAMERA = "camera.top"
LENGTH = 6
RATE = 30
Forge = Callable[[Path, Path], object]
"""Changes a dataset, given its folder and one beside it that must not be opened."""


@cache
def _video() -> bytes:
    return video("h264", 2 * LENGTH, gop=LENGTH, rate=RATE)


def _frames(episodes: tuple[int, ...], **columns: Any) -> pa.Table:
    rows = [(e, i) for e in episodes for i in range(LENGTH)]
    plain = {
        "observation.state": pa.array([[e + 0.5, float(i)] for e, i in rows], pa.list_(pa.float32(), 2)),
        "timestamp": pa.array([i / RATE for _, i in rows], pa.float32()),
        "frame_index": pa.array([i for _, i in rows]),
        "episode_index": pa.array([e for e, _ in rows]),
        "task_index": pa.array([0 for _ in rows]),
    }
    return pa.table({**plain, **{name.replace("__", "."): value for name, value in columns.items()}})


def _write(place: Path, content: pa.Table | bytes | str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, pa.Table):
        pq.write_table(content, place)
    else:
        place.write_bytes(content.encode() if isinstance(content, str) else content)


def _json(place: Path, **changes: Any) -> None:
    _write(place, json.dumps({**(json.loads(place.read_text()) if place.exists() else {}), **changes}))


def make_set(root: Path, version: str) -> Path:
    """Two episodes of numbers, a task and a camera."""
    state = {"dtype": "float32", "shape": [2], "names": None}
    camera = {"dtype": "video", "shape": [48, 64, 3], "names": None}
    facts = {"codebase_version": version, "fps": RATE, "features": {"observation.state": state, CAMERA: camera}}
    if version.startswith("v2"):
        place = "{episode_chunk:03d}/{episode_index:06d}"
        _json(root / INFO, **facts, data_path=f"data/{place}.parquet", video_path=f"videos/{{video_key}}/{place}.mp4")
        _write(root / "meta/episodes.jsonl", "".join(_line(e) for e in range(2)))
        _write(root / "meta/tasks.jsonl", json.dumps({"task_index": 0, "task": "pick"}))
        for e in range(2):
            _write(root / f"data/000/{e:06d}.parquet", _frames((e,)))
            _write(root / f"videos/{CAMERA}/000/{e:06d}.mp4", video("h264", LENGTH, rate=RATE))
    else:
        place = "{chunk_index:03d}/{file_index:03d}"
        _json(root / INFO, **facts, data_path=f"data/{place}.parquet", video_path=f"videos/{{video_key}}/{place}.mp4")
        _write(root / "meta/episodes/000/000.parquet", _episodes())
        _write(root / "meta/tasks.parquet", pa.table({"task_index": [0], "task": ["pick"]}))
        _write(root / "data/000/000.parquet", _frames((0, 1)))
        _write(root / f"videos/{CAMERA}/000/000.mp4", _video())
    return root


INFO = "meta/info.json"


def _line(index: Any, length: Any = LENGTH, **more: Any) -> str:
    return json.dumps({"episode_index": index, "length": length, "tasks": ["pick"], **more}) + "\n"


def _episodes(**columns: Any) -> pa.Table:
    places = {
        f"{kind}/{name}": [0, 0] for kind in ("data", f"videos/{CAMERA}") for name in ("chunk_index", "file_index")
    }
    times = {
        f"videos/{CAMERA}/from_timestamp": [0.0, LENGTH / RATE],
        f"videos/{CAMERA}/to_timestamp": [LENGTH / RATE, 2 * LENGTH / RATE],
    }
    plain = {"episode_index": [0, 1], "length": [LENGTH] * 2, "tasks": [["pick"]] * 2, **places, **times}
    return pa.table({**plain, **{name.replace("__", f"s/{CAMERA}/"): value for name, value in columns.items()}})


def info(**changes: Any) -> Forge:
    return lambda root, _: _json(root / INFO, **changes)


def lines(*texts: str) -> Forge:
    return lambda root, _: _write(root / "meta/episodes.jsonl", "".join(texts))


def episodes(**columns: Any) -> Forge:
    return lambda root, _: _write(root / "meta/episodes/000/000.parquet", _episodes(**columns))


def data(**columns: Any) -> Forge:
    return lambda root, _: _write(root / "data/000/000.parquet", _frames((0, 1), **columns))


def file(place: str, content: Callable[[], pa.Table | bytes | str]) -> Forge:
    return lambda root, _: _write(root / place, content())


def feature(name: str, **facts: Any) -> Forge:
    return info(features={name: {"dtype": "float32", "shape": [2], **facts}})


def linked(place: str) -> Forge:
    """Put a link in the place of a file or folder, which is moved out of the dataset."""

    def forge(root: Path, beside: Path) -> None:
        (beside / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(root / place, beside / place)
        (root / place).symlink_to(beside / place)

    return forge


def piped(place: str) -> Forge:
    """Put a pipe, whose reading never ends, in the place of a file."""

    def forge(root: Path, _: Path) -> None:
        (root / place).unlink(missing_ok=True)
        os.mkfifo(root / place)

    return forge


def sparse(place: str, size: int) -> Forge:
    return lambda root, _: os.truncate(root / place, size)


def image(path: str, *, link: bool = False, pipe: bool = False) -> Forge:
    """Frames whose images are files."""

    def forge(root: Path, beside: Path) -> None:
        _write(beside / "a.png", b"secret")
        if link:
            (root / path).symlink_to(beside / "a.png")
        if pipe:
            os.mkfifo(root / path)
        struct = pa.struct({"bytes": pa.binary(), "path": pa.string()})
        data(shot=pa.array([{"bytes": None, "path": path}] * 2 * LENGTH, struct))(root, beside)

    return forge


def _outside_playlist(head: str, text: str) -> Forge:
    def forge(root: Path, beside: Path) -> None:
        _write(beside / "secret.mp4", _video())
        _write(root / VIDEO_3, head + text.format(beside / "secret.mp4"))

    return forge


def _constant(rows: int, **columns: Any) -> pa.Table:
    """A table of one value in each column, which takes few bytes."""
    return pa.table(
        {name: pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int8()), [v]) for name, v in columns.items()}
    )


def _outside_camera(root: Path, beside: Path) -> None:
    name = "../../beside/x"
    info(features={name: {"dtype": "video", "shape": [1]}}, video_path="videos/{video_key}")(root, beside)
    episodes(**{f"videos/{name}/{number}": [0, 0] for number in ("chunk_index", "file_index")})(root, beside)


VIDEO_3 = f"videos/{CAMERA}/000/000.mp4"
DEEP = "[" * 200_000 + "]" * 200_000
BOTH: dict[str, tuple[Forge, str]] = {
    "data behind the folder": (
        info(data_path="../beside/{episode_index}.parquet"),
        "is outside the dataset|has the unknown field",
    ),
    "data at a path of the machine": (info(data_path="/etc/passwd"), "is outside the dataset"),
    "data within and out again": (info(data_path="data/../../beside/x.parquet"), "is outside the dataset"),
    "an attribute in a path": (info(data_path="{episode_index.__class__}"), "is outside the dataset"),
    "an index in a path": (info(data_path="data/{0}"), "has the unknown field"),
    "a conversion in a path": (info(data_path="data/{episode_index!r:>99999999}"), "is outside the dataset"),
    "a width of a billion": (info(data_path="data/{chunk_index:0999999999d}"), "is outside the dataset"),
    "a zero byte in a path": (info(data_path="data/\0.parquet"), "is outside the dataset"),
    "a path of a megabyte": (info(data_path="d" * 2**20), "is outside the dataset"),
    "a list for a path": (info(data_path=["data"]), "there is no such file|is not text"),
    "a video behind the folder": (info(video_path="../{video_key}.mp4"), "is outside the dataset"),
    "a rate of zero": (info(fps=0), "'fps' is 0"),
    "a rate below zero": (info(fps=-30), "'fps' is -30"),
    "a rate that is no number": (info(fps=float("nan")), "'fps' is nan"),
    "an endless rate": (info(fps=float("inf")), "'fps' is inf"),
    "a rate of next to nothing": (info(fps=1e-300), "'fps' is 1e-300"),
    "a rate that is a truth": (info(fps=True), "'fps' is True"),
    "a rate of a million digits": (info(fps="9" * 1_000_000), "'fps' is '999"),
    "a shape beyond memory": (feature("observation.state", shape=[2**40, 2**40]), "the product of the shape"),
    "a shape of many dimensions": (feature("observation.state", shape=[1] * 100_000), "the number of dimensions"),
    "a shape below zero": (feature("observation.state", shape=[-1]), "the shape of feature"),
    "more features than columns": (info(features={f"f{i}": {} for i in range(70_000)}), "the number of features"),
    "JSON that is nested deeply": (file(INFO, lambda: DEEP), "is not JSON"),
    "names that are nested deeply": (
        file(INFO, lambda: '{"fps": 30, "features": {"x": {"names": ' + DEEP + "}}}"),
        "is not JSON",
    ),
    "a type that is nested": (
        feature("observation.state", dtype=[[[["float32"]]]]),
        "'dtype' is .*, which is not text",
    ),
    "JSON of 4 GiB": (sparse(INFO, 2**32), "the size of the file is"),
    "JSON of many lists": (file(INFO, lambda: '{"x": [' + "[]," * (8 * 2**20) + "0]}"), "the size of the file is"),
    "a description outside": (linked(INFO), "a link to a place outside the dataset"),
    "all of meta outside": (linked("meta"), "a link to a place outside the dataset"),
    "all data outside": (linked("data"), "a link to a place outside the dataset"),
    "all videos outside": (linked("videos"), "a link to a place outside the dataset"),
    "statistics that are a pipe": (piped("meta/stats.json"), "is not a file"),
    "statistics of the machine": (
        lambda root, beside: (
            _write(beside / "stats.json", "{}"),
            (root / "meta/stats.json").symlink_to(beside / "stats.json"),
        ),
        "a link to a place outside the dataset",
    ),
}
V2: dict[str, tuple[Forge, str]] = {
    "a name of a camera behind the folder": (
        info(features={"../../beside/x": {"dtype": "video", "shape": [1]}}, video_path="videos/{video_key}"),
        "is outside the dataset",
    ),
    "an episode twice": (lines(_line(0), _line(1), _line(0)), "episode 0 twice"),
    "an episode below zero": (lines(_line(-1)), "'episode_index' is -1"),
    "an episode that is a fraction": (lines(_line(0.5)), "'episode_index' is 0.5"),
    "an episode that has no data": (lines(_line(77)), "no such file"),
    "a length beyond 64 bits": (lines(_line(0, 10**30)), "'length' is 1000"),
    "a length of a thousand years": (lines(_line(0, 2**52)), "the length of episode 0"),
    "other lengths than the data": (lines(_line(0, LENGTH + 1)), "has 6 frames, but 7 in meta"),
    "a task that is nested": (lines(_line(0, tasks=[[["pick"]]])), "'tasks' is .*, which is not text"),
    "a line without end": (lines("[" * (3 * 2**20)), "the length of the line"),
    "two million episodes": (lines(*[_line(i) for i in range(1_000_001)]), "the number of lines"),
    "no text at all": (file("meta/episodes.jsonl", lambda: b"\xff\xfe\x00"), "cannot be read"),
    "chunks of no episode": (info(chunks_size=0), "'chunks_size' is -1"),
    "tasks that are a pipe": (piped("meta/tasks.jsonl"), "is not a file"),
    "data that are a pipe": (piped("data/000/000000.parquet"), "is not a file"),
    "data of the machine": (linked("data/000/000001.parquet"), "a link to a place outside the dataset"),
    "a video that is a pipe": (piped(f"videos/{CAMERA}/000/000000.mp4"), "is not a file"),
    "a video of the machine": (linked(f"videos/{CAMERA}/000/000001.mp4"), "a link to a place outside the dataset"),
}
V3: dict[str, tuple[Forge, str]] = {
    "a list of files": (
        _outside_playlist("ffconcat version 1.0\n", "file '{}'\n"),
        "not an MP4",
    ),
    "a playlist": (
        _outside_playlist("#EXTM3U\n#EXT-X-TARGETDURATION:1\n", "#EXTINF:1,\nfile:{}\n"),
        "not an MP4",
    ),
    "an episode twice": (episodes(episode_index=[1, 1]), "episode 1 twice"),
    "an episode below zero": (episodes(episode_index=[0, -1]), "'episode_index' is -1"),
    "an episode in letters": (episodes(episode_index=["0", "1"]), "'episode_index' is '0'"),
    "an episode that has no data": (episodes(episode_index=[0, 77]), "has 0 frames, but 6 in meta"),
    "a file that is not there": (episodes(**{"data/file_index": [0, 2**52]}), "no such file"),
    "other lengths than the data": (episodes(length=[LENGTH, LENGTH - 1]), "has 6 frames, but 5 in meta"),
    "a beginning beyond the video": (
        episodes(video__from_timestamp=[0.0, 900.0], video__to_timestamp=[0.2, 901.0]),
        "the video has no picture in the time range of episode 1",
    ),
    "a beginning that is no number": (episodes(video__from_timestamp=[float("nan"), 0.2]), "is nan, which is not"),
    "a beginning below zero": (episodes(video__from_timestamp=[-1e300, 0.2]), "is -1e.300, which is not a number"),
    "an endless end": (episodes(video__to_timestamp=[0.2, float("inf")]), "is inf, which is not"),
    "an end before its beginning": (episodes(video__to_timestamp=[0.2, 0.1]), "before it begins"),
    "a beginning in letters": (episodes(video__from_timestamp=["0", "now"]), "is '0', which is not a number"),
    "episodes of other bytes": (file("meta/episodes/000/000.parquet", lambda: b"PAR1" * 9), "the length of the footer"),
    "two hundred million tasks": (
        file("meta/tasks.parquet", lambda: _constant(20_000_000, task_index=0, task="pick")),
        "the number of rows",
    ),
    "a name of a camera behind the folder": (_outside_camera, "is outside the dataset"),
    "an episode of ten million tasks": (
        episodes(tasks=pa.array([["pick"] * 10_000_000, []], pa.list_(pa.string()))),
        "the size of 1,024 rows",
    ),
    "tasks that are a pipe": (piped("meta/tasks.parquet"), "is not a file"),
    "tasks of the machine": (linked("meta/tasks.parquet"), "a link to a place outside the dataset"),
    "episodes of the machine": (linked("meta/episodes"), "a link to a place outside the dataset"),
    "a frame's number in letters": (data(frame_index=pa.array(["0"] * 12)), "'frame_index' is a column of string"),
    "a frame's number that is a fraction": (
        data(frame_index=pa.array([0.5] * 12)),
        "'frame_index' is a column of double",
    ),
    "a frame's number beyond 64 bits": (
        data(frame_index=pa.array([2**64 - 1] * 12, pa.uint64())),
        "'frame_index' is a column of uint64",
    ),
    "a frame's episode in letters": (data(episode_index=pa.array(["0"] * 12)), "'episode_index' is a column of string"),
    "a frame without an episode": (data(episode_index=pa.nulls(12, pa.int64())), "has 0 frames, but 6 in meta"),
    "a frame's task in a struct": (data(task_index=pa.array([{"a": 1}] * 12)), "'task_index' is a column of struct"),
    "a frame's time in a list": (data(timestamp=pa.array([[0.0]] * 12)), "'timestamp' is a column of list"),
    "a frame's time that is no number": (data(timestamp=pa.array([float("nan")] * 12)), "a timestamp is not a number"),
    "a frame without a time": (data(timestamp=pa.nulls(12, pa.float32())), "'timestamp' is null"),
    "two columns of one name": (
        file("data/000/000.parquet", lambda: pa.table([pa.array([0] * 12)] * 2, names=["frame_index"] * 2)),
        "two columns have the same name",
    ),
    "no frames' numbers": (file("data/000/000.parquet", lambda: pa.table({"x": [0.5] * 12})), "neither 'frame_index'"),
    "images of the machine": (image("shot.png", link=True), "a link to a place outside the dataset"),
    "images that are pipes": (image("shot.png", pipe=True), "is not a file"),
}
FORGED = [
    *((version, *one) for version in ("v2.1", "v3.0") for one in BOTH.items()),
    *(("v2.1", *one) for one in V2.items()),
    *(("v3.0", *one) for one in V3.items()),
]
"""The version, what is wrong, and what forges it with the error that says so."""
