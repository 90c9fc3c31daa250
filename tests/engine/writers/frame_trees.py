"""Recordings with trees of coordinate frames, and an oracle that walks them by matrices, one time after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from chunkmill import Chunk, LazyChunkStream
from chunkmill.engine.chunk import ComponentDescriptor

Array = npt.NDArray[Any]
MS = 1_000_000
WIDTHS = {"point": 3, "vector": 3, "rotation": 4, "pose": 7}


@dataclass(frozen=True)
class Edge:
    """The transforms of a child in its parent; static ones have one row and no times."""

    child: str
    parent: str
    times: Array | None
    rows: Array
    """x, y, z, then the quaternion x, y, z, w."""


@dataclass(frozen=True)
class Case:
    """A recording of one feature at ``times`` and the transforms, and the specification of its export."""

    edges: tuple[Edge, ...]
    times: Array
    values: Array
    spec: Mapping[str, Any]

    @property
    def stream(self) -> LazyChunkStream:
        """The recording: the feature at /pose, transforms at /tf and /tf_static, in several chunks of mixed frames."""
        chunks = [_numbers("/pose", self.times, self.values)]
        static = [edge for edge in self.edges if edge.times is None]
        moving = [edge for edge in self.edges if edge.times is not None]
        if static:
            chunks.append(transforms("/tf_static", None, [(e, e.rows[0]) for e in static]))
        rows = [(time, edge, row) for edge in moving for time, row in zip(edge.times, edge.rows, strict=True)]
        rows.sort(key=lambda row: row[0])
        for part in np.array_split(np.arange(len(rows)), 3):
            some = [rows[at] for at in part]
            if some:
                chunks.append(transforms("/tf", [time for time, *_ in some], [(e, r) for _, e, r in some]))
        return LazyChunkStream.from_iter(chunks)


def _numbers(entity: str, times: Array, values: Array) -> Chunk:
    column = pa.array(np.asarray(values, float).tolist(), pa.list_(pa.float64()))
    ticks = pa.array(np.asarray(times, np.int64)).cast(pa.timestamp("ns"))
    return Chunk.build(entity, {"time": ticks}, [(ComponentDescriptor("Scalars:scalars"), column)])


def transforms(entity: str, times: Any, rows: list[tuple[Edge, Array]], **more: pa.Array) -> Chunk:
    """A chunk of transforms, as readers make it of ``tf2_msgs/TFMessage``; static without times."""
    lists = {
        "child_frame": pa.array([[edge.child] for edge, _ in rows], pa.list_(pa.string())),
        "parent_frame": pa.array([[edge.parent] for edge, _ in rows], pa.list_(pa.string())),
        "translation": pa.array([[row[:3].tolist()] for _, row in rows], pa.list_(pa.list_(pa.float64(), 3))),
        "quaternion": pa.array([[row[3:].tolist()] for _, row in rows], pa.list_(pa.list_(pa.float64(), 4))),
        **more,
    }
    columns = [(ComponentDescriptor(f"Transform3D:{name}"), column) for name, column in lists.items()]
    ticks = {} if times is None else {"time": pa.array(np.asarray(times, np.int64)).cast(pa.timestamp("ns"))}
    return Chunk.build(entity, ticks, columns)


def generated(seed: int) -> Case:
    """Make a tree of frames, some static, and a feature that is moved from one to another."""
    random = np.random.default_rng(seed)
    count, seconds = int(random.integers(2, 9)), 1.2
    start = int(random.integers(-(10**18), 10**18))
    names = [f"frame_{number}" for number in random.permutation(count)]
    edges = []
    for number in range(1, count):
        if random.random() < 0.4:
            times, size = None, 1
        else:
            begin, rate = start + int(random.integers(-300, 150)) * MS, float(random.choice([10, 33, 100]))
            times = begin + np.rint(np.arange(int(seconds * rate)) * 1e9 / rate).astype(np.int64)
            times += random.integers(-2 * MS, 2 * MS, len(times))
            times = times[random.random(len(times)) > random.choice([0, 0.2])]
            times = times if len(times) else np.array([begin])
            size = len(times)
        edges.append(Edge(names[number], names[random.integers(number)], times, _places(random, size)))
    kind = str(random.choice(list(WIDTHS)))
    times = start + np.rint(np.arange(40) * 1e9 / 40 + random.integers(-2 * MS, 2 * MS, 40)).astype(np.int64)
    poses = _places(random, 40)
    values = {"rotation": poses[:, 3:], "pose": poses}.get(kind, poses[:, :3])
    source, target = random.choice(names, 2)
    feature: dict[str, Any] = {
        "entity": "/pose",
        "dtype": "float64",
        "rule": str(random.choice(["latest", "nearest", "slerp" if kind in ("rotation", "pose") else "linear"])),
        "offset": float(random.choice([0, -0.03, 0.05])),
        "outside": str(random.choice(["hold", "hold", "drop_frame", "drop_episode", "error"])),
        "transform": {"source_frame": str(source), "target_frame": str(target), "kind": kind},
    }
    if random.random() < 0.6:
        feature["tolerance"] = float(random.choice([0.01, 0.05, 0.2, 0.6]))
    return Case(tuple(edges), times, values, {"fps": 20, "features": {"pose": feature}})


def _places(random: np.random.Generator, count: int) -> Array:
    turns = random.normal(size=(count, 4))
    return np.concatenate([random.normal(size=(count, 3)), turns / np.linalg.norm(turns, axis=1)[:, None]], axis=1)


# --------------------------------------------------------------------------------------------------------- oracle


def matrix(row: Array) -> Array:
    """The 4 x 4 matrix of a place (x, y, z, and a quaternion x, y, z, w)."""
    x, y, z, w = row[3:] / np.linalg.norm(row[3:])
    skew = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    whole = np.eye(4)
    whole[:3, :3] = np.eye(3) + 2 * w * skew + 2 * skew @ skew  # Rodrigues' formula
    whole[:3, 3] = row[:3]
    return whole


def moved(case: Case, at: int) -> tuple[Array | None, bool, int]:
    """The matrix from the source to the target frame at a sample, whether it is held, and its staleness.

    None where a transform is not known.
    """
    feature = case.spec["features"]["pose"]
    time = int(case.times[at]) + round(feature["offset"] * 1e9)
    above = [_above(case, feature["transform"][key]) for key in ("source_frame", "target_frame")]
    sides, stalest, is_held, is_known = [], 0, False, True
    for way, other in (above, above[::-1]):
        whole = np.eye(4)
        for name in (name for name in way if name not in other):
            edge = next(e for e in case.edges if e.child == name)
            place, held, staleness = _place(edge, time, feature)
            stalest, is_held = max(stalest, staleness), is_held or held
            is_known = is_known and place is not None
            if place is not None:
                whole = matrix(place) @ whole
        sides.append(whole)
    return (np.linalg.inv(sides[1]) @ sides[0] if is_known else None), is_held, stalest


def _above(case: Case, name: str) -> list[str]:
    way = [name]
    while (edge := next((e for e in case.edges if e.child == way[-1]), None)) is not None:
        way.append(edge.parent)
    return way


def _place(edge: Edge, time: int, feature: Mapping[str, Any]) -> tuple[Array | None, bool, int]:
    """The transform of an edge at a time."""
    if edge.times is None:
        return edge.rows[0], False, 0
    samples = dict(zip(edge.times.tolist(), edge.rows, strict=True))
    before = max((t for t in samples if t <= time), default=None)
    after = min((t for t in samples if t >= time), default=None)
    near = min((t for t in (before, after) if t is not None), key=lambda t: abs(t - time))
    is_beyond = before is None or after is None
    staleness = abs(near - time)
    most = round(feature["tolerance"] * 1e9) if "tolerance" in feature else (0 if is_beyond else np.inf)
    if staleness > most:
        is_held = feature["outside"] == "hold"
        return (samples[near] if is_held else None), is_held, staleness
    if before is None or after is None or before == after:
        return samples[near], False, staleness
    share = (time - before) / (after - before)
    left, right = samples[before], samples[after]
    return np.array([*(left[:3] + share * (right[:3] - left[:3])), *turn(left[3:], right[3:], share)]), False, staleness


def turn(left: Array, right: Array, share: float) -> Array:
    """The rotation between two, by the angle between them in four dimensions."""
    right = -right if left @ right < 0 else right
    angle = np.arctan2(np.linalg.norm(right - (left @ right) * left), left @ right)
    if angle < 1e-9:
        return np.array(left)
    return np.array((np.sin((1 - share) * angle) * left + np.sin(share * angle) * right) / np.sin(angle))


@dataclass(frozen=True)
class Expected:
    """An episode of the whole recording: its counts, the values of its frames as matrices, and why there is none."""

    counts: Mapping[str, int]
    values: list[Array]
    is_error: bool
    is_dropped: bool


def expected(case: Case) -> Expected:
    """Return what the export makes of a recording."""
    feature, fps = case.spec["features"]["pose"], case.spec["fps"]
    kind, outside = feature["transform"]["kind"], feature["outside"]
    stamps = case.times + round(feature["offset"] * 1e9)
    transformed = [moved(case, at) for at in range(len(stamps))]
    values = [None if m[0] is None else _value(kind, m[0], v) for m, v in zip(transformed, case.values, strict=True)]
    start, end = int(stamps.min()), int(stamps.max()) + 10**9 // (100 * fps)
    frames = [start + (2 * k * 10**9 + fps) // (2 * fps) for k in range((end - start) * fps // 10**9 + 1)]
    counts = dict.fromkeys(("exact", "held", "interpolated", "missing", "staleness"), 0)
    made = []
    for frame in frames:
        outcome, used, value, staleness = _frame(stamps, values, frame, feature)
        if any(values[at] is None for at in used):
            outcome = "missing"
        elif outcome != "missing" and any(transformed[at][1] for at in used):
            outcome = "held"
        counts[outcome] += 1
        if outcome != "missing":
            assert value is not None
            made.append(value)
            counts["staleness"] = max(counts["staleness"], staleness, *(transformed[at][2] for at in used))
    is_missing = counts["missing"] > 0
    is_dropped = not made or (is_missing and outside == "drop_episode")
    return Expected(counts, made, is_missing and outside == "error", is_dropped)


def _frame(
    stamps: Array, values: list[Array | None], frame: int, feature: Mapping[str, Any]
) -> tuple[str, list[int], Array | None, int]:
    """The outcome of a frame, the samples that it takes, its value, and its staleness."""
    order = {int(time): at for at, time in enumerate(stamps)}
    before = max((t for t in order if t <= frame), default=None)
    after = None if feature["rule"] == "latest" else min((t for t in order if t >= frame), default=None)
    near = min((t for t in (before, after) if t is not None), key=lambda t: abs(t - frame))
    staleness = abs(near - frame)
    is_far = "tolerance" in feature and staleness > round(feature["tolerance"] * 1e9)
    if is_far and feature["outside"] != "hold":
        return "missing", [], None, staleness
    is_between = feature["rule"] in ("linear", "slerp") and before is not None and after is not None
    if is_far or not is_between or before == after or before is None or after is None:
        return "held" if is_far else "exact", [order[near]], values[order[near]], staleness
    left, right = values[order[before]], values[order[after]]
    if left is None or right is None:
        return "missing", [order[before], order[after]], None, staleness
    share = (frame - before) / (after - before)
    whole = left + share * (right - left)
    if feature["rule"] == "slerp":
        whole[:3, :3] = left[:3, :3] @ _power(left[:3, :3].T @ right[:3, :3], share)
    return "interpolated", [order[before], order[after]], whole, staleness


def _value(kind: str, moving: Array, value: Array) -> Array:
    """A value in the target frame, as a matrix of which the last column is the point or vector."""
    whole = as_matrix(kind, value)
    if kind in ("vector", "rotation"):
        moving = np.block([[moving[:3, :3], np.zeros((3, 1))], [np.zeros((1, 3)), 1]])
    if kind in ("point", "vector"):
        whole[:3, 3] = moving[:3, :3] @ whole[:3, 3] + moving[:3, 3]
        return whole
    return np.array(moving @ whole)


def as_matrix(kind: str, value: Array) -> Array:
    """A value as a matrix: its rotation, and its point or vector."""
    rest = np.array([0.0, 0, 0, 1])
    return matrix({"rotation": np.array([0.0, 0, 0, *value]), "pose": value}.get(kind, np.array([*value, *rest])))


def _power(rotation: Array, share: float) -> Array:
    """A share of a rotation, by its angle and axis."""
    cosine = (np.trace(rotation) - 1) / 2
    skew = rotation - rotation.T
    sines = np.array([skew[2, 1], skew[0, 2], skew[1, 0]])
    length = np.linalg.norm(sines)
    angle = np.arctan2(length / 2, cosine) * share
    return matrix(np.array([0, 0, 0, *(np.sin(angle / 2) * sines / length), np.cos(angle / 2)]))[:3, :3]
