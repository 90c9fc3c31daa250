"""Many small chunks: what is done for each on its way to tasks and back stays small."""

from __future__ import annotations

import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.execution.packed import spark_serializer
from chunkmill.engine.execution.scratch import spool
from chunkmill.engine.stream import LazyChunkStream


def chunks(count: int) -> list[Chunk]:
    return [
        Chunk.from_columns(
            f"/arm/{i % 7}",
            [TimeColumn("frame", sequence=[i])] if i % 5 else [],
            [ComponentColumn("angle", [float(i)]), ComponentColumn("name", [None])],
        )
        for i in range(count)
    ]


def test_what_is_spooled_travels_as_rows_and_is_the_same_there() -> None:
    given = chunks(300)
    (part,) = spool(given)
    there = spark_serializer().loads(spark_serializer().dumps(part))
    assert isinstance(there.entries, bytes)
    assert len(there.entries) < 300 * len(given)
    assert [c.header for c in there.chunks()] == [c.header for c in given]
    assert [c.to_record_batch() for c in there.chunks()] == [c.to_record_batch() for c in given]
    again = spark_serializer().loads(spark_serializer().dumps(there))
    assert again == there


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_many_small_chunks_come_back_in_order(executor: str, request: pytest.FixtureRequest) -> None:
    if executor == "spark":
        request.getfixturevalue("spark")
    given = chunks(2000)
    found = LazyChunkStream.from_iter(given).map(lambda c: c).to_chunks(executor=executor)
    assert [(c.id, c.entity_path) for c in found] == [(c.id, c.entity_path) for c in given]
    assert found[-1].to_record_batch() == given[-1].to_record_batch()
