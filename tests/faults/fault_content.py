"""What a recording holds, whatever its chunks: to compare what came out with what went in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import xxhash
from chunkmill.engine.chunk import Chunk
from chunkmill.engine.recordings import RecordingEntry
from chunkmill.engine.store import RecordingStore
from chunkmill.readers import McapReader, ParquetReader, RrdReader

Known = dict[str, list[str]]
"""The contents of the recordings of a file, sorted, by the digest of the file."""


def content_of(chunks: Iterable[Chunk]) -> str:
    """A digest of all values of all rows, with their times. Neither chunks nor the order of rows matter."""
    cells: list[bytes] = []
    for chunk in chunks:
        batch = chunk.to_record_batch()
        kinds = [(field.metadata or {}).get(b"rerun:kind") for field in batch.schema]
        columns = [batch.column(i).to_pylist() for i in range(batch.num_columns)]
        times = sorted((batch.schema.names[i], i) for i, kind in enumerate(kinds) if kind == b"index")
        for i, kind in enumerate(kinds):
            if kind == b"data":
                name = batch.schema.names[i]
                cells += [
                    repr((chunk.entity_path, name, [(t, columns[at][row]) for t, at in times], value)).encode()
                    for row, value in enumerate(columns[i])
                    if value is not None
                ]
    whole = hashlib.sha256()
    for cell in sorted(hashlib.sha256(c).digest() for c in cells):
        whole.update(cell)
    return f"{len(cells)}:{whole.hexdigest()[:32]}"


def digest_of_path(path: Path) -> str:
    """The digest of a file by which the store knows it."""
    return xxhash.xxh3_128(path.read_bytes()).hexdigest()


def converted(path: Path) -> list[str]:
    """The contents of the recordings that a file becomes, read by its reader alone."""
    if path.suffix == ".rrd":
        return rrd_contents(path)
    reader: Any = {".mcap": McapReader, ".parquet": ParquetReader}[path.suffix](path)
    return [content_of(reader.stream().to_chunks(executor="inline"))]


def rrd_contents(path: Path) -> list[str]:
    """The contents of the recordings of an RRD."""
    reader = RrdReader(path)
    return sorted(content_of(reader.stream(store=store).to_chunks(executor="inline")) for store in reader.recordings())


def kept_content(store: RecordingStore, entry: RecordingEntry) -> str:
    """The content of a recording of a store; every chunk is read and its digest verified."""
    return content_of(store.recording(entry).stream().to_chunks(executor="inline"))
