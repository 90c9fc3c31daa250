"""What a store knows of each of its recordings, and the Arrow tables that hold it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from ..rrd import StoreEntry
from ..rrd.digest import digest_of

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
        return StoreEntry("blueprint" if self.kind == "blueprint" else "recording", self.application_id, self.recording_id)

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is known by: recordings by their id, blueprints by that of their application too."""
        return self.kind, self.application_id if self.kind == "blueprint" else "", self.recording_id

    def takes_place_of(self, other: RecordingEntry) -> bool:
        """Whether ``other``, which came earlier, is no longer to be seen once this is there."""
        same_file = other.source_kept and other.source == self.source and other.source_digest != self.source_digest
        return same_file or other.key == self.key


def table_bytes(entries: Iterable[RecordingEntry]) -> bytes:
    """Entries as an Arrow file, compressed."""
    table = pa.Table.from_pylist([asdict(e) for e in entries], schema=SCHEMA)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, SCHEMA, options=options) as out:
        out.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def parse_table(data: bytes, digest: str) -> list[RecordingEntry]:
    """The entries of a table, verified before Arrow looks at a byte of it. Raises ``ValueError`` where it is damaged."""
    if digest_of(data).hex() != digest:
        raise ValueError("it is not what was written: its digest differs")
    table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
    table.validate(full=True)
    return [RecordingEntry(**{**row, "shards": tuple(row["shards"])}) for row in table.to_pylist()]


class LiveEntries:
    """The recordings that are to be seen, of all that were ever added, in the order of their arrival."""

    def __init__(self, entries: Iterable[RecordingEntry] = ()) -> None:
        self._by_key: dict[tuple[str, str, str], RecordingEntry] = {}
        self._of_source: dict[str, dict[tuple[str, str, str], RecordingEntry]] = {}
        self._of_digest: dict[str, set[tuple[str, str, str]]] = {}
        for entry in entries:
            self.add(entry)

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[RecordingEntry]:
        return iter(self._by_key.values())

    def all(self) -> Sequence[RecordingEntry]:
        """All of them."""
        return list(self._by_key.values())

    def get(self, key: tuple[str, str, str]) -> RecordingEntry | None:
        """The recording of a key."""
        return self._by_key.get(key)

    def of_source(self, source: str) -> list[RecordingEntry]:
        """What came from the file that is at this path, if it stays there."""
        return list(self._of_source.get(source, {}).values())

    def has_digest(self, digest: str) -> bool:
        """Whether a recording came from a file of this content."""
        return bool(self._of_digest.get(digest))

    def of_digest(self, digest: str) -> list[RecordingEntry]:
        """What came from a file of this content."""
        return [self._by_key[key] for key in self._of_digest.get(digest, ())]

    def add(self, entry: RecordingEntry) -> None:
        """Add a recording; what it takes the place of goes."""
        for other in [self._by_key.get(entry.key), *self.of_source(entry.source)]:
            if other is not None and entry.takes_place_of(other):
                self.remove(other)
        self._by_key[entry.key] = entry
        if entry.source_kept:
            self._of_source.setdefault(entry.source, {})[entry.key] = entry
        self._of_digest.setdefault(entry.source_digest, set()).add(entry.key)

    def remove(self, entry: RecordingEntry) -> None:
        """Remove a recording."""
        if self._by_key.pop(entry.key, None) is None:
            return
        for index, name in ((self._of_source, entry.source), (self._of_digest, entry.source_digest)):
            found = index.get(name)
            if found is None:
                continue
            if isinstance(found, dict):
                found.pop(entry.key, None)
            else:
                found.discard(entry.key)
            if not found:
                index.pop(name)
