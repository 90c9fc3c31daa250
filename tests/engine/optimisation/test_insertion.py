"""What a store makes of the chunks that are inserted: the tables of merging and of the order of checks."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest
from chunk_making import content, lengths, made, times_of
from chunkmill.engine.chunk import Chunk, ChunkData, ComponentDescriptor
from chunkmill.engine.errors import ReadError, ReadWarning
from chunkmill.engine.optimisation.insertion import ChunkInserter
from chunkmill.engine.optimisation.passes import optimised
from chunkmill.engine.optimisation.profile import INERT, OptimizationProfile, Settings


def _collected(chunks):
    """What a plain ``collect()`` leaves."""
    return optimised(chunks)


def _one_pass(chunks, **thresholds):
    return optimised(chunks, OptimizationProfile(extra_passes=0, **thresholds))


@pytest.mark.parametrize(
    ("inserted", "times"),
    [
        ([[0], [1], [2], [3], [4]], [[0, 1, 2, 3, 4]]),
        ([[0, 10], [5, 15], [3]], [[0, 10, 5, 15, 3]]),
        ([[4], [3], [2], [1], [0]], [[4, 3, 2, 1, 0]]),
        ([[1, 2], [2, 3]], [[1, 2, 2, 3]]),
    ],
)
def test_merged_rows_are_in_the_order_of_their_ids(inserted, times):
    chunks = [made(t) for t in inserted]
    out = _collected(chunks)
    assert times_of(out) == times
    assert content(out) == content(chunks)


@pytest.mark.parametrize(
    ("inserted", "rows"),
    [
        ([([1], "c", "t"), ([2], "c", "tu"), ([3], "c", "t")], [1, 1, 1]),
        ([([i], "c", "t" if i % 2 else "tu") for i in range(12)], [6, 6]),
        ([([1], "c", "t"), ([2], "d", "t")], [1, 1]),
        ([([1], "c", "t"), ([1], "d", "t")], [1, 1]),
        ([([1], "c", "t"), ([2], "cd", "t")], [2]),
    ],
)
def test_which_chunks_merge(inserted, rows):
    assert lengths(_collected([made(*arguments) for arguments in inserted])) == rows


def test_missing_components_are_null():
    (out,) = _collected([made([1], "c"), made([2], "cd")])
    assert {c.descriptor.component: c.values.to_pylist() for c in out.data.components} == {
        "c": [[1.0], [1.0]],
        "d": [None, [1.0]],
    }


def test_datatypes_must_agree():
    assert lengths(_collected([made([1]), made([2], datatype=pa.list_(pa.string()), value=["x"])])) == [1, 1]


@pytest.mark.parametrize(("count", "rows"), [(4096, [4096]), (4097, [1, 4096]), (5000, [4096, 904])])
@pytest.mark.heavy
def test_single_rows(count, rows):
    assert lengths(_collected([made([i]) for i in range(count)])) == rows


def test_row_thresholds():
    assert lengths(_collected([made(range(3000)), made(range(3000, 6000))])) == [3000, 3000]
    assert lengths(_one_pass([made([i]) for i in range(35)], max_rows=10)) == [10, 10, 10, 5]
    assert lengths(_one_pass([made([1, 5]), made([2, 3])], max_rows_if_unsorted=2)) == [4]


def test_pieces_of_a_split_merge_in_the_next_pass_only():
    chunks = [made(range(10_000)), *(made([10_000 + i]) for i in range(10))]
    assert lengths(_collected(chunks)) == [4096, 4096, 1808, 10]
    assert lengths(optimised(chunks, OptimizationProfile())) == [4096, 4096, 1818]


@pytest.mark.parametrize("threshold", ["max_bytes", "max_rows"])
def test_a_threshold_of_zero_merges_nothing(threshold):
    assert lengths(_one_pass([made([1]), made([2])], **{threshold: 0})) == [1, 1]


def test_a_timeline_of_another_kind_is_kept_apart():
    column = [(ComponentDescriptor("c"), pa.array([[1.0]]))]
    as_number = Chunk.build("/a", {"t": pa.array([1])}, column)
    as_time = Chunk.build("/a", {"t": pa.array([2]).cast(pa.timestamp("ns"))}, column)
    out = _collected([as_number, as_time])
    assert content(out) == content([as_number, as_time])
    assert lengths(out) == [1, 1]


def test_chunks_that_are_passed_over():
    store = ChunkInserter(Settings.of(None))
    empty = Chunk.build(
        "/a", {"t": pa.array([], pa.int64())}, [(ComponentDescriptor("c"), pa.array([], pa.list_(pa.int8())))]
    )
    bare = made([1]).data.with_components(())
    twice = made([1])
    for chunk in (empty, Chunk.from_data(bare), twice, twice):
        store.insert(chunk)
    assert [c.id for c in store.chunks()] == [twice.id]


def test_a_chunk_that_was_merged_or_split_is_not_taken_again():
    store = ChunkInserter(Settings.of(None))
    first, second, long = made([1]), made([2]), made(range(5000), entity="/b")
    for chunk in (first, second, long, first, long, second):
        store.insert(chunk)
    assert lengths(store.chunks()) == [2, 4096, 904]


def test_row_ids_must_ascend():
    data = made([1, 2, 3]).data
    turned = Chunk.from_data(ChunkData(data.chunk_id, "/a", data.row_ids[::-1], data.timelines, data.components))
    with pytest.raises(RuntimeError, match="Chunks must be sorted before insertion in the chunk store") as caught:
        ChunkInserter().insert(turned)
    assert isinstance(caught.value, ReadError)


def test_row_ids_are_compared_byte_by_byte():
    data = made([1, 2]).data
    ids = pa.array([bytes(16), bytes(8) + b"\x01" + bytes(7)], pa.binary(16))
    for order, good in (([0, 1], True), ([1, 0], False)):
        chunk = Chunk.from_data(ChunkData(data.chunk_id, "/a", ids.take(order), data.timelines, data.components))
        if good:
            ChunkInserter().insert(chunk)
        else:
            with pytest.raises(ReadError):
                ChunkInserter().insert(chunk)


def test_interleaved_row_ids_are_sorted():
    data = made(range(6)).data
    even, odd = (Chunk.from_data(data.take(rows).with_new_id()) for rows in (np.array([0, 2, 4]), np.array([1, 3, 5])))
    (out,) = _collected([even, odd])
    assert out.data.row_ids.equals(data.row_ids)
    assert times_of([out]) == [[0, 1, 2, 3, 4, 5]]


def test_an_inert_store_keeps_chunks_as_they_are():
    store = ChunkInserter(INERT)
    chunks = [made([i]) for i in range(5)] + [made(range(9000))]
    for chunk in chunks:
        store.insert(chunk)
    assert store.chunks() == chunks


def test_untouched_chunks_are_the_ones_given():
    one, other = made([1], "c"), made([1], "d")
    assert _collected([one, other]) == [one, other]


def test_descriptors_that_differ_are_told():
    values = pa.array([[1.0]])
    one = Chunk.build("/a", {"t": pa.array([1])}, [(ComponentDescriptor("c", "A"), values)])
    other = Chunk.build("/a", {"t": pa.array([2])}, [(ComponentDescriptor("c", "B"), values)])
    with pytest.warns(ReadWarning, match="describe the component 'c' in two ways"):
        (out,) = _collected([one, other])
    assert out.data.components[0].descriptor.archetype == "A"


def test_two_columns_of_one_component_are_not_merged():
    values = pa.array([[1.0]])
    double = [
        Chunk.build(
            "/a",
            {"t": pa.array([i])},
            [(ComponentDescriptor("c", "A"), values), (ComponentDescriptor("c", "B"), values)],
        )
        for i in range(3)
    ]
    assert content(_collected(double)) == content(double)


def test_inserting_is_not_quadratic():
    chunks = [made(range(10 * i, 10 * i + 10)) for i in range(4000)]
    begin = time.process_time()
    out = optimised(chunks, OptimizationProfile.OBJECT_STORE)
    assert time.process_time() - begin < 8
    assert sum(lengths(out)) == 40_000
    assert len(out) == 1
