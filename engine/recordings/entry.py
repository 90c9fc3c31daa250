"""What a store knows of each of its recordings, and the Arrow tables that hold it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ..rrd import StoreEntry
from ..rrd.digest import check_digest

SCHEMA = pa.schema(
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

_COLUMNS: Final = [(field.name, field.type) for field in SCHEMA]
_ROWS: Final = 256

Key = tuple[str, str, str]
"""What a recording is known by."""


def key_of(store: StoreEntry | RecordingEntry) -> Key:
    """What a recording is known by in a store: its id; a blueprint, by that of its application too."""
    return store.kind, store.application_id if store.kind == "blueprint" else "", store.recording_id


@dataclass(frozen=True, slots=True)
class RecordingEntry:
    """A recording of a store.

    ``segment_version`` counts the contents that its source has had, from 1. ``source_kept``: the source file stays
    where it was, so another content under its name takes this recording's place. ``rrd`` is the RRD that was written
    for it, relative to their folder. ``manifest…`` is where the rows of its chunks lie, empty where only an RRD is
    kept. ``bytes`` are those of its chunks as stored; ``added`` is in seconds since the epoch.
    """

    recording_id: str
    application_id: str
    kind: str
    segment_version: int
    source: str
    source_size: int
    source_modified_ns: int
    source_digest: str
    source_kept: bool
    rrd: str | None
    manifest: str
    manifest_offset: int
    manifest_size: int
    manifest_digest: str
    shards: tuple[str, ...]
    chunks: int
    rows: int
    bytes: int
    query_id: str
    batch: int
    added: float

    @property
    def store(self) -> StoreEntry:
        """The store that its chunks' messages name."""
        return StoreEntry(
            "blueprint" if self.kind == "blueprint" else "recording", self.application_id, self.recording_id
        )

    @property
    def key(self) -> Key:
        """What it is known by."""
        return key_of(self)

    def takes_place_of(self, other: RecordingEntry) -> bool:
        """Whether ``other``, which came earlier, is no longer to be seen once this is there."""
        same_file = other.source_kept and other.source == self.source and other.source_digest != self.source_digest
        return same_file or other.key == self.key


def table_of(entries: Sequence[RecordingEntry]) -> pa.Table:
    """Entries as rows of :data:`SCHEMA`."""
    columns = (pa.array([getattr(entry, name) for entry in entries], kind) for name, kind in _COLUMNS)
    return pa.table(list(columns), schema=SCHEMA)


def table_bytes(table: pa.Table) -> bytes:
    """A table of entries as an Arrow file, compressed."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
    with pa.ipc.new_file(sink, SCHEMA, options=options) as out:
        out.write_table(table.combine_chunks())
    return bytes(sink.getvalue().to_pybytes())


def parse_table(data: bytes, digest: str) -> pa.Table:
    """A table of entries. Raises ``ValueError`` where it is another, before Arrow looks at a byte of it."""
    check_digest(data, digest)
    table = pa.ipc.open_file(pa.py_buffer(data), options=pa.ipc.IpcReadOptions(use_threads=False)).read_all()
    table.validate(full=True)
    if table.schema != SCHEMA:
        raise ValueError(f"it has the columns {', '.join(table.column_names)}")
    return table


def entries_in(table: pa.Table) -> Iterator[RecordingEntry]:
    """The entries of a table, in its order. Only a few rows at a time are dictionaries, which take three times more."""
    for batch in table.to_batches(_ROWS):
        for row in batch.to_pylist():
            yield RecordingEntry(**{**row, "shards": tuple(row["shards"])})
