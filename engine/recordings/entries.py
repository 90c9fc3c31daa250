"""Recordings of a store: the entry of each layer, and the Arrow tables that hold them.

Tables are read and written some rows at a time. A store may have a million; and what a process of Python has taken once
for the objects of many rows it hardly ever gives back, as a few that stay lie between them.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any, Final, NamedTuple

import pyarrow as pa

from ..markup import Cell, panel, table
from ..rrd import NEVER_CHANGES, StoreEntry, check_digest, file_identity
from ..units import counted, size, utc_time

BASE_LAYER: Final = "base"
"""The layer of a recording that nobody named one for."""

Key = tuple[str, str, str, str]
"""What a layer of a recording is known by."""


IpcStream = bytes
"""Rows as a stream of Arrow IPC."""


class IndexRange(NamedTuple):
    """The first and the last value of a timeline, in its units; ``kind`` is that of a ``TimelineKind``."""

    name: str
    kind: str
    start: int
    end: int


def key_of(store: StoreEntry | RecordingEntry, layer: str = BASE_LAYER) -> Key:
    """The key of a layer of a recording in a store: kind, id and layer; of a blueprint, with its application's id.

    An entry has its own layer.
    """
    if isinstance(store, RecordingEntry):
        layer = store.layer
    return store.kind, store.application_id if store.kind == "blueprint" else "", store.recording_id, layer


@dataclass(frozen=True, slots=True)
class RecordingEntry:
    """A layer of a recording of a store.

    ``segment_version`` counts the contents that its source has had, from 1. ``source_kept``: the source file stays
    where it was, so another content under its name takes this recording's place. ``rrd`` is the RRD that was written
    for it, relative to their folder. ``manifest…`` is where the rows of its chunks lie, empty where only an RRD is
    kept. ``bytes`` are those of its chunks as stored; ``added`` is in seconds since the epoch.

    ``removed``: it only says that what had its key is gone. ``in_place``: its chunks lie in files that are not the
    store's, which its manifest names by their absolute places; they are those that were registered as long as their
    size and modification time are, or ``source_etag`` in an object store. ``schema`` is the digest of its columns (see
    :mod:`.schemas`), ``ranges`` are those of its timelines, and ``properties`` one row of an Arrow IPC stream with the
    static values under ``/__properties``, empty where there are none; the three are None where that is not known yet.

    ``times_size`` bytes right behind the manifest are the times of the chunks (:class:`Times`), ``times_digest`` is
    that of their directory; 0 and empty where they were not made yet.
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
    layer: str = BASE_LAYER
    removed: bool = False
    in_place: bool = False
    source_etag: str | None = None
    schema: str | None = None
    ranges: tuple[IndexRange, ...] | None = None
    properties: IpcStream | None = None
    times_size: int = 0
    times_digest: str = ""

    @property
    def store(self) -> StoreEntry:
        """The store that its chunks' messages name."""
        return StoreEntry(
            "blueprint" if self.kind == "blueprint" else "recording", self.application_id, self.recording_id
        )

    @property
    def listing_size(self) -> int:
        """The bytes of its manifest and of the times behind it."""
        return self.manifest_size + self.times_size

    @property
    def file_version(self) -> str:
        """The version of the files that its chunks lie in, as :func:`open_positional` takes it."""
        if not self.in_place:
            return NEVER_CHANGES
        return self.source_etag or file_identity(self.source_size, self.source_modified_ns)

    @property
    def key(self) -> Key:
        """The key that it is known by."""
        return key_of(self)

    def to_dict(self) -> dict[str, Any]:
        """As JSON data; ``properties`` are the names of its columns."""
        return {
            **{field.name: getattr(self, field.name) for field in fields(self)},
            "ranges": None if self.ranges is None else [some._asdict() for some in self.ranges],
            "properties": None if self.properties is None else _names_in(self.properties),
        }

    def takes_place_of(self, other: RecordingEntry) -> bool:
        """Whether ``other``, which came earlier, is no longer to be seen once this is there.

        Of a file that was registered it is not known whether its content is that of before.
        """
        if self.removed:
            return other.key == self.key
        same_file = other.source_kept and self.source_digest != "" and other.source == self.source
        return (same_file and other.source_digest != self.source_digest) or other.key == self.key

    def _repr_html_(self) -> str:
        facts = [
            self.kind,
            f"application {self.application_id}",
            counted(self.chunks, "chunk"),
            counted(self.rows, "row"),
            size(self.bytes),
            f"added {utc_time(self.added, 'seconds')}",
        ]
        rows: list[tuple[str, Cell]] = [
            ("source", self.source),
            ("size of the source", size(self.source_size)),
            ("its digest", self.source_digest),
            ("contents that it has had", self.segment_version),
            ("manifest", self.manifest or None),
            ("shards", ", ".join(self.shards) or None),
            ("RRD", self.rrd),
        ]
        there = [row for row in rows if row[1]]
        return panel(f"Recording {self.recording_id}", facts, table(["", ""], there, len(there)))


