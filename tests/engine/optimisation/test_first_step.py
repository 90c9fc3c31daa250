"""A recording of several tasks, each of which lays out what it makes: the rows are those of one step."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentDescriptor, Minter, RunIds
from chunkmill.engine.execution import RunOptions, Staging, Task, Work
from chunkmill.engine.optimisation import OptimizationProfile, collect_parts
from chunkmill.engine.optimisation import collect as collecting
from chunkmill.engine.rrd import StoreEntry, VerifiedPayload
from hypothesis import given, settings
from hypothesis import strategies as st

FLOATS = pa.list_(pa.float64())
STORE = StoreEntry("recording", "a", "r")
Rows = list[tuple[str, int, str]]


def made(entity: str, start: int, rows: int, width: int = 1, component: str = "v") -> Chunk:
    values = pa.array([[float(start + i)] * width for i in range(rows)], FLOATS)
    times = pa.array([start + i for i in range(rows)])
    return Chunk.build(entity, {"frame": times} if start >= 0 else {}, [(ComponentDescriptor(component), values)])


@dataclass(frozen=True)
class Made(Work):
    """Tasks that make chunks as ``seed`` says, among chunks that others made, some of them twice."""

    seed: int
    count: int
    others: tuple[Chunk, ...] = ()
    ids: RunIds = field(default_factory=RunIds.begin)

    @property
    def tasks(self) -> Sequence[Task]:
        return [Task(i, f"task {i}", 1) for i in range(self.count)]

    def run(self, index: int) -> Iterator[Chunk]:
        rng = random.Random(self.seed * 1000 + index)
        time = index * 1000
        for _ in range(rng.randrange(1, 30)):
            rows = rng.choice([1, 5, 40])
            component = "v" if rng.random() < 0.9 else "w"
            yield made(f"/e{rng.randrange(2)}", time, rows, rng.choice([1, 1, 20]), component)
            time += rows if rng.random() < 0.9 else -3
            if rng.random() < 0.1:
                yield made("/static", -1, 1)
            if self.others and rng.random() < 0.3:
                yield rng.choice(self.others)

    def minter(self, index: int) -> Minter:
        return self.ids.task(index)

    @property
    def later(self) -> RunIds:
        return self.ids.after(self.count)

    def source_paths(self) -> set[str]:
        return set()


def rows_of(chunks: Sequence[Chunk]) -> Rows:
    rows: Rows = []
    for chunk in chunks:
        data = chunk.data
        times = [str(t.ticks.tolist()) for t in data.timelines]
        for c in data.components:
            for i, value in enumerate(c.values.to_pylist()):
                if value is not None:
                    rows.append((data.entity_path, i if not times else data.timelines[0].ticks[i], str(value)))
    return sorted(rows)


def collected(work: Work, profile: OptimizationProfile) -> list[Chunk]:
    with Staging.in_scratch() as staging:
        parts = collect_parts(work, profile, STORE, staging, RunOptions("inline"))
        chunks = [Chunk.lazy(p.entry.header, VerifiedPayload.of(staging.folder.place(p.part), p.entry)) for p in parts]
        for chunk in chunks:
            assert chunk.data.ids_ascend
        return chunks


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), tasks=st.integers(2, 5))
def test_rows_are_those_of_one_step(seed: int, tasks: int) -> None:
    rng = random.Random(seed)
    profile = rng.choice(
        [
            OptimizationProfile.OBJECT_STORE,
            OptimizationProfile(max_bytes=3000, max_rows=100, max_rows_if_unsorted=50, extra_passes=2),
            OptimizationProfile(max_bytes=0, max_rows=0, max_rows_if_unsorted=0),
        ]
    )
    others = tuple(made("/e0", 5000 + 10 * i, 3) for i in range(rng.choice([0, 3])))
    work = Made(seed, tasks, others)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collecting, "is_small", lambda _: True)
        once = collected(work, profile)
        patch.setattr(collecting, "is_small", lambda _: False)
        stepwise = collected(work, profile)
    assert rows_of(stepwise) == rows_of(once)


def test_the_last_chunks_of_tasks_are_joined_and_full_ones_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "is_small", lambda _: False)
    decoded: list[bytes] = []
    load = VerifiedPayload.load_data
    monkeypatch.setattr(VerifiedPayload, "load_data", lambda self: decoded.append(self.chunk_id) or load(self))

    class Even(Made):
        def run(self, index: int) -> Iterator[Chunk]:
            for i in range(25):
                yield made("/e", index * 1000 + 10 * i, 10)

    with Staging.in_scratch() as staging:
        profile = OptimizationProfile(max_bytes=1 << 20, max_rows=100, max_rows_if_unsorted=100)
        parts = collect_parts(Even(0, 4), profile, STORE, staging, RunOptions("inline"))
    assert sorted(p.entry.header.num_rows for p in parts) == [50] * 4 + [100] * 8
    assert not decoded


def test_rests_of_tasks_come_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "is_small", lambda _: False)

    class Few(Made):
        def run(self, index: int) -> Iterator[Chunk]:
            yield made("/e", index * 1000, 10)

    assert [c.num_rows for c in collected(Few(0, 8), OptimizationProfile.OBJECT_STORE)] == [80]
