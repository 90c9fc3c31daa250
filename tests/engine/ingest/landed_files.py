"""Recordings that land, made small and quickly; and what an ingestion made of them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.ingest import BatchResult, Ingest, Outcome
from chunkmill.engine.store import RecordingStore
from chunkmill.engine.stream import LazyChunkStream

OLD = 3600.0
"""Seconds: the age of a file that has settled long ago."""


def rrd_at(path: Path, recording_id: str, value: float = 1.0, rows: int = 3, age: float = OLD) -> Path:
    """An RRD with one recording of one entity."""
    path.parent.mkdir(parents=True, exist_ok=True)
    column = ComponentColumn("value", [[value + i] for i in range(rows)])
    chunk = Chunk.from_columns("/signal", [TimeColumn("tick", sequence=range(rows))], [column])
    draft = path.with_name(f".{path.name}")
    LazyChunkStream.from_iter([chunk]).write_rrd(
        draft, application_id="tests", recording_id=recording_id, executor="inline"
    )
    os.utime(draft, (time.time() - age,) * 2)
    draft.rename(path)
    return path


def parquet_at(path: Path, rows: int = 4, age: float = OLD, start: int = 0) -> Path:
    """A Parquet file with one column."""
    table = pa.table({"speed": pa.array([float(start + i) for i in range(rows)])})
    draft = path.with_name(f".{path.name}")
    pq.write_table(table, draft)
    os.utime(draft, (time.time() - age,) * 2)
    draft.rename(path)
    return path


def bytes_at(path: Path, data: bytes, age: float = OLD) -> Path:
    """Any file."""
    draft = path.with_name(f".{path.name}")
    draft.write_bytes(data)
    os.utime(draft, (time.time() - age,) * 2)
    draft.rename(path)
    return path


def run_once(landing: Path, **options: Any) -> list[BatchResult]:
    """Ingest what is there; gives what became of the batches."""
    options = {"executor": "inline", "settle": 0.2, **options}
    query = Ingest(landing, **options).start(once=True)
    assert query.await_termination(60)
    return query.recent


def outcomes(batches: list[BatchResult]) -> dict[str, Outcome]:
    """What became of each file, by its name; of the last time it was taken."""
    return {Path(f.file.path).name: f.outcome for batch in batches for f in batch.files}


def rows_by_source(home: Path) -> dict[str, int]:
    """The rows of each recording of a store that are really there, by its source's name; every chunk is read."""
    store = RecordingStore.open(home)
    found = {}
    for entry in store:
        found[Path(entry.source).name] = sum(chunk.data.num_rows for chunk in store.recording(entry))
    return found
