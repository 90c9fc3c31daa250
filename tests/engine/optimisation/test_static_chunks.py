"""Static chunks overwrite each other whole, or not at all."""

from __future__ import annotations

import pyarrow as pa
import pytest
from chunk_making import content
from chunkmill.engine.chunk import Chunk, ChunkData, ComponentDescriptor
from chunkmill.engine.optimisation.insertion import ChunkInserter


def _static(*components, value=1, archetype=None):
    values = pa.array([[value] if value is not None else None], pa.list_(pa.int64()))
    return Chunk.build("/a", {}, [(ComponentDescriptor(c, archetype), values) for c in components])


def _kept(*chunks):
    store = ChunkInserter()
    for chunk in chunks:
        store.insert(chunk)
    return store.chunks()


def _with_row_ids(chunk, *numbers):
    data = chunk.data.take(pa.array([0] * len(numbers)).to_numpy()).with_new_id()
    ids = pa.array([n.to_bytes(16, "big") for n in numbers], pa.binary(16))
    return Chunk.from_data(ChunkData(data.chunk_id, data.entity_path, ids, (), data.components))


def test_newer_overwrites():
    older, newer = _static("c"), _static("c")
    assert _kept(older, newer) == [newer]


def test_older_after_newer_keeps_both():
    older, newer = _static("c"), _static("c")
    assert _kept(newer, older) == [older, newer]


def test_a_chunk_that_still_provides_something_stays():
    both, one, other = _static("c", "d"), _static("c"), _static("d")
    assert _kept(both, one) == [both, one]
    assert _kept(both, one, other) == [one, other]


def test_equal_row_ids_keep_both():
    a, b = _with_row_ids(_static("c"), 5), _with_row_ids(_static("c"), 5)
    assert len(_kept(a, b)) == 2


def test_nulls_overwrite_nothing():
    value, nothing = _static("c"), _static("c", value=None)
    assert _kept(value, nothing) == [value, nothing]
    assert _kept(nothing) == [nothing]


@pytest.mark.parametrize("name", ["Transform3D", "Pinhole"])
def test_some_archetypes_are_always_kept(name):
    chunks = [_static(f"{name}:x", archetype=f"rerun.archetypes.{name}") for _ in range(2)]
    assert _kept(*chunks) == chunks


def test_the_greatest_row_id_counts():
    spread, between = _with_row_ids(_static("c"), 1, 10), _with_row_ids(_static("c"), 5)
    assert len(_kept(spread, between)) == 2
    assert _kept(between, spread) == [spread]


def test_long_static_chunks_stay_whole_and_beside_temporal_ones():
    values = pa.array([[1]] * 9000)
    static = Chunk.build("/a", {}, [(ComponentDescriptor("c"), values)])
    temporal = Chunk.build("/a", {"t": pa.array([1])}, [(ComponentDescriptor("c"), values[:1])])
    kept = _kept(static, temporal)
    assert content(kept) == content([static, temporal])
    assert len(kept) == 2


def test_other_entities_are_left_alone():
    here, there = _static("c"), _static("c").with_entity_path("/b")
    assert len(_kept(here, there)) == 2
