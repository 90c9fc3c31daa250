"""Small chunks that are taken in together are merged as they would be one by one."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentDescriptor
from chunkmill.engine.errors import ReadError
from chunkmill.engine.optimisation.insertion import ChunkInserter
from chunkmill.engine.optimisation.passes import converge
from chunkmill.engine.optimisation.profile import OptimizationProfile, Settings
from hypothesis import given, settings
from hypothesis import strategies as st

FLOATS, TEXTS = pa.list_(pa.float64()), pa.list_(pa.string())
LIVE = Settings.of(OptimizationProfile.LIVE)


def some(rng: random.Random) -> list[Chunk]:
    """Chunks of a few entities: in order, or with some that go back, lie in others, have nulls or more columns."""
    odd = rng.choice([0, 0, 0.02, 0.3])
    latest: dict[str, int] = defaultdict(int)
    chunks = []
    for _ in range(rng.randrange(1, 200)):
        entity = f"/e{rng.randrange(rng.choice([1, 3]))}"
        is_odd = rng.random() < odd
        start = rng.randrange(-9, latest[entity] + 9) if is_odd else latest[entity] + rng.choice([0, 1, 2])
        times = [start + i // 2 for i in range(rng.choice([1, 1, 3]))]
        latest[entity] = max(latest[entity], times[-1])
        values = [None if is_odd and rng.random() < 0.3 else [0.5] * rng.choice([0, 1, 4]) for _ in times]
        components: list[tuple[ComponentDescriptor, pa.Array]] = [(ComponentDescriptor("a"), pa.array(values, FLOATS))]
        if is_odd and rng.random() < 0.2:
            components.append((ComponentDescriptor("b"), pa.array([["x"]] * len(times), TEXTS)))
        lines = {"frame": pa.array(times)}
        if is_odd and rng.random() < 0.1:
            lines["time"] = pa.array(times, pa.timestamp("ns"))
        chunks.append(Chunk.build(entity, lines, components))
    if odd and rng.random() < 0.2:
        rng.shuffle(chunks)  # row ids then go back
    return chunks


def profile(rng: random.Random) -> OptimizationProfile:
    if rng.random() < 0.3:
        return OptimizationProfile.OBJECT_STORE
    return OptimizationProfile(
        max_bytes=rng.choice([0, 2000, 6000, 20_000]),
        max_rows=rng.choice([0, 2, 10, 50, 1000]),
        max_rows_if_unsorted=rng.choice([0, 2, 10, 200]),
        extra_passes=rng.choice([0, 5]),
    )


def laid_out(store: ChunkInserter) -> tuple[Any, ...]:
    extents = sorted(
        (e.entity_path, e.first_row, e.last_row, e.num_rows, e.size, e.ascending)
        for e in (pending.extent for pending in store.pending.values())
    )
    rows = defaultdict(list)
    for chunk in converge(store).chunks():
        rows[chunk.entity_path].append([column.to_pylist() for column in chunk.to_record_batch().columns])
    return store.size, extents, rows


def one_by_one(chunks: list[Chunk], settings: Settings) -> ChunkInserter:
    store = ChunkInserter(settings)
    for chunk in chunks:
        store.insert(chunk)
    return store


def at_once(chunks: list[Chunk], settings: Settings) -> ChunkInserter:
    store = ChunkInserter(settings)
    store.insert_all(chunks)
    return store


@settings(max_examples=80)
@given(seed=st.integers(0, 2**32 - 1))
def test_chunks_are_merged_as_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    chunks, settings = some(rng), Settings.of(profile(rng))
    assert laid_out(at_once(chunks, settings)) == laid_out(one_by_one(chunks, settings))


def in_order(count: int, entity: str = "/a") -> list[Chunk]:
    return [
        Chunk.build(entity, {"frame": pa.array([i])}, [(ComponentDescriptor("a"), pa.array([[0.5]], FLOATS))])
        for i in range(count)
    ]


@pytest.mark.heavy
def test_thousands_of_small_chunks_are_joined_many_at_once() -> None:
    chunks = [chunk for pair in zip(in_order(3000), in_order(3000, "/b"), strict=True) for chunk in pair]
    store = at_once(chunks, Settings.of(OptimizationProfile.OBJECT_STORE))
    assert [(p.extent.num_rows, len(p.parts)) for p in store.pending.values()] == [(3000, 4), (3000, 4)]
    full = at_once(chunks, LIVE)
    assert laid_out(full) == laid_out(one_by_one(chunks, LIVE))


def test_a_chunk_that_stays_alone_is_the_one_that_was_given() -> None:
    given = in_order(1)
    assert at_once(given, LIVE).chunks()[0] is given[0]


def test_row_ids_that_do_not_ascend_are_told_where_they_come() -> None:
    two = Chunk.build(
        "/bad", {"frame": pa.array([1, 2])}, [(ComponentDescriptor("a"), pa.array([[0.5], [1.0]], FLOATS))]
    )
    bad = Chunk.from_record_batch(two.to_record_batch().take(pa.array([1, 0])))
    with pytest.raises(ReadError, match="sorted before insertion"):
        at_once([*in_order(20), bad, *in_order(20)], LIVE)
