"""Plans never leave out a chunk that holds what is asked for, and leave out most others."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunk_making import FLOATS
from chunkmill.engine import LazyChunkStream
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.catalog.server.chunks import ChunkQuery
from chunkmill.engine.chunk import Chunk, ComponentDescriptor
from chunkmill.engine.rrd import ChunkTable

LATEST = 120


def random_chunks(chance: random.Random) -> list[Chunk]:
    """Chunks of two entities, with times that overlap and values that are missing here and there."""
    chunks = []
    for _ in range(14):
        count = chance.randint(1, 6)
        first = chance.randint(0, LATEST)
        times = sorted(chance.randint(first, first + 30) for _ in range(count))
        names = chance.choice(("a", "b", "ab"))
        full = chance.random() < 0.5
        columns = [
            (
                ComponentDescriptor(name),
                pa.array([[1.0] if full or chance.random() < 0.6 else None for _ in range(count)], FLOATS),
            )
            for name in names
        ]
        lines = {"t": pa.array(np.asarray(times, np.int64))}
        if chance.random() < 0.5:
            lines["u"] = pa.array(np.asarray([chance.randint(0, 9) for _ in times], np.int64))
        chunks.append(Chunk.build(chance.choice(("/x", "/y")), lines, columns))
    return chunks


def planned(folder: Path, chunks: list[Chunk]) -> ChunkTable:
    """The manifest of a recording of these chunks."""
    path = folder / "one.rrd"
    stream = LazyChunkStream.from_iter(chunks)
    stream.write_rrd(path, application_id="tests", recording_id="one")
    dataset = CatalogClient(folder / "lake").create_dataset("d")
    dataset.register(path, executor="inline").wait()
    store = dataset.store_reader()
    (entry,) = store.live()
    return store.folder.references(entry).table


def events(chunks: list[Chunk]) -> list[tuple[str, str, int, str]]:
    """The entity, component, time and chunk of each value that is there."""
    found = []
    for chunk in chunks:
        data = chunk.data
        ticks = next(line for line in data.timelines if line.name == "t").ticks.tolist()
        for component in data.components:
            for tick, value in zip(ticks, component.values.to_pylist(), strict=True):
                if value is not None:
                    where = (data.entity_path, component.descriptor.component)
                    found.append((*where, tick, str(chunk.id).removeprefix("chunk_").lower()))
    return found


def ids_of(table: ChunkTable, rows: Any) -> set[str]:
    return {table.chunk_ids[row].tobytes().hex() for row in rows}


@pytest.mark.parametrize("seed", range(8))
def test_the_latest_values_are_in_the_plan(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    chunks = random_chunks(chance)
    table = planned(tmp_path, chunks)
    there = events(chunks)
    assert len(table) == len(chunks)
    for _ in range(30):
        at = chance.randint(-5, LATEST + 40)
        rows = ChunkQuery(timeline="t", latest_at=[at]).rows(table, "one")
        for key in {one[:2] for one in there}:
            before = [one for one in there if one[:2] == key and one[2] <= at]
            newest = max((one[2] for one in before), default=None)
            assert {one[3] for one in before if one[2] == newest} <= ids_of(table, rows)


@pytest.mark.parametrize("seed", range(4))
def test_a_window_has_all_values_in_it(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    chunks = random_chunks(chance)
    table = planned(tmp_path, chunks)
    for _ in range(30):
        first = chance.randint(0, LATEST)
        last = first + chance.randint(0, 40)
        found = ids_of(table, ChunkQuery(timeline="t", window=(first, last)).rows(table, "one"))
        assert {one[3] for one in events(chunks) if first <= one[2] <= last} <= found
        values = {"one": [first, last]}
        found = ids_of(table, ChunkQuery(timeline="t", values=values).rows(table, "one"))
        assert {one[3] for one in events(chunks) if one[2] in (first, last)} <= found


def test_what_was_overwritten_long_ago_is_left_out(tmp_path: Path) -> None:
    column = [(ComponentDescriptor("a"), pa.array([[1.0]] * 2, FLOATS))]
    chunks = [Chunk.build("/x", {"t": pa.array(np.array([n, n + 1]))}, column) for n in range(0, 100, 2)]
    table = planned(tmp_path, chunks)
    assert len(ChunkQuery(timeline="t", latest_at=[99]).rows(table, "one")) == 1
    assert len(ChunkQuery(timeline="t", latest_at=[50, 51]).rows(table, "one")) == 1
    assert len(ChunkQuery(timeline="t", window=(10, 13)).rows(table, "one")) == 2
    assert len(ChunkQuery({"/x"}).rows(table, "one")) == len(chunks)
    assert len(ChunkQuery({"/nothing"}).rows(table, "one")) == 0
