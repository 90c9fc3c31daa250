"""The chunk table: what it says of chunks is what was said of them, wherever it lies."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentDescriptor
from chunkmill.engine.execution.work import COLUMNS
from chunkmill.engine.rrd import CHUNK_TABLE, ChunkEntry, ChunkTable


def entry(number: int, values: pa.Array, digest: bytes | None = None) -> ChunkEntry:
    times = {} if number % 3 == 0 else {"frame": pa.array(range(len(values)))}
    chunk = Chunk.build(f"/e/{number % 4}", times, [(ComponentDescriptor("x"), values)])
    return ChunkEntry(chunk.header, 100 * number, 90, 200, digest)


def some(count: int) -> list[tuple[str, ChunkEntry]]:
    kinds = [pa.array([[1.0], [2.0]]), pa.array([["a"], None]), pa.array([[1.0]]), pa.array([[{"a": 1}]])]
    return [(f"{i // 7}.rrd", entry(i, kinds[i % 4], bytes([i % 256]) * 16 if i % 2 else None)) for i in range(count)]


def table_of(placed: list[tuple[str, ChunkEntry]]) -> ChunkTable:
    return ChunkTable.of([entry for _, entry in placed], [part for part, _ in placed])


def placed_in(table: ChunkTable) -> list[tuple[str, ChunkEntry]]:
    which, parts = table.part_codes
    return [(parts[at], entry) for at, entry in zip(which.tolist(), table.entries(), strict=True)]


@pytest.mark.parametrize("count", [0, 1, 8, 50])
def test_entries_come_back_as_they_were(count: int) -> None:
    entries = some(count)
    table = table_of(entries)
    assert (table.batch.schema, len(table)) == (CHUNK_TABLE, count)
    for same in (table, ChunkTable.from_stream(table.to_stream()), pickle.loads(pickle.dumps(table))):
        assert placed_in(same) == entries


def test_any_rows_of_any_tables() -> None:
    entries = some(50)
    tables = [table_of(entries[i : i + 7]) for i in range(0, 50, 7)]
    whole = ChunkTable.concat(tables)
    assert placed_in(whole) == entries
    assert placed_in(whole.slice(3, 29)) == entries[3:29]
    assert placed_in(whole.slice(3, 29).slice(5, 9)) == entries[8:12]
    rows = np.array([40, 3, 3, 11])
    assert placed_in(whole.take(rows)) == [entries[i] for i in rows]
    assert placed_in(whole.slice(3, 49).take(rows)) == [entries[i + 3] for i in rows]


@pytest.mark.parametrize("sizes", [[50], [7, 0, 1, 20, 22], [1] * 50])
def test_shares_say_what_they_would_say_by_themselves(sizes: list[int]) -> None:
    entries = some(50)
    whole = table_of(entries)
    start = 0
    for share, size in zip(whole.shares(sizes), sizes, strict=True):
        own = ChunkTable(whole.batch.slice(start, size))
        assert placed_in(share) == placed_in(own) == entries[start : start + size]
        assert placed_in(pickle.loads(pickle.dumps(share))) == placed_in(own)
        for name in ("offsets", "sizes", "uncompressed_sizes", "num_rows", "chunk_ids", "is_static", "is_whole"):
            assert np.array_equal(getattr(share, name), getattr(own, name)), name
        assert share.kinds[1] == own.kinds[1]
        assert np.array_equal(share.kinds[0], own.kinds[0])
        start += size


def test_types_are_given_once() -> None:
    types = table_of(some(50)).batch["types"]
    assert len(types.dictionary) == 3
    assert types.indices.to_pylist()[:8] == [0, 1, 0, 2, 0, 1, 0, 2]


def test_types_that_differ_in_metadata_alone_are_not_the_same() -> None:
    def datatype(unit: bytes) -> pa.DataType:
        return pa.list_(pa.struct([pa.field("x", pa.float64(), metadata={b"unit": unit})]))

    entries = [entry(1, pa.array([[{"x": 1.0}]], datatype(unit))) for unit in (b"m", b"s", b"m")]
    found = ChunkTable.of(entries).entries()
    units = [e.header.components[0].datatype.value_type.field("x").metadata[b"unit"] for e in found]
    assert units == [b"m", b"s", b"m"]


def test_more_columns_do_no_harm() -> None:
    entries = some(9)
    table = pa.Table.from_batches([table_of(entries).batch]).append_column("note", pa.nulls(9, pa.string()))
    assert placed_in(ChunkTable.from_arrow(table)) == entries


def test_a_table_that_is_none() -> None:
    table = pa.Table.from_batches([table_of(some(9)).batch])
    with pytest.raises(ValueError, match="no column 'offset'"):
        ChunkTable.from_arrow(table.drop_columns(["offset"]))
    with pytest.raises(ValueError, match="not those of a chunk table"):
        ChunkTable.from_arrow(table.set_column(8, "offset", pa.array(["x"] * 9)).select(CHUNK_TABLE.names))


def test_what_chunks_are_alike_in() -> None:
    which, kinds = table_of(some(24)).kinds
    headers = [e.header for _, e in some(24)]
    assert len(kinds) == len({(h.entity_path, h.is_static) for h in headers}) == 8
    for at, header in zip(which.tolist(), headers, strict=True):
        kind = kinds[at]
        assert (kind.entity_path, kind.is_static) == (header.entity_path, header.is_static)
        assert list(kind.timeline_names) == [t.name for t in header.timelines]
        assert kind.components == {"x"}


def test_frames_show_its_columns() -> None:
    changed = {"chunk_id", "digest", "types"}  # Spark knows no bytes of fixed length, and no dictionaries
    shared = {field.name: field.type for field in CHUNK_TABLE if field.name in COLUMNS and field.name not in changed}
    assert len(shared) == 8
    assert {name: COLUMNS[name].arrow for name in shared} == shared
