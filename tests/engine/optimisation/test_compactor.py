"""Compaction as chunks pass, in bounded memory, and of what is left small."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from chunk_making import content, lengths, made
from chunkmill.engine.chunk import Chunk, ComponentDescriptor
from chunkmill.engine.errors import ReadError
from chunkmill.engine.optimisation.passes import Compactor, optimised
from chunkmill.engine.optimisation.profile import OptimizationProfile, RowSizes
from hypothesis import given, settings
from hypothesis import strategies as st

DATATYPES = {"c": pa.list_(pa.float64()), "d": pa.list_(pa.string()), "e": pa.list_(pa.list_(pa.int16(), 2))}
VALUES = {"c": [1.5], "d": ["x", None, "yy"], "e": [[1, 2]]}


_SHAPES = st.tuples(
    st.lists(st.integers(0, 30), max_size=8),
    st.integers(1, 7),  # which components
    st.integers(0, 3),  # which timelines
    st.integers(0, (1 << 24) - 1),  # which values are there
    st.sampled_from(["/a", "/b"]),
)


def _chunk(times, names, lines, there, entity):
    components = []
    for i, name in enumerate("cde"):
        if names >> i & 1:
            rows = [VALUES[name] if there >> (8 * i + row) & 1 else None for row in range(len(times))]
            components.append((ComponentDescriptor(name), pa.array(rows, DATATYPES[name])))
    timelines = {line: pa.array(times, pa.int64()) for i, line in enumerate("tu") if lines >> i & 1}
    return Chunk.build(entity, timelines, components)


recordings = st.lists(_SHAPES, min_size=1, max_size=10).map(lambda shapes: [_chunk(*shape) for shape in shapes])
"""Chunks of two entities, some components and timelines, some rows without a value, some static."""

profiles = st.builds(
    OptimizationProfile,
    max_bytes=st.sampled_from([None, 0, 2500, 4000]),
    max_rows=st.sampled_from([None, 0, 5, 20]),
    max_rows_if_unsorted=st.sampled_from([None, 0, 3]),
    extra_passes=st.integers(0, 3),
)


def _passed(chunks, profile, **arguments):
    compactor = Compactor(profile, **arguments)
    out = [done for chunk in chunks for done in compactor.add(chunk)]
    return out + compactor.finish()


def _of(entity, chunks):
    return [c for c in chunks if c.entity_path == entity]


def _temporal(chunks):
    return [c for c in chunks if not c.is_static]


@settings(max_examples=40, deadline=None)
@given(recordings, st.none() | profiles)
def test_compaction_keeps_every_value(chunks, profile):
    before = content(_temporal(chunks))
    assert content(_temporal(optimised(chunks, profile))) == before
    assert content(_passed(chunks, profile)) == content(chunks)
    assert content(_passed(chunks, profile, budget=3000)) == content(chunks)


@settings(max_examples=20, deadline=None)
@given(recordings, st.sampled_from([1.0, 3.0, 100.0]))
def test_columns_apart_keep_every_value(chunks, ratio):
    profile = OptimizationProfile(split_size_ratio=ratio)
    assert content(_temporal(optimised(chunks, profile))) == content(_temporal(chunks))
    assert content(_passed(chunks, profile, budget=3000)) == content(chunks)


@settings(max_examples=20, deadline=None)
@given(recordings, st.none() | profiles)
def test_within_its_budget_a_compactor_does_what_a_store_does(chunks, profile):
    temporal = _temporal(chunks)
    passed, stored = _passed(temporal, profile), optimised(temporal, profile)
    for entity in "/a", "/b":  # pieces of two entities are numbered in the order in which they are cut
        assert lengths(_of(entity, passed)) == lengths(_of(entity, stored))


def test_passes_go_on_while_they_help():
    order = list(range(300))
    random.Random(7).shuffle(order)
    chunks = [made([i]) for i in order]
    one = optimised(chunks, OptimizationProfile(extra_passes=0, max_rows_if_unsorted=50, max_rows=50))
    many = optimised(chunks, OptimizationProfile(max_rows_if_unsorted=50, max_rows=50))
    assert len(many) <= len(one)
    assert content(many) == content(chunks)


@pytest.mark.heavy
def test_memory_is_bounded():
    compactor = Compactor(OptimizationProfile.OBJECT_STORE, budget=200_000)
    held = peak = 0
    done = []
    chunks = [made(np.arange(100 * i, 100 * i + 100)) for i in range(400)]
    for chunk in chunks:
        finished = compactor.add(chunk)
        done += finished
        held += chunk.num_rows - sum(lengths(finished))
        peak = max(peak, held)
    done += compactor.finish()
    assert 36 * peak < 200_000  # 16 bytes of row id, 8 of time, 12 of value
    assert len(done) < 30
    assert content(done) == content(chunks)


def test_large_chunks_are_finished_first():
    compactor = Compactor(OptimizationProfile(max_rows=100), budget=30_000)
    small = made([0], entity="/small")
    out = compactor.add(small)
    for i in range(20):
        out += compactor.add(made(range(100 * i, 100 * i + 60), entity="/large"))
    assert out
    assert all(c.entity_path == "/large" for c in out)


def test_static_chunks_pass_at_once_and_once():
    compactor = Compactor()
    static = Chunk.build("/a", {}, [(ComponentDescriptor("c"), pa.array([[1]]))])
    assert compactor.add(static) == [static]
    assert compactor.add(static) == []
    assert compactor.finish() == []


def test_row_ids_are_checked_in_static_chunks_too():
    static = Chunk.build("/a", {}, [(ComponentDescriptor("c"), pa.array([[1], [2]]))])
    with pytest.raises(ReadError, match="must be sorted"):
        Compactor().add(Chunk.from_data(static.data.take(np.array([1, 0]))))


def test_two_runs_agree():
    chunks = [made([i % 40], "cd"[i % 2], entity=f"/{i % 3}") for i in range(500)]
    runs = [_passed([Chunk.from_data(c.data) for c in chunks], None, budget=5000) for _ in range(2)]
    assert [(c.entity_path, c.data.row_ids.to_pylist()) for c in runs[0]] == [
        (c.entity_path, c.data.row_ids.to_pylist()) for c in runs[1]
    ]


@pytest.mark.parametrize(
    ("cell", "fewest"), [(lambda i: [float(i)], 7), (lambda i: ["text " * (1 + i % 7)], 14)], ids=["floats", "texts"]
)
@pytest.mark.parametrize("passing", [False, True])
@pytest.mark.heavy
def test_what_a_cut_leaves_is_filled_up(cell, fewest, passing):
    """Chunks somewhat larger than allowed, as readers of tables make them: each cut left a rest that stayed small."""
    rows, given = 65_536, 6
    values = pa.array([cell(i) for i in range(rows)])
    chunks = [
        Chunk.build("/a", {"t": pa.array(np.arange(rows) + n * rows)}, [(ComponentDescriptor("c"), values)])
        for n in range(given)
    ]
    profile = OptimizationProfile.OBJECT_STORE
    out = _passed(chunks, profile, budget=6 << 20) if passing else optimised(chunks, profile)
    assert len(out) <= fewest + passing
    out.sort(key=lambda c: c.data.timelines[0].ticks[0])
    assert all(RowSizes(c.data).bytes(0, c.num_rows) <= profile.max_bytes for c in out)
    assert np.array_equal(np.concatenate([c.data.timelines[0].ticks for c in out]), np.arange(rows * given))
    assert pa.concat_arrays([c.data.row_ids for c in out]).equals(pa.concat_arrays([c.data.row_ids for c in chunks]))
    assert pa.concat_arrays([c.data.components[0].values for c in out]).equals(pa.concat_arrays([values] * given))
    assert len(optimised(chunks, OptimizationProfile(max_bytes=2 << 20, max_rows=65_536, extra_passes=0))) > len(out)
