"""Features moved to another coordinate frame by the transforms of their recordings, beside an oracle of matrices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill import Chunk, LazyChunkStream, ReadError, UsageError
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.writers import write_lerobot
from chunkmill.readers import BagReader
from frame_trees import Case, Edge, as_matrix, expected, generated, transforms

IDENTITY = np.array([0.0, 0, 0, 0, 0, 0, 1])
QUARTER = np.array([1.0, 0, 0, 0, 0, np.sqrt(0.5), np.sqrt(0.5)])
"""A metre along x, and a quarter turn about z."""


def check(seed: int, where: Path) -> str:
    """Export a recording and compare it; returns what became of it."""
    case = generated(seed)
    oracle = expected(case)
    if oracle.is_error or oracle.is_dropped:
        message = "no value within its tolerance" if oracle.is_error else "there is no episode to write"
        with pytest.raises(UsageError, match=message):
            write_lerobot({"a": case.stream}, where, case.spec, executor="inline")
        assert not where.exists()
        return "error" if oracle.is_error else "nothing"
    write_lerobot({"a": case.stream}, where, case.spec, executor="inline")
    (account,) = json.loads((where / "meta/chunkmill.json").read_text())["episodes"]
    assert account["features"]["pose"] == oracle.counts
    rows = pq.read_table(where / "data/chunk-000/file-000.parquet")["pose"].to_pylist()
    kind = case.spec["features"]["pose"]["transform"]["kind"]
    mine = [as_matrix(kind, np.array(row)) for row in rows]
    assert np.allclose(mine, oracle.values, rtol=0, atol=1e-6)
    return "held" if oracle.counts["held"] else "written"


@pytest.mark.parametrize("seed", range(12))
def test_values_and_accounts_are_those_of_the_oracle(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path / "set")


@pytest.mark.slow
def test_300_trees(tmp_path: Path) -> None:
    ends = [check(seed, tmp_path / str(seed)) for seed in range(300)]
    assert min(ends.count(end) for end in ("written", "held", "nothing", "error")) > 10


def recording(*edges: Edge) -> Case:
    """A point at the origin of ``tool``, at ten times of a second."""
    times = np.arange(10) * 100_000_000
    transform = {"source_frame": "tool", "target_frame": "base"}
    feature = {"entity": "/pose", "dtype": "float64", "transform": transform}
    return Case(edges, times, np.zeros((10, 3)), {"fps": 10, "features": {"pose": feature}})


def static(child: str, parent: str, row: Any = QUARTER) -> Edge:
    """A transform for all times."""
    return Edge(child, parent, None, np.array([row]))


def export(case: Case, where: Path, stream: LazyChunkStream | None = None, **more: Any) -> list[list[float]]:
    """The values of the feature, of which some keys are others."""
    feature = case.spec["features"]["pose"]
    transform = feature["transform"] | more.pop("transform", {})
    spec = case.spec | {"features": {"pose": feature | {"transform": transform} | more}}
    write_lerobot({"a": stream or case.stream}, where / "set", spec, executor="inline")
    return list(pq.read_table(where / "set/data/chunk-000/file-000.parquet")["pose"].to_pylist())


def test_a_chain_of_static_frames(tmp_path: Path) -> None:
    case = recording(static("/tool", "wrist"), static("wrist", "/base"))  # ROS 1 has slashes
    assert np.allclose(export(case, tmp_path), [[1, 1, 0]] * 10)


def test_vectors_turn_and_do_not_move(tmp_path: Path) -> None:
    case = recording(static("tool", "base"))
    case.values[:, 0] = 2
    assert np.allclose(export(case, tmp_path, transform={"kind": "vector"}), [[0, 2, 0]] * 10)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([], r"pose\.transform\.source_frame: there is no frame 'tool'[\s\S]*no transforms at /tf, /tf_static"),
        ([static("hand", "base")], r"source_frame: there is no frame 'tool'[\s\S]*are base, hand\."),
        ([static("tool", "hand")], r"target_frame: there is no frame 'base'[\s\S]*are hand, tool\."),
        (
            [static("tool", "hand"), static("base", "map")],
            r"transform: 'tool' and 'base' are not connected: tool -> hand, and base -> map[\s\S]*are base, hand, map,",
        ),
        ([static("tool", "base"), static("tool", "hand")], r"the frame 'tool' has the parents 'base', 'hand'"),
        (
            [static("tool", "a"), static("a", "b"), static("b", "a"), static("base", "map")],
            r"frames form a cycle: a -> b -> a",
        ),
    ],
)
def test_frames_that_give_no_way(edges: list[Edge], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        export(recording(*edges), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("row", [[np.nan, 0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0]])
def test_a_transform_that_is_none(row: list[float], tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="the transform of 'tool' in 'base' is invalid"):
        export(recording(static("tool", "base", row)), tmp_path)


def test_what_else_a_transform_has_is_not_ignored(tmp_path: Path) -> None:
    case = recording()
    scale = pa.array([[[2.0, 2.0, 2.0]]], pa.list_(pa.list_(pa.float32(), 3)))
    scaled = transforms("/tf_static", None, [(static("tool", "base"), QUARTER)], scale=scale)
    stream = LazyChunkStream.merge(case.stream, LazyChunkStream.from_iter([scaled]))
    with pytest.raises(UsageError, match="also has Transform3D:scale"):
        export(case, tmp_path, stream)


def test_transforms_on_another_clock(tmp_path: Path) -> None:
    case = recording(Edge("tool", "base", np.array([0]), np.array([QUARTER])))
    with pytest.raises(UsageError, match=r"transform\.timeline: there is no 'log'; /tf has time"):
        export(case, tmp_path, transform={"timeline": "log"})
    with pytest.raises(UsageError, match=r"Frames at /robot/tf are|no transforms at /robot/tf"):
        export(case, tmp_path, transform={"entities": ["/robot/tf"]})


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"transform": {"kind": "pose"}}, "values have 3 numbers, but a pose has 7"),
        ({"transform": {"kind": "place"}}, r"transform\.kind: 'place' is not one of point, vector, rotation, pose"),
        ({"transform": {"source": "x"}}, r"transform\.source: there is no such key; did you mean 'source_frame'"),
        ({"transform": {"entities": []}}, r"entities: \[\] is not a list of entities"),
        ({"dtype": "int32"}, "transform: it makes numbers, which int32 does not support"),
    ],
)
def test_a_specification_that_cannot_be(more: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        export(recording(static("tool", "base")), tmp_path, **more)


def test_rotations_take_no_line(tmp_path: Path) -> None:
    case = recording(static("tool", "base"))
    turns = Case(case.edges, case.times, np.tile(QUARTER[3:], (10, 1)), case.spec)
    with pytest.raises(UsageError, match=r"pose\.rule: rotations cannot be interpolated linearly"):
        export(turns, tmp_path, rule="linear")
    assert np.allclose(np.abs(export(turns, tmp_path, rule="slerp")), [[0, 0, 1, 0]] * 10)


def test_the_transforms_of_a_bag(data: Path, tmp_path: Path) -> None:
    """The place of turtle 2 in the world, which its transform says, is the origin of its own frame."""
    transform = {"source_frame": "world", "target_frame": "turtle2"}
    features = {"origin": {"entity": "/tf", "component": "Transform3D:translation", "transform": transform}}
    spec = {"fps": 60, "timeline": "ros2_timestamp", "features": features}
    stream = BagReader(data / "bag/rosbag__example-bz2.bag").stream()
    write_lerobot({"a": stream}, tmp_path / "set", spec, executor="inline")
    rows = np.array(pq.read_table(tmp_path / "set/data/chunk-000/file-000.parquet")["origin"].to_pylist())
    distances = np.linalg.norm(rows, axis=1)
    assert (distances < 1e-5).mean() > 0.2  # the others are of turtle 1
    assert distances.max() > 1


def test_the_numbers_of_a_struct(tmp_path: Path) -> None:
    """A pose of a message: its position, then its orientation."""
    case = recording(static("tool", "base"))
    place, turn = {"x": 0.0, "y": 2.0, "z": 0.0}, {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0}
    kind = pa.list_(pa.struct({"at": pa.struct(dict.fromkeys("xyz", pa.float64())), "turn": pa.struct(
        dict.fromkeys("xyzw", pa.float64()))}))  # fmt: skip
    ticks = pa.array(case.times).cast(pa.timestamp("ns"))
    values = pa.array([[{"at": place, "turn": turn}]] * 10, kind)
    pose = Chunk.build("/odometry", {"time": ticks}, [(ComponentDescriptor("Odometry:message"), values)])
    stream = LazyChunkStream.merge(case.stream, LazyChunkStream.from_iter([pose]))
    rows = export(case, tmp_path, stream, entity="/odometry", rule="slerp")
    assert np.allclose(rows, [[-1, 0, 0, *QUARTER[3:]]] * 10)


def test_lists_of_other_lengths(tmp_path: Path) -> None:
    """Rows of one number and of three are not rows of two."""
    case = recording(static("tool", "base"))
    lists = pa.array([[[1.0]], [[1.0, 2.0, 3.0]]] * 5, pa.list_(pa.list_(pa.float64())))
    ticks = pa.array(case.times).cast(pa.timestamp("ns"))
    uneven = Chunk.build("/uneven", {"time": ticks}, [(ComponentDescriptor("Uneven:lists"), lists)])
    stream = LazyChunkStream.merge(case.stream, LazyChunkStream.from_iter([uneven]))
    with pytest.raises(ReadError, match="values differ in length"):
        export(case, tmp_path, stream, entity="/uneven")


@pytest.mark.heavy
def test_very_many_frames(tmp_path: Path) -> None:
    """A row for each of many frames takes no longer than its length, and a chain has an end."""
    many = [(static(f"frame_{number}", "map"), QUARTER) for number in range(50_000)]
    case = recording()
    stream = LazyChunkStream.merge(case.stream, LazyChunkStream.from_iter([transforms("/tf_static", None, many)]))
    with pytest.raises(UsageError, match=r"there is no frame 'tool'[\s\S]*, 49981 more\."):
        export(case, tmp_path, stream)
    chain = [static("tool", "link_0"), *(static(f"link_{n}", f"link_{n + 1}") for n in range(1500))]
    with pytest.raises(UsageError, match="'tool' is below more than 1,000 frames"):
        export(recording(*chain, static("base", "map")), tmp_path)
