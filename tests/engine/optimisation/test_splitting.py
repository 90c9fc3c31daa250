"""Chunks split by rows and by columns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from chunk_making import FLOATS, content, lengths, made
from chunkmill.engine.chunk import Chunk, ComponentDescriptor, tuid
from chunkmill.engine.optimisation.merging import merge_chunks, split_columns, split_rows
from chunkmill.engine.optimisation.passes import columns_apart, optimised
from chunkmill.engine.optimisation.profile import OptimizationProfile, Settings
from hypothesis import given, settings
from hypothesis import strategies as st

LIVE = Settings.of(None)


def _split(times, **thresholds):
    profile = OptimizationProfile(**thresholds)
    return [p.num_rows for p in split_rows(made(times).data, Settings.of(profile))]


@pytest.mark.parametrize(
    ("times", "thresholds", "pieces"),
    [
        (range(10_000), {}, [4096, 4096, 1808]),
        (range(10_000), {"max_rows": 3000}, [3000, 3000, 3000, 1000]),
        ([5, *range(2999)], {}, [1024, 1024, 952]),
        (range(1000), {"max_bytes": 10_000}, [236, 236, 236, 236, 56]),
        (range(1000), {"max_bytes": 0, "max_rows": 0, "max_rows_if_unsorted": 0}, [1000]),
        (range(3), {"max_bytes": 1}, [1, 1, 1]),
        ([7], {"max_bytes": 1, "max_rows": 1}, [1]),
    ],
)
def test_by_rows(times, thresholds, pieces):
    assert _split(times, **thresholds) == pieces


def test_pieces_have_ids_of_their_own_in_row_order():
    pieces = split_rows(made(range(10_000)).data, LIVE)
    ids = [p.chunk_id for p in pieces]
    assert ids == sorted(set(ids))


def test_a_chunk_within_the_thresholds_is_itself():
    data = made(range(5)).data
    assert split_rows(data, LIVE) == [data]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(-5, 50), min_size=1, max_size=60), st.integers(1, 20), st.integers(1, 9), st.integers(1, 3000)
)
def test_merging_undoes_splitting(times, max_rows, unsorted, max_bytes):
    chunk = made(times)
    profile = OptimizationProfile(max_rows=max_rows, max_rows_if_unsorted=unsorted, max_bytes=max_bytes)
    pieces = [Chunk.from_data(p) for p in split_rows(chunk.data, Settings.of(profile))]
    assert content(pieces) == content([chunk])
    (whole,) = merge_chunks(pieces[::-1])
    assert whole.data.row_ids.equals(chunk.data.row_ids)
    assert whole.data.timelines == chunk.data.timelines
    assert whole.data.components == chunk.data.components


def _wide():
    texts = pa.list_(pa.string())
    return Chunk.build(
        "/a",
        {"t": pa.array([1, 2])},
        [
            (ComponentDescriptor("blob"), pa.array([["x" * 10_000]] * 2, texts)),
            (ComponentDescriptor("loose2"), pa.array([["y" * 1500]] * 2, texts)),
            (ComponentDescriptor("P:a", "rerun.archetypes.Points3D"), pa.array([[1.0]] * 2, pa.list_(pa.float32()))),
            (ComponentDescriptor("P:b", "rerun.archetypes.Points3D"), pa.array([[1.0]] * 2, pa.list_(pa.float32()))),
            (ComponentDescriptor("loose1"), pa.array([[1]] * 2, pa.list_(pa.int8()))),
        ],
    )


@pytest.mark.parametrize(
    ("ratio", "groups"),
    [
        (-3.0, [["blob"], ["loose2"], ["P:a", "P:b"], ["loose1"]]),
        (1.0, [["blob"], ["loose2"], ["P:a", "P:b"], ["loose1"]]),
        (2.0, [["blob"], ["loose2"], ["P:a", "P:b"], ["loose1"]]),
        (10.0, [["blob", "loose2"], ["loose1", "P:a", "P:b"]]),
        (100.0, None),
    ],
)
def test_by_columns(ratio, groups):
    data = _wide().data
    pieces = split_columns(data, ratio)
    if groups is None:
        assert pieces == [data]
        return
    assert [[c.descriptor.component for c in p.components] for p in pieces] == groups
    assert all(p.row_ids.equals(data.row_ids) and p.timelines == data.timelines for p in pieces)
    assert len({p.chunk_id for p in (data, *pieces)}) == len(pieces) + 1


def test_pieces_by_columns_do_not_merge_back():
    profile = OptimizationProfile(split_size_ratio=10)
    out = optimised([_wide(), _wide()], profile)
    assert lengths(out) == [4, 4]


def test_static_chunks_are_split_by_columns_too():
    wide = _wide().data
    static = Chunk.build("/a", {}, [(c.descriptor, c.values) for c in wide.components])
    pieces = columns_apart(static, 10.0)
    assert [p.is_static for p in pieces] == [True, True]
    assert content(optimised([static], OptimizationProfile(split_size_ratio=10))) == content([static])


def test_one_component_is_never_split_by_columns():
    data = made([1, 2], datatype=FLOATS).data
    assert split_columns(data, 0.0) == [data]


def test_row_ids_stay():
    chunk = made(range(10_000))
    ids = [i for p in split_rows(chunk.data, LIVE) for i in p.row_ids.to_pylist()]
    assert ids == chunk.data.row_ids.to_pylist()
    assert tuid.is_sorted(chunk.data.row_ids)
