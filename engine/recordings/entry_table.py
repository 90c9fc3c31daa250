"""The Arrow files that hold the entries of recordings.

They are read and written some rows at a time. A store may have a million; and what a process of Python has taken once
for the objects of many rows it hardly ever gives back, as a few that stay lie between them.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import pyarrow as pa

from ..rrd.digest import check_digest
from .entry import RecordingEntry

SCHEMA: Final = pa.schema(
    [
        ("recording_id", pa.string()),
        ("application_id", pa.string()),
        ("kind", pa.string()),
        ("segment_version", pa.int64()),
        ("source", pa.string()),
        ("source_size", pa.int64()),
        ("source_modified_ns", pa.int64()),
        ("source_digest", pa.string()),
        ("source_kept", pa.bool_()),
        ("rrd", pa.string()),
        ("manifest", pa.string()),
        ("manifest_offset", pa.int64()),
        ("manifest_size", pa.int64()),
        ("manifest_digest", pa.string()),
        ("shards", pa.list_(pa.string())),
        ("chunks", pa.int64()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("query_id", pa.string()),
        ("batch", pa.int64()),
        ("added", pa.float64()),
    ]
)
"""One row a recording."""

_KINDS: Final = [(field.name, field.type) for field in SCHEMA]
_MAY_LACK: Final = "rrd"
_ROWS: Final = 512


def rows_of(entries: Iterable[RecordingEntry]) -> Iterator[pa.RecordBatch]:
    """Entries as rows of :data:`SCHEMA`."""
    left = iter(entries)
    while some := list(islice(left, _ROWS)):
        columns = [pa.array([getattr(entry, name) for entry in some], kind) for name, kind in _KINDS]
        yield pa.record_batch(columns, schema=SCHEMA)


def entries_in(batches: Iterable[pa.RecordBatch]) -> Iterator[RecordingEntry]:
    """The entries that rows hold."""
    for batch in batches:
        for row in batch.to_pylist():
            yield RecordingEntry(**{**row, "shards": tuple(row["shards"])})


def table_of(batches: Iterable[pa.RecordBatch]) -> tuple[bytes, int]:
    """Rows as a compressed Arrow file, and how many they are."""
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
    count = 0
    with pa.ipc.new_file(sink, SCHEMA, options=options) as out:
        for batch in _joined(batches):
            out.write_batch(batch)
            count += batch.num_rows
    return sink.getvalue(), count


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are worth being compressed."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(b.num_rows for b in waiting) >= _ROWS:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def parse_table(data: bytes, digest: str) -> Iterator[pa.RecordBatch]:
    """The rows of a table. Raises ``ValueError`` where it is another, before Arrow looks at a byte of it."""
    check_digest(data, digest)
    reader = pa.ipc.open_file(pa.py_buffer(data), options=pa.ipc.IpcReadOptions(use_threads=False))
    if reader.schema != SCHEMA:
        raise ValueError(f"its columns are {', '.join(reader.schema.names)}")
    for at in range(reader.num_record_batches):
        batch = reader.get_batch(at)
        batch.validate(full=True)
        lacking = [name for name in SCHEMA.names if name != _MAY_LACK and batch[name].null_count]
        if lacking:
            raise ValueError(f"an entry has no {lacking[0]}")
        for first in range(0, batch.num_rows, _ROWS):
            yield batch.slice(first, _ROWS)
