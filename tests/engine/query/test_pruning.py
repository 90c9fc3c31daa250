"""The chunks that rows of a window need, and no other; and values in batches of bounded size."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from chunk_making import made
from chunkmill.engine.chunk import Chunk, ComponentDescriptor, Schema
from chunkmill.engine.query import HeldRecording, Query, SegmentChunks, queried_recordings, rows, windows_of
from chunkmill.engine.query.rows import byte_ends
from chunkmill.engine.rrd import ChunkEntry, ChunkTable


def table_of(chunks: list[Chunk]) -> ChunkTable:
    return ChunkTable.of([ChunkEntry(chunk.header, 0, 1, 1) for chunk in chunks])


def columns_of(query: Query, chunks: list[Chunk]) -> object:
    return query.columns(Schema.from_headers(chunk.header for chunk in chunks).to_arrow())


@pytest.mark.parametrize(
    ("fill", "window", "expected"),
    [
        (False, (3, 4), [1]),
        (False, (5, 20), [1, 2, 3]),
        (False, (40, 50), []),
        (True, (3, 4), [0, 1]),
        (True, (6, 9), [1]),
        (True, (15, 16), [2, 3]),
        (True, (40, 50), [3]),
        (True, (0, 0), [0]),
    ],
)
def test_chunks_of_a_window(fill: bool, window: tuple[int, int], expected: list[int]) -> None:
    chunks = [made([0, 1]), made([3, 5]), made([10, 20]), made([12, 30]), made([2, 4], entity="/other")]
    query = Query("t", Query.of("t", contents=None).contents.exclude("/other"), fill_latest_at=fill)
    found = SegmentChunks(columns_of(query, chunks), [table_of(chunks)])  # type: ignore[arg-type]
    assert found.needed([window]).tolist() == expected
    assert found.needed(None).tolist() == [0, 1, 2, 3]


def test_clears_before_a_window_are_needed() -> None:
    clears = [(ComponentDescriptor("Clear:is_recursive"), pa.array([[True]]))]
    early, late = (Chunk.build("/", {"t": pa.array([time])}, clears) for time in (1, 50))
    chunks = [made([0], entity="/a/b"), early, made([9], entity="/a/b"), late]
    query = Query("t", fill_latest_at=True)
    found = SegmentChunks(columns_of(query, chunks), [table_of(chunks)])  # type: ignore[arg-type]
    assert found.needed([(5, 8)]).tolist() == [0, 1]
    assert found.needed([(10, 20)]).tolist() == [1, 2]


def test_windows_of_a_filter() -> None:
    chunks = [made([time]) for time in range(0, 1000, 10)]
    columns = columns_of(Query("t"), chunks)
    starts = np.arange(0, 1000, 10)
    frame = pc.field("t")

    def windows(predicate: pc.Expression) -> list[tuple[int, int]]:
        return list(windows_of(columns, predicate, "seg", (0, 990), starts))  # type: ignore[arg-type]

    assert windows(frame >= 0) == [(0, 990)]
    (only,) = windows(frame == 500)
    assert only[0] <= 500 <= only[1] and only[1] - only[0] < 40
    assert len(windows((frame == 3) | (frame > 980))) == 2
    assert windows(pc.field("rerun_segment_id") == "other") == []


def test_batches_are_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BATCH_BYTES", 10_000)
    images = pa.array([[b"x" * 4000]] * 6 + [[b"x" * 20_000]] + [[]] * 5, pa.list_(pa.binary()))
    chunk = Chunk.build("/a", {"t": pa.array(range(12))}, [(ComponentDescriptor("c"), images)])
    held = HeldRecording("seg", (chunk,))
    _, (segment,) = queried_recordings(Query("t"), [held])
    found = list(segment.batches())
    assert [batch.num_rows for batch in found] == [2, 2, 2, 1, 5]
    assert pa.Table.from_batches(found)["/a:c"].combine_chunks().equals(images)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([[1.0], None, [2.0, 3.0]]), [0, 12, 16, 36]),
        (pa.array([["a", "bcd"], []]), [0, 16, 20]),
        (pa.array([[{"a": 1, "b": b"xy"}], [None]]), [0, 18, 34]),
        (pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)), [0, 2, 4]),
        (pa.array([], pa.list_(pa.binary())), [0]),
        (pa.nulls(2), [0, 0, 0]),
    ],
)
def test_bytes_of_rows(values: pa.Array, expected: list[int]) -> None:
    assert byte_ends(values).tolist() == expected
    if len(values) > 1:
        assert byte_ends(values.slice(1)).tolist() == [end - expected[1] for end in expected[1:]]
