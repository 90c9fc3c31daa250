"""The size of chunks in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ChunkData, ComponentDescriptor
from chunkmill.engine.optimisation.profile import RowSizes, column_size

FLOATS = pa.list_(pa.float64())
POSITIONS = pa.list_(pa.list_(pa.field("item", pa.float32(), nullable=False), 3))


def data_bytes(data: ChunkData) -> int:
    return RowSizes(data).bytes(0, data.num_rows)


def _chunk(rows, timelines=1, components=1, values=None):
    values = values if values is not None else pa.array([[1.0]] * rows, FLOATS)
    times = pa.array(np.arange(rows))
    return Chunk.build(
        "/a",
        {f"t{i}": times for i in range(timelines)},
        [(ComponentDescriptor(f"c{i}"), values) for i in range(components)],
    )


@pytest.mark.parametrize(
    ("values", "size"),
    [
        (pa.array([[1.0]] * 10, FLOATS), 120),
        (pa.array([[1.0], None, [1.0]] + [[1.0]] * 7, FLOATS), 40 + 72 + 2),
        (pa.array([[1.0, 2.0]] * 10, FLOATS), 200),
        (pa.array([[None, 2.0]] * 10, FLOATS), 40 + 160 + 3),
        (pa.array([["abc"]] * 10, pa.list_(pa.string())), 40 + 40 + 30),
        (pa.array([["abc"]] * 10, pa.list_(pa.large_string())), 40 + 80 + 30),
        (pa.array([[[1.0, 2.0, 3.0]]] * 10, POSITIONS), 40 + 120),
        (pa.array([[True, False]] * 10), 40 + 3),
        (pa.array([[None]] * 10, pa.list_(pa.null())), 40),
        (pa.array([[{"a": 1, "b": "x"}]] * 2), 8 + 16 + 8 + 2),
        (pa.array([[[("k", 1)]]] * 2, pa.list_(pa.map_(pa.string(), pa.int32()))), 8 + 8 + 8 + 2 + 8),
    ],
)
def test_columns(values, size):
    assert column_size(values).total == size


def test_only_the_referred_range_counts():
    whole = pa.array([["x" * 1000], ["y"], ["z"]], pa.list_(pa.string()))
    assert column_size(whole.slice(1)).total == 2 * 4 + 2 * 4 + 2
    pairs = pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int8(), 2))
    assert column_size(pairs.slice(2)).total == 2


def test_sizes_add_up():
    one, other = pa.array([["a"], None], pa.list_(pa.string())), pa.array([["bb", "c"]] * 7, pa.list_(pa.string()))
    both = pa.concat_arrays([one, other])
    assert column_size(one).plus(column_size(other)) == column_size(both)
    padded = pa.concat_arrays([other, pa.nulls(3, other.type)])
    assert column_size(other).padded(3) == column_size(padded)


@pytest.mark.parametrize(
    ("timelines", "slots"), [(1, 4), (3, 4), (4, 8), (7, 8), (8, 16), (14, 16), (15, 32), (28, 32), (29, 64)]
)
def test_timelines(timelines, slots):
    assert data_bytes(_chunk(10, timelines).data) == 224 + 160 + 105 * slots + 80 * timelines + 209 * 4 + 120


def test_the_example_of_the_formula():
    assert data_bytes(_chunk(1000).data) == 37_480


def test_types_without_a_size_of_their_own_keep_their_place():
    number = pa.array([1, 2, 3], pa.int64())
    union = pa.UnionArray.from_dense(
        pa.array([0, 0, 1], pa.int8()), pa.array([0, 1, 0], pa.int32()), [pa.array([1, 2]), pa.array(["x"])]
    )
    views = pa.array(["a", "b" * 30, None], pa.string_view())
    nothing = pa.nulls(3)
    coded = pa.array(["p", "q", "p"]).dictionary_encode()
    row = pa.StructArray.from_arrays([union, views, nothing, coded, number], names=list("uvnci"))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), row)
    measured = column_size(lists).total
    assert measured > column_size(lists.slice(1)).total > 2 * 8
    assert column_size(pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), number)).total == 2 * 4 + 3 * 8


def test_rows_measured_in_place_are_slices_measured():
    texts = pa.array([["x" * i] * (i % 3) if i % 4 else None for i in range(40)], pa.list_(pa.string()))
    nested = pa.array([[{"a": [i], "b": {"c": i % 2 == 0}}] for i in range(50)]).slice(5, 40)
    times = pa.array(np.arange(40))
    data = Chunk.build("/a", {"t": times}, [(ComponentDescriptor("x"), texts), (ComponentDescriptor("y"), nested)]).data
    sizes = RowSizes(data)
    for start, end in ((0, 40), (0, 1), (7, 31), (39, 40)):
        assert sizes.bytes(start, end) == data_bytes(data.slice(start, end - start))
