"""Features of several columns, the columns that are chosen where none is named, and the draft that proposes both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill import Chunk, LazyChunkStream, McapReader, ReadError, UsageError
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.writers import ExportSpec, draft_spec, write_lerobot
from generated_recordings import generated

JOINTS = [f"joint_{number}" for number in (1, 2, 3, 4, 5, 10)]


def numbers(entity: str, seconds: Any, values: Any, clock: str = "time", name: str = "Scalars:scalars") -> Chunk:
    """A chunk of numbers, a list for each time."""
    ticks = pa.array(np.rint(np.asarray(seconds) * 1e9).astype(np.int64)).cast(pa.timestamp("ns"))
    rows = pa.array(np.asarray(values, float).tolist(), pa.list_(pa.float64()))
    return Chunk.build(entity, {clock: ticks}, [(ComponentDescriptor(name), rows)])


def arm(fields: tuple[str, ...] = ("position",)) -> LazyChunkStream:
    """Six joints, whose values are ten times their number and the time, each at times of its own; and their names."""
    chunks = []
    for number, joint in enumerate(JOINTS):
        seconds = np.arange(0, 2.001, 0.01 * (number + 1))
        for field in fields:
            chunks.append(numbers(f"/arm/{joint}/{field}", seconds, (10 * number + seconds)[:, None]))
            names = (ComponentDescriptor("SeriesLines:names"), pa.array([[joint]], pa.list_(pa.string())))
            chunks.append(Chunk.build(f"/arm/{joint}/{field}", {}, [names]))
    return LazyChunkStream.from_iter(reversed(chunks))


def export(where: Path, feature: Any, stream: LazyChunkStream, **more: Any) -> list[Any]:
    """The values of one feature."""
    spec = {"fps": 10, "features": {"observation.state": feature}, **more}
    write_lerobot({"a": stream}, where, spec, executor="inline")
    return list(pq.read_table(where / "data/chunk-000/file-000.parquet")["observation.state"].to_pylist())


def test_joints_become_one_state(tmp_path: Path) -> None:
    columns = [f"/arm/{joint}/position" for joint in JOINTS]
    rows = export(tmp_path / "set", {"columns": columns, "rule": "linear", "names": JOINTS}, arm())
    times = np.arange(len(rows))[:, None] / 10
    assert len(rows) == 20  # up to the first end
    assert np.allclose(rows, 10 * np.arange(6) + times, atol=1e-5)
    feature = json.loads((tmp_path / "set/meta/info.json").read_text())["features"]["observation.state"]
    assert (feature["shape"], feature["names"]) == ([6], JOINTS)
    stats = json.loads((tmp_path / "set/meta/stats.json").read_text())["observation.state"]
    assert len(stats["mean"]) == 6


def test_each_column_has_its_own_clock_and_rule(tmp_path: Path) -> None:
    place = numbers("/place", np.arange(21) / 10, np.stack([np.arange(21.0)] * 3, axis=1))
    late = numbers("/turn", np.arange(21) / 10 + 100, [[0, 0, np.sin(a), np.cos(a)] for a in np.arange(21) / 20], "log")
    columns = [
        {"entity": "/place", "offset": 0.05},
        {"entity": "/turn", "timeline": "log", "offset": -100, "rule": "slerp"},
    ]
    spec = {"columns": columns, "rule": "linear", "timeline": "time", "tolerance": 0.2, "dtype": "float64"}
    rows = np.array(export(tmp_path / "set", spec, LazyChunkStream.from_iter([place, late])))
    assert rows.shape == (20, 7)
    half = (np.arange(20) + 0.5) / 20  # the first frame is at 0.05 s
    assert np.allclose(rows[:, :3], np.arange(20)[:, None])
    assert np.allclose(rows[:, 3:], np.stack([0 * half, 0 * half, np.sin(half), np.cos(half)], axis=1))
    (account,) = json.loads((tmp_path / "set/meta/chunkmill.json").read_text())["episodes"]
    state = account["features"]["observation.state"]
    assert (state["exact"], state["interpolated"], state["staleness"]) == (0, 20, 50_000_000)


def test_one_column_outside_of_its_tolerance_drops_the_frame(tmp_path: Path) -> None:
    whole, gap = np.arange(21) / 10, np.array([0, 1, 2, 3, 9, 10, 20]) / 10
    stream = LazyChunkStream.from_iter([numbers("/a", whole, whole[:, None]), numbers("/b", gap, gap[:, None])])
    columns = ["/a", {"entity": "/b", "tolerance": 0.11, "outside": "drop_frame"}]
    rows = export(tmp_path / "set", {"columns": columns}, stream)
    assert np.allclose([row[0] for row in rows], [0, 0.1, 0.2, 0.3, 0.4, 0.9, 1.0, 1.1, 2.0])
    held = export(tmp_path / "held", {"columns": ["/a", "/b"], "tolerance": 0.11}, stream)
    assert len(held) == 21
    (account,) = json.loads((tmp_path / "held/meta/chunkmill.json").read_text())["episodes"]
    assert account["features"]["observation.state"]["held"] == 12


def test_a_pose_of_two_components_in_another_frame(data: Path, tmp_path: Path) -> None:
    stream = LazyChunkStream.merge(McapReader(data / "demo.mcap").stream(), _still("base_link"))
    feature = {
        "entity": "/nissan/gps/duro/current_pose",
        "columns": [
            {"component": "InstancePoses3D:translations", "rule": "linear"},
            {"component": "InstancePoses3D:quaternions", "rule": "slerp"},
        ],
        "transform": {"source_frame": "map", "target_frame": "base_link"},
        "dtype": "float64",
    }
    moved = np.array(export(tmp_path / "set", feature, stream, timeline="message_log_time"))
    del feature["transform"]
    plain = np.array(export(tmp_path / "plain", feature, stream, timeline="message_log_time"))
    assert np.allclose(moved[:, :3], plain[:, :3] - [0, 0, 5])  # the frame is five metres above
    assert np.allclose(moved[:, 3:], plain[:, 3:])


def _still(child: str) -> LazyChunkStream:
    text, vectors = pa.list_(pa.string()), pa.list_(pa.list_(pa.float32(), 3))
    columns = {"child_frame": pa.array([[child]], text), "parent_frame": pa.array([["map"]], text),
               "translation": pa.array([[[0.0, 0.0, 5.0]]], vectors)}  # fmt: skip
    named = [(ComponentDescriptor(f"Transform3D:{name}"), column) for name, column in columns.items()]
    return LazyChunkStream.from_iter([Chunk.build("/tf_static", {}, named)])


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        ({"columns": []}, r"state\.columns: there is none"),
        ({"columns": [1]}, r"state\.columns\.0: 1 is not a mapping"),
        ({"columns": [{"rule": "linear"}]}, r"columns\.0\.entity: it is missing"),
        (
            {"columns": ["/a", {"entity": "/b", "rul": "linear"}]},
            r"columns\.1\.rul: there is no such key; did you",
        ),
        ({"columns": ["/a", "/b"], "dtype": "video"}, "a frame has a single video, from a single column"),
        ({"columns": ["/a", "/b"], "dtype": "int32", "rule": "linear"}, "linear interpolates values"),
        ({"columns": ["/a", "/b"], "shape": [2], "names": ["a"]}, "names: there are 1 names for 2 numbers"),
    ],
)
def test_columns_that_cannot_be(feature: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ExportSpec.of({"fps": 10, "features": {"observation.state": feature}})


def test_columns_of_another_width(tmp_path: Path) -> None:
    columns = [f"/arm/{joint}/position" for joint in JOINTS]
    with pytest.raises(ReadError, match="values have 6 numbers, not 7"):
        export(tmp_path / "set", {"columns": columns, "shape": [7]}, arm())
    with pytest.raises(UsageError, match=r"there is no data at /arm/joint_9"):
        export(tmp_path / "set", {"columns": [*columns, "/arm/joint_9"]}, arm())


# ---------------------------------------------------------------------------------------------------------- draft


def test_the_draft_joins_siblings_and_can_be_exported(tmp_path: Path) -> None:
    spec = draft_spec(arm(), fps=10)
    (state,) = spec["features"].values()
    assert list(spec["features"]) == ["observation.state"]
    assert state["columns"] == [f"/arm/{joint}/position" for joint in JOINTS]
    assert (state["shape"], state["names"], state["rule"]) == ([6], JOINTS, "linear")
    assert write_lerobot({"a": arm()}, tmp_path / "set", spec, executor="inline").frames == 20


def test_the_draft_joins_by_what_the_entities_have_in_common() -> None:
    pair = numbers("/pair", [0, 1], [[1, 2], [3, 4]])
    alone = [numbers(f"/{name}", [0, 1], [[1], [2]]) for name in ("speed", "angle", "base/x", "base/y")]
    stream = LazyChunkStream.merge(arm(("position", "velocity")), LazyChunkStream.from_iter([pair, *alone]))
    features = draft_spec(stream)["features"]
    joined = {name: len(feature["columns"]) for name, feature in features.items() if "columns" in feature}
    assert joined == {"observation.arm.position": 6, "observation.arm.velocity": 6, "observation.base": 2}
    assert {name for name, feature in features.items() if "entity" in feature} == {
        "observation.pair", "observation.speed", "observation.angle"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ([0, 0, 0.6, 0.8], "slerp"),
        ([5, 6, 7, 0, 0, 0.6, 0.8], "slerp"),
        ([0, 0, 0.6, 0.7], "linear"),
        ([1, 0], "linear"),
    ],
)
def test_the_draft_takes_slerp_for_rotations(row: list[float], rule: str) -> None:
    stream = LazyChunkStream.from_iter([numbers("/tool", [0, 1], [row, row])])
    assert draft_spec(stream)["features"]["observation.tool"]["rule"] == rule


def test_the_draft_of_the_demo_recording(data: Path, tmp_path: Path) -> None:
    stream = McapReader(data / "demo.mcap").stream
    spec = draft_spec(stream(), fps=10)
    rules = {name: (feature["rule"], feature["shape"]) for name, feature in spec["features"].items()}
    assert rules == {
        "observation.nissan.gps.duro.current_pose.quaternions": ("slerp", [4]),
        "observation.nissan.gps.duro.current_pose.translations": ("linear", [3]),
        "observation.nissan.gps.duro.imu": ("linear", [6]),
        "observation.nissan.gps.duro.imu.orientation": ("slerp", [4]),
        "observation.state": ("linear", [2]),
    }
    assert write_lerobot({"a": stream()}, tmp_path / "set", spec, executor="inline").frames > 150


# ------------------------------------------------------------------------------------------------ default component


@pytest.mark.parametrize("is_static", [True, False])
def test_descriptions_are_no_values(is_static: bool, tmp_path: Path) -> None:
    """Names of series, colours and frames stand beside the numbers, once or in each row."""
    seconds = np.arange(11) / 10
    chunk = numbers("/arm", seconds, seconds[:, None])
    beside = {
        "SeriesLines:names": pa.array([["joint"]] * 11, pa.list_(pa.string())),
        "SeriesLines:widths": pa.array([[2.0]] * 11, pa.list_(pa.float32())),
        "SeriesPoints:colors": pa.array([[7]] * 11, pa.list_(pa.uint32())),
        "CoordinateFrame:frame": pa.array([["base"]] * 11, pa.list_(pa.string())),
    }
    ticks = {} if is_static else {"time": pa.array(np.rint(seconds * 1e9).astype(np.int64)).cast(pa.timestamp("ns"))}
    rows = 1 if is_static else 11
    columns = [(ComponentDescriptor(name), column.slice(0, rows)) for name, column in beside.items()]
    stream = LazyChunkStream.from_iter([chunk, Chunk.build("/arm", ticks, columns)])
    assert list(draft_spec(stream)["features"]) == ["observation.arm"]
    assert np.allclose(export(tmp_path / "set", {"entity": "/arm"}, stream), seconds)


# ----------------------------------------------------------------------------------------------------- properties


def same_as_apart(seed: int, where: Path) -> str:
    """Export the entities of a generated recording as one feature, and each as its own; returns what became of it."""
    case = generated(seed)
    keys = ("entity", "rule", "offset", "tolerance", "outside")
    columns = [{key: f[key] for key in keys if key in f} for f in case.spec["features"].values()]
    joined = {**case.spec, "features": {"all": {"columns": columns, "dtype": "float64"}}}
    try:
        write_lerobot({"a": case.stream}, where / "apart", case.spec, executor="inline")
    except UsageError as error:
        with pytest.raises(UsageError, match="tolerance" if "tolerance" in str(error) else "no episode"):
            write_lerobot({"a": case.stream}, where / "joined", joined, executor="inline")
        return "error"
    write_lerobot({"a": case.stream}, where / "joined", joined, executor="inline")
    apart, whole = (pq.read_table(where / name / "data/chunk-000/file-000.parquet") for name in ("apart", "joined"))
    rows = np.concatenate([np.array(apart[name].to_pylist()) for name in case.spec["features"]], axis=1)
    assert np.array_equal(np.array(whole["all"].to_pylist()), rows)
    for key in ("timestamp", "frame_index", "episode_index"):
        assert apart[key].equals(whole[key])
    files = [where / name / "meta/chunkmill.json" for name in ("apart", "joined")]
    accounts = [json.loads(file.read_text())["episodes"] for file in files]
    for separate, joint in zip(*accounts, strict=True):
        assert (separate["written"], separate["dropped"]) == (joint["written"], joint["dropped"])
        features, both = separate["features"].values(), joint["features"]["all"]
        assert both["staleness"] == max(feature["staleness"] for feature in features)
        assert both["exact"] + both["interpolated"] + both["held"] == separate["written"]
        assert both["held"] >= max(feature["held"] for feature in features)
    return "written"


@pytest.mark.parametrize("seed", range(6))
def test_joined_columns_are_those_of_separate_features(seed: int, tmp_path: Path) -> None:
    same_as_apart(seed, tmp_path)


@pytest.mark.slow
def test_200_recordings(tmp_path: Path) -> None:
    folders = [tmp_path / str(seed) for seed in range(200)]
    for folder in folders:
        folder.mkdir()
    ends = [same_as_apart(seed, folder) for seed, folder in enumerate(folders)]
    assert ends.count("written") > 80


def test_spark_writes_the_same(spark: Any, data: Path, tmp_path: Path) -> None:
    spec = draft_spec(McapReader(data / "demo.mcap").stream(), fps=10)
    for executor in ("inline", "spark"):
        write_lerobot({"a": McapReader(data / "demo.mcap").stream()}, tmp_path / executor, spec, executor=executor)
    paths = [tmp_path / name / "data/chunk-000/file-000.parquet" for name in ("inline", "spark")]
    inline, spark_rows = map(pq.read_table, paths)
    assert inline.equals(spark_rows)