def _names_in(properties: bytes) -> list[str]:
    return list(pa.ipc.open_stream(properties).schema.names) if properties else []


def removal_of(entry: RecordingEntry) -> RecordingEntry:
    """The entry that says that a recording is gone."""
    return replace(
        entry,
        removed=True,
        rrd=None,
        manifest="",
        manifest_offset=0,
        manifest_size=0,
        manifest_digest="",
        shards=(),
        chunks=0,
        rows=0,
        bytes=0,
        schema=None,
        ranges=None,
        properties=None,
        times_size=0,
        times_digest="",
    )


def still(now: RecordingEntry | None, before: RecordingEntry) -> RecordingEntry | None:
    """The entry of a recording as it is ``now``, where it is still the one of ``before``, wherever its chunks lie."""
    same = now is not None and (now.source, now.source_digest) == (before.source, before.source_digest)
    return now if same else None


def moved_to(now: RecordingEntry | None, moved: RecordingEntry) -> RecordingEntry | None:
    """The entry of a recording as it is ``now``, with the source of ``moved``, where it has the same content."""
    if now is None or now.source_digest != moved.source_digest:
        return None
    return replace(
        now,
        source=moved.source,
        source_size=moved.source_size,
        source_modified_ns=moved.source_modified_ns,
        source_kept=moved.source_kept,
    )


_ARROW: Final = {
    "str": pa.string(),
    "str | None": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "tuple[str, ...]": pa.list_(pa.string()),
    "IpcStream | None": pa.binary(),
    "tuple[IndexRange, ...] | None": pa.list_(
        pa.struct([("name", pa.string()), ("kind", pa.string()), ("start", pa.int64()), ("end", pa.int64())])
    ),
}
SCHEMA: Final = pa.schema([(field.name, _ARROW[str(field.type)]) for field in fields(RecordingEntry)])
"""One row an entry."""

_KINDS: Final = [(field.name, field.type) for field in SCHEMA]
_MAY_LACK: Final = frozenset({"rrd", "source_etag", "schema", "ranges", "properties"})
_OF_FORMAT_3: Final = pa.schema(list(SCHEMA)[: SCHEMA.get_field_index("layer")])
_DEFAULTS: Final = {f.name: f.default for f in fields(RecordingEntry) if f.name not in _OF_FORMAT_3.names}
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
            row["shards"] = tuple(row["shards"])
            if row["ranges"] is not None:
                row["ranges"] = tuple([IndexRange(**some) for some in row["ranges"]])
            yield RecordingEntry(**row)


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
    if reader.schema not in (SCHEMA, _OF_FORMAT_3):
        raise ValueError(f"its columns are {', '.join(reader.schema.names)}")
    for at in range(reader.num_record_batches):
        batch = reader.get_batch(at)
        batch.validate(full=True)
        batch = _widened(batch)
        lacking = [name for name in SCHEMA.names if name not in _MAY_LACK and batch[name].null_count]
        ranges, shards = batch["ranges"].flatten(), batch["shards"].flatten()
        if shards.null_count or any(part.null_count for part in (ranges, *ranges.flatten())):
            lacking.append("whole list of shards or ranges")
        if lacking:
            raise ValueError(f"an entry has no {lacking[0]}")
        for first in range(0, batch.num_rows, _ROWS):
            yield batch.slice(first, _ROWS)


def _widened(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with all columns of :data:`SCHEMA`: those of format 3 lack the last ones."""
    if batch.schema == SCHEMA:
        return batch
    more = [pa.array([default] * batch.num_rows, SCHEMA.field(name).type) for name, default in _DEFAULTS.items()]
    return pa.record_batch([*batch.columns, *more], schema=SCHEMA)
