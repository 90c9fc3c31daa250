"""Functions of computed columns: how they are made, called, and what they refuse."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from chunkmill.engine.tables import Columns, udf


def batch(**columns: list) -> pa.RecordBatch:
    return pa.record_batch(columns)


def test_a_function_is_called_for_each_row() -> None:
    @udf
    def halved(a: int) -> float:
        return a / 2

    made = halved.compute(batch(a=[1, 2, 3]))
    assert (made.type, made.to_pylist()) == (pa.float32(), [0.5, 1.0, 1.5])


def test_a_function_is_called_with_whole_columns() -> None:
    @udf(pa.int64())
    def summed(a: pa.Array, b: pa.Array):
        return pc.add(a, b)

    assert summed.compute(batch(b=[10, 20], a=[1, 2])).to_pylist() == [11, 22]


def test_a_function_gives_several_columns() -> None:
    class Size(NamedTuple):
        height: int
        width: float

    @udf
    def size(a: int) -> Columns[Size]:
        return Size(a, a / 2)

    assert size.compute(batch(a=[1, 2])).to_pylist() == [{"height": 1, "width": 0.5}, {"height": 2, "width": 1.0}]
