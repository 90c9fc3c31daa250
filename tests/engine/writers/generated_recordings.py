"""Recordings as robots make them, and what an export has to write of each, computed by numpy from all distances.

A recording has four entities at three rates, whose times have gaps, jitter, lost and doubled samples, and a clock that
steps back. The oracle shares no code with the writer: it compares each frame with each sample.
"""

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

RULES = {"by.latest": "latest", "by.nearest": "nearest", "by.line": "linear", "by.turn": "slerp"}
RATES = {"by.latest": 100.0, "by.nearest": 29.97, "by.line": 47.0, "by.turn": 100.0}
OUTSIDE = ("hold", "hold", "drop_frame", "drop_frame", "drop_episode", "error")
MS = 1_000_000


@dataclass(frozen=True)
class Case:
    """A recording and the specification of its export: by feature the times in the order recorded, and the values."""

    times: Mapping[str, Array]
    values: Mapping[str, Array]
    spec: Mapping[str, Any]
    ranges: tuple[tuple[float, float], ...]

    @property
    def stream(self) -> LazyChunkStream:
        """The recording, an entity in several chunks."""
        chunks = []
        for name, times in self.times.items():
            for part in np.array_split(np.arange(len(times)), 3):
                ticks = pa.array(times[part]).cast(pa.timestamp("ns"))
                rows = pa.array(self.values[name][part].tolist(), pa.list_(pa.float64()))
                column = (ComponentDescriptor("Scalars:scalars"), rows)
                chunks.append(Chunk.build(f"/{name.replace('.', '/')}", {"time": ticks}, [column]))
        return LazyChunkStream.from_iter(chunks)


def times_of(random: np.random.Generator, start: int, seconds: float, rate: float) -> Array:
    """Times of samples at about a rate, with what goes wrong in recordings."""
    times = start + np.rint(np.arange(int(seconds * rate)) * 1e9 / rate).astype(np.int64)
    times += random.integers(-3 * MS, 3 * MS, len(times)) * random.integers(0, 2)
    keep = random.random(len(times)) > random.choice([0, 0.001, 0.1])
    if random.random() < 0.5:
        gap = start + int(random.uniform(0, seconds) * 1e9)
        keep &= (times < gap) | (times > gap + int(random.uniform(0, 0.6) * 1e9))
    keep[[0, -1]] = True
    times = times[keep]
    doubled = random.random(len(times)) < random.choice([0, 0.05])
    times = np.repeat(times, 1 + doubled)
    if random.random() < 0.3:
        back = random.integers(1, len(times))
        times[back:] -= int(random.uniform(0, 0.5) * 1e9)
    return times


def generated(seed: int) -> Case:
    """Make a recording and its export."""
    random = np.random.default_rng(seed)
    start, seconds = int(random.integers(-(10**18), 10**18)), float(random.uniform(0.8, 2.5))
    fps = int(random.choice([10, 24, 30]))
    times, values, features = {}, {}, {}
    for name, rule in RULES.items():
        begin = start + int(random.integers(-100, 100)) * MS
        times[name] = times_of(random, begin, seconds, RATES[name])
        values[name] = random.normal(size=(len(times[name]), 4))
        feature = {
            "entity": f"/{name.replace('.', '/')}",
            "dtype": "float64",
            "rule": rule,
            "offset": float(random.choice([0, -0.03, 0.011])),
        }
        if random.random() < 0.7:
            feature["tolerance"] = float(random.choice([0, 0.004, 0.02, 0.15]))
            feature["outside"] = str(
                random.choice(["hold", "hold", "drop_frame", "drop_frame", "drop_episode", "error"])
            )
        features[name] = feature
    spec: dict[str, Any] = {"fps": fps, "features": features}
    ranges: tuple[tuple[float, float], ...] = ()
    if random.random() < 0.5:
        ranges = ((-0.2, 0.4), (0.1, 0.75), (0.5, 9.0))
        spec["episodes"] = {"by": "ranges", "ranges": [list(pair) for pair in ranges]}
    return Case(times, values, spec, ranges)


# --------------------------------------------------------------------------------------------------------- oracle


@dataclass(frozen=True)
class Expected:
    """An episode: its account, and the values of the frames that are written."""

    account: dict[str, Any]
    values: dict[str, Array]
    is_error: bool


