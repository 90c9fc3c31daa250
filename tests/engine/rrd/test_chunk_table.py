"""The chunk table: what it says of chunks is what was said of them, wherever it lies."""

from __future__ import annotations

import pyarrow as pa
from chunkmill.engine.chunk import Chunk, ComponentDescriptor
from chunkmill.engine.execution.chunk_rows import SCHEMA
from chunkmill.engine.execution.frame_rows import COLUMNS
from chunkmill.engine.rrd import ChunkEntry
from chunkmill.engine.rrd import chunk_table as module
from chunkmill.engine.rrd.chunk_table import CHUNK_TABLE, entries_of_table, table_of_entries


def entry(number: int, values: pa.Array, digest: bytes | None = None) -> ChunkEntry:
    times = {} if number % 3 == 0 else {"frame": pa.array(range(len(values)))}
    chunk = Chunk.build(f"/e/{number % 4}", times, [(ComponentDescriptor("x"), values)])
    return ChunkEntry(chunk.header, 100 * number, 90, 200, digest)


def some(count: int) -> list[tuple[str, ChunkEntry]]:
    kinds = [pa.array([[1.0], [2.0]]), pa.array([["a"], None]), pa.array([[1.0]]), pa.array([[{"a": 1}]])]
    return [(f"{i // 7}.rrd", entry(i, kinds[i % 4], bytes([i % 256]) * 16 if i % 2 else None)) for i in range(count)]


def test_entries_come_back_as_they_were(monkeypatch) -> None:
    monkeypatch.setattr(module, "_BATCH_ROWS", 8)
    for count in (0, 1, 8, 50):
        entries = some(count)
        table = table_of_entries(entries)
        assert (table.schema, table.num_rows) == (CHUNK_TABLE, count)
        assert list(entries_of_table(table.to_batches())) == entries


def test_types_are_given_once() -> None:
    table = table_of_entries(some(50))
    assert table["types"].null_count == 50 - 3
    assert table["types_of"].to_pylist()[:8] == [0, 1, 0, 3, 0, 1, 0, 3]


def test_more_columns_do_no_harm() -> None:
    """Stores have manifests with the columns of a task's rows."""
    entries = some(9)
    table = table_of_entries(entries).append_column("note", pa.nulls(9, pa.string()))
    assert list(entries_of_table(table.to_batches())) == entries


def test_what_tasks_tell_and_frames_show_has_its_columns() -> None:
    assert [field for field in SCHEMA if field in list(CHUNK_TABLE)] == list(CHUNK_TABLE)
    shared = {field.name: field.type for field in CHUNK_TABLE if field.name in COLUMNS and field.name != "chunk_id"}
    assert len(shared) == 10
    assert {name: COLUMNS[name].arrow for name in shared} == shared
