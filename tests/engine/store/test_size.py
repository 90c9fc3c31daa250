"""The size of chunks in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentDescriptor
from chunkmill.engine.store.size import column_size, data_bytes

FLOATS = pa.list_(pa.float64())
POSITIONS = pa.list_(pa.list_(pa.field("item", pa.float32(), nullable=False), 3))


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