def expected(case: Case) -> list[Expected]:
    """Return what the export makes of a recording."""
    spec, features = case.spec, case.spec["features"]
    stamps = {n: case.times[n] + round(f["offset"] * 1e9) for n, f in features.items()}
    first, last = max(int(t.min()) for t in stamps.values()), min(int(t.max()) for t in stamps.values())
    last += 10**9 // (100 * spec["fps"])  # a hundredth of a frame
    ends = [(first, last)]
    if case.ranges:
        ends = [(first + round(a * 1e9), first + round(b * 1e9)) for a, b in case.ranges]
    episodes = []
    for start, end in ends:
        # The frame k is at k / fps, rounded to the nanosecond.
        count = (end - start) * spec["fps"] // 10**9 + 2
        frames = np.array([start + (2 * k * 10**9 + spec["fps"]) // (2 * spec["fps"]) for k in range(count)], np.int64)
        frames = frames[frames <= end]
        within = (frames >= first) & (frames <= last)
        made = {n: _feature(stamps[n], case.values[n], frames, f) for n, f in features.items()}
        keep, is_error, is_dropped = within.copy(), False, False
        for name, feature in features.items():
            lacks = within & (made[name][1] == "missing")
            keep &= ~lacks
            is_error |= bool(lacks.any()) and feature.get("outside") == "error"
            is_dropped |= bool(lacks.any()) and feature.get("outside") == "drop_episode"
        is_written = bool(keep.any()) and not is_dropped
        among = keep if is_written else np.zeros_like(keep)
        accounts = {}
        for name, (_, outcome, staleness) in made.items():
            counts = {o: int(np.sum(among & (outcome == o))) for o in ("exact", "held", "interpolated")}
            stalest = int(max(staleness[among], default=0))
            accounts[name] = {**counts, "missing": int(np.sum(outcome == "missing")), "staleness": stalest}
        written = int(among.sum())
        account = {
            "start": start,
            "end": end,
            "wanted": len(frames),
            "written": written,
            "dropped": len(frames) - written,
            "features": accounts,
        }
        episodes.append(Expected(account, {n: made[n][0][among] for n in features}, is_error))
    return episodes


def _feature(stamps: Array, values: Array, frames: Array, feature: Mapping[str, Any]) -> tuple[Array, Array, Array]:
    """Return values, outcomes and staleness of a feature at each frame."""
    rows = np.full((len(frames), values.shape[1]), np.nan)
    outcome = np.full(len(frames), "missing", dtype="<U12")
    staleness = np.zeros(len(frames), np.int64)
    distances = stamps[None, :] - frames[:, None]
    most = round(feature["tolerance"] * 1e9) if "tolerance" in feature else np.inf
    for at, distance in enumerate(distances):
        before = _last_of(distance, distance[distance <= 0].max(initial=np.iinfo(np.int64).min))
        after = _last_of(distance, distance[distance >= 0].min(initial=np.iinfo(np.int64).max))
        sides = [before] if feature["rule"] == "latest" else [before, after]
        sides = [side for side in sides if side is not None]
        if not sides:
            continue
        near = sides[int(np.argmin([abs(distance[side]) for side in sides]))]
        staleness[at] = abs(distance[near])
        is_far = staleness[at] > most
        if is_far and feature.get("outside", "hold") != "hold":
            continue
        rows[at], outcome[at] = values[near], "held" if is_far else "exact"
        is_between = before is not None and after is not None and distance[before] < 0 < distance[after]
        if feature["rule"] in ("linear", "slerp") and is_between and not is_far:
            share = -distance[before] / (distance[after] - distance[before])
            between = _turn if feature["rule"] == "slerp" else _line
            rows[at], outcome[at] = between(values[before], values[after], share), "interpolated"
    return rows, outcome, staleness


def _last_of(distance: Array, wanted: np.int64) -> int | None:
    places = np.flatnonzero(distance == wanted)
    return int(places[-1]) if len(places) else None


def _line(left: Array, right: Array, share: float) -> Array:
    return np.array(left + share * (right - left))


def _turn(left: Array, right: Array, share: float) -> Array:
    """Return left · (left⁻¹ · right)ˢ, by the angle and axis of the turn from one to the other."""
    left, right = left / np.linalg.norm(left), right / np.linalg.norm(right)
    turn = _times(left * [-1, -1, -1, 1], right)
    if turn[3] < 0:
        turn = -turn
    length = np.linalg.norm(turn[:3])
    half = np.arctan2(length, turn[3]) * share
    axis = turn[:3] / length if length > 0 else np.zeros(3)
    return _times(left, np.array([*(np.sin(half) * axis), np.cos(half)]))


def _times(a: Array, b: Array) -> Array:
    """Return the product of two quaternions (x, y, z, w)."""
    vector = a[3] * b[:3] + b[3] * a[:3] + np.cross(a[:3], b[:3])
    return np.array([*vector, a[3] * b[3] - a[:3] @ b[:3]])
