"""Recordings of a store: the entry of each, the Arrow tables that hold them, and which of them are to be seen.

Tables are read and written some rows at a time. A store may have a million; and what a process of Python has taken once
for the objects of many rows it hardly ever gives back, as a few that stay lie between them.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import islice
from typing import Final

import pyarrow as pa

from ..rrd import StoreEntry, check_digest

Key = tuple[str, str, str]
"""What a recording is known by."""


def key_of(store: StoreEntry | RecordingEntry) -> Key:
    """The key of a recording in a store: its id; of a blueprint, with that of its application."""
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
        """The key that it is known by."""
        return key_of(self)

    def takes_place_of(self, other: RecordingEntry) -> bool:
        """Whether ``other``, which came earlier, is no longer to be seen once this is there."""
        same_file = other.source_kept and other.source == self.source and other.source_digest != self.source_digest
        return same_file or other.key == self.key


_ARROW: Final = {
    "str": pa.string(),
    "str | None": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "tuple[str, ...]": pa.list_(pa.string()),
}
SCHEMA: Final = pa.schema([(field.name, _ARROW[str(field.type)]) for field in fields(RecordingEntry)])
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


class LiveEntries:
    """Recordings in the order of their arrival; a later one takes the place of what it replaces."""

    def __init__(self, entries: Iterable[RecordingEntry] = ()) -> None:
        self._by_key: dict[Key, RecordingEntry] = {}
        self._of_source: dict[str, dict[Key, RecordingEntry]] = {}
        self._of_digest: dict[str, dict[Key, RecordingEntry]] = {}
        self._of_rrd: dict[str, RecordingEntry] = {}
        self.recordings = self.chunks = self.rows = self.bytes = 0
        for entry in entries:
            self.add(entry)

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[RecordingEntry]:
        return iter(self._by_key.values())

    def get(self, key: Key) -> RecordingEntry | None:
        """The recording of a key."""
        return self._by_key.get(key)

    def of_source(self, source: str) -> list[RecordingEntry]:
        """The recordings of the file that is at this path, if it stays there."""
        return list(self._of_source.get(source, {}).values())

    def of_digest(self, digest: str) -> list[RecordingEntry]:
        """The recordings of a file of this content."""
        return list(self._of_digest.get(digest, {}).values())

    def of_rrd(self, rrd: str) -> RecordingEntry | None:
        """The recordings that were written to an RRD of this name."""
        return self._of_rrd.get(rrd)

    def add(self, entry: RecordingEntry) -> None:
        """Add a recording; what it takes the place of goes. One that is there already keeps its place."""
        there = {**self._of_source.get(entry.source, {})}
        if entry.key in self._by_key:
            there[entry.key] = self._by_key[entry.key]
        for key, other in there.items():
            if entry.takes_place_of(other):
                self._remove(other)
                if key != entry.key or other.added != entry.added:
                    del self._by_key[key]
        self._by_key[entry.key] = entry
        if entry.source_kept:
            self._of_source.setdefault(entry.source, {})[entry.key] = entry
        self._of_digest.setdefault(entry.source_digest, {})[entry.key] = entry
        if entry.rrd is not None:
            self._of_rrd[entry.rrd] = entry
        self._count(entry, 1)

    def _remove(self, entry: RecordingEntry) -> None:
        for index, name in ((self._of_source, entry.source), (self._of_digest, entry.source_digest)):
            found = index.get(name, {})
            found.pop(entry.key, None)
            if not found:
                index.pop(name, None)
        if entry.rrd is not None and self._of_rrd.get(entry.rrd) == entry:
            self._of_rrd.pop(entry.rrd)
        self._count(entry, -1)

    def _count(self, entry: RecordingEntry, by: int) -> None:
        self.recordings += by * (entry.kind == "recording")
        self.chunks += by * entry.chunks
        self.rows += by * entry.rows
        self.bytes += by * entry.bytes
