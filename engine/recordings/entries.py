"""The entries of a store: one for each layer of a recording, and the Arrow tables that hold them.

Tables are read and written some rows at a time. A store may have a million entries, and a Python process hardly ever
returns the memory of many objects, as a few live ones remain among them.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..markup import Cell, panel, table
from ..rrd import NEVER_CHANGES, StoreEntry, check_digest, digest_of, file_identity
from ..units import counted, size, utc_time

BASE_LAYER: Final = "base"
"""The layer of a recording without a layer name."""

Key = tuple[str, str, str, str]
"""The identity of a recording's layer."""


IpcStream = bytes
"""Rows as an Arrow IPC stream."""


class IndexRange(NamedTuple):
    """The first and last value of a timeline, in its units; ``kind`` is the value of a ``TimelineKind``."""

    name: str
    kind: str
    start: int
    end: int


def key_of(store: StoreEntry | RecordingEntry, layer: str = BASE_LAYER) -> Key:
    """The key of a layer in a store: kind, id and layer of the recording; for a blueprint, also the application id.

    For an entry, ``layer`` is not needed.
    """
    if isinstance(store, RecordingEntry):
        layer = store.layer
    return store.kind, store.application_id if store.kind == "blueprint" else "", store.recording_id, layer


def layers_digest(layers: Iterable[RecordingEntry]) -> str:
    """The digest of a recording's layers, which changes when a layer is added, removed or replaced."""
    marks = [(e.layer, e.added, e.segment_version, e.source_digest) for e in layers]
    return digest_of(repr(marks).encode()).hex()


@dataclass(frozen=True, slots=True)
class RecordingEntry:
    """A layer of a recording in a store.

    ``segment_version`` counts the contents of the source so far, from 1. If ``source_kept``, the source file stays in
    its place, and new content in it replaces this recording. ``rrd`` is the RRD written for it, relative to the folder
    of RRDs. ``manifest…`` give the place of its chunk table; empty if there is only an RRD. ``bytes`` is the stored
    size of its chunks; ``added`` is in seconds since the epoch.

    If ``removed``, the entry removes the earlier entry with the same key. If ``in_place``, its chunks are in files
    outside the store, and its manifest has their absolute paths. Such a file counts as unchanged while its size and
    modification time (in an object store, its ``source_etag``) are the same. ``schema`` is the digest of its columns
    (see :mod:`.schemas`), and ``ranges`` has the ranges of its timelines. ``properties`` is an Arrow IPC stream of one
    row, with the static values under ``/__properties``, or empty. These three are None if not yet known. The times of
    the chunks (:class:`Times`) are the ``times_size`` bytes after the manifest; ``times_digest`` is the digest of their
    directory. Before times are made, these are 0 and empty.
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
        """The store that the messages of its chunks name."""
        return StoreEntry(
            "blueprint" if self.kind == "blueprint" else "recording", self.application_id, self.recording_id
        )

    @property
    def listing_size(self) -> int:
        """The size of the manifest and of the times after it, in bytes."""
        return self.manifest_size + self.times_size

    @property
    def file_version(self) -> str:
        """The version of the files with its chunks, for :func:`open_positional`."""
        if not self.in_place:
            return NEVER_CHANGES
        return self.source_etag or file_identity(self.source_size, self.source_modified_ns)

    @property
    def key(self) -> Key:
        """The key of the entry, see :func:`key_of`."""
        return key_of(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as JSON data, with only the column names of ``properties``."""
        return {
            **{field.name: getattr(self, field.name) for field in fields(self)},
            "ranges": None if self.ranges is None else [some._asdict() for some in self.ranges],
            "properties": None if self.properties is None else _names_in(self.properties),
        }

    def takes_place_of(self, other: RecordingEntry) -> bool:
        """Return True if this entry hides the earlier ``other``.

        For a registered file, it is unknown whether the content changed.
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
            ("number of its contents so far", self.segment_version),
            ("manifest", self.manifest or None),
            ("shards", ", ".join(self.shards) or None),
            ("RRD", self.rrd),
        ]
        filled_rows = [row for row in rows if row[1]]
        return panel(f"Recording {self.recording_id}", facts, table(["", ""], filled_rows, len(filled_rows)))


def _names_in(properties: bytes) -> list[str]:
    return list(pa.ipc.open_stream(properties).schema.names) if properties else []


def removal_of(entry: RecordingEntry) -> RecordingEntry:
    """Return the entry for the removal of a recording."""
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
    """Return the current entry if it has the same source as ``before``, or None. Its chunks may have moved."""
    same = now is not None and (now.source, now.source_digest) == (before.source, before.source_digest)
    return now if same else None


def moved_to(now: RecordingEntry | None, moved: RecordingEntry) -> RecordingEntry | None:
    """Return the current entry with the source of ``moved``, or None if its content differs."""
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
"""The columns of a table of entries, with one row per entry."""

_SHARDS: Final = SCHEMA.get_field_index("shards")
_RANGES: Final = SCHEMA.get_field_index("ranges")
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
    """Return the entries in rows."""
    for batch in batches:
        columns = [column.to_pylist() for column in batch.select(SCHEMA.names).columns]
        columns[_SHARDS] = list(map(tuple, columns[_SHARDS]))
        columns[_RANGES] = [
            None if some is None else tuple([IndexRange(**one) for one in some]) for some in columns[_RANGES]
        ]
        yield from (RecordingEntry(*values) for values in zip(*columns, strict=True))


def table_of(batches: Iterable[pa.RecordBatch]) -> tuple[bytes, int]:
    """Rows as a compressed Arrow file, and their number."""
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
    count = 0
    with pa.ipc.new_file(sink, SCHEMA, options=options) as out:
        for batch in _joined(batches):
            out.write_batch(batch)
            count += batch.num_rows
    return sink.getvalue(), count


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches large enough to compress."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(b.num_rows for b in waiting) >= _ROWS:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def parse_table(data: bytes, digest: str) -> Iterator[pa.RecordBatch]:
    """The rows of a table. Raises ``ValueError`` if its digest differs, before Arrow reads a byte."""
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


Rows = npt.NDArray[np.int64]

_SCANS: Final = 16
"""Lookups in a column by scanning all rows before it is indexed: indexing 10,000 rows takes as long as 100 scans."""
_MOST_ADDED: Final = 4096
"""Entries that are kept as objects until they become rows."""


class LiveEntries:
    """The live entries of recordings, one per layer, in the order of arrival.

    A later entry replaces earlier ones (:meth:`RecordingEntry.takes_place_of`). Entries from tables are kept as rows; a
    few newly added ones are objects, of 1.7 kB each.
    """

    def __init__(self, entries: Iterable[RecordingEntry] = ()) -> None:
        self._begin(SCHEMA.empty_table())
        for entry in entries:
            self.add(entry)

    @classmethod
    def of_rows(cls, batches: Iterable[pa.RecordBatch]) -> LiveEntries:
        """Select the live entries from the rows of a store's tables, oldest first."""
        live = cls()
        whole = pa.Table.from_batches(batches, SCHEMA)
        rows = live_rows(whole)
        as_they_are = len(rows) == len(whole) and bool(np.all(np.diff(rows) == 1))
        live._begin(whole if as_they_are else whole.combine_chunks().take(rows))
        return live

    def _begin(self, table: pa.Table) -> None:
        """Start with these rows: all live, and in order."""
        self._rows = table
        self._added: list[RecordingEntry] = []
        self._alive = np.ones(len(table), dtype=bool)
        self._alive_added: list[bool] = []
        self._place = list[int]()
        self._next = len(table)
        self._indexes: dict[str, _Index] = {}
        self._scans = Counter[str]()
        self._table: pa.Table | None = table
        self._count = len(table)
        self.chunks, self.rows, self.bytes = (_sum(table[name]) for name in ("chunks", "rows", "bytes"))
        is_recording = pc.not_equal(table["kind"], "blueprint")
        self.recordings = pc.count_distinct(table["recording_id"].filter(is_recording)).as_py()
        self.layers = _sum(is_recording)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[RecordingEntry]:
        return entries_in(self.batches())

    @property
    def table(self) -> pa.Table:
        """The entries as rows of :data:`SCHEMA`, in order."""
        if self._table is None:
            added = [at for at, alive in enumerate(self._alive_added) if alive]
            places = np.array([self._place[at] for at in added], dtype=np.int64)
            remaining = np.flatnonzero(self._alive)
            rows = pa.Table.from_batches(rows_of(self._added[at] for at in added), SCHEMA)
            whole = pa.concat_tables([self._rows.take(remaining), rows]).combine_chunks()
            order = np.argsort(np.concatenate([remaining, places]), kind="stable")
            self._table = whole if bool(np.all(np.diff(order) == 1)) else whole.take(order)
        return self._table

    def columns(self, *names: str) -> pa.Table:
        """Return some columns of :attr:`table`."""
        return self.table.select(names)

    def schemas(self, kind: str = "recording") -> list[str | None]:
        """The schema digests of all layers of recordings, or of blueprints."""
        is_such = pc.equal(pc.equal(self.table["kind"], "blueprint"), kind == "blueprint")
        digests: list[str | None] = self.table["schema"].filter(is_such).to_pylist()
        return digests

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of :attr:`table` in batches."""
        return iter(self.table.to_batches(max_chunksize=_ROWS))

    def get(self, key: Key) -> RecordingEntry | None:
        """Return the entry of a key, or None."""
        return next((e for row in self._where("recording_id", key[2]) if (e := self._entry(row)).key == key), None)

    def of_recording(self, recording_id: str, kind: str = "recording") -> list[RecordingEntry]:
        """Return the entries of the layers of a recording, or of a blueprint."""
        entries = map(self._entry, self._where("recording_id", recording_id))
        return [entry for entry in entries if (entry.kind == "blueprint") == (kind == "blueprint")]

    def of_source(self, source: str) -> list[RecordingEntry]:
        """Return the recordings of the file at this path, if ``source_kept``."""
        return [e for row in self._where("source", source) if (e := self._entry(row)).source_kept]

    def of_digest(self, digest: str) -> list[RecordingEntry]:
        """Return the recordings of a file with this content."""
        return list(map(self._entry, self._where("source_digest", digest)))

    def of_rrd(self, rrd: str) -> RecordingEntry | None:
        """Return the last recording that was written to an RRD of this name."""
        rows = self._where("rrd", rrd)
        return self._entry(rows[-1]) if rows else None

    def add(self, entry: RecordingEntry) -> None:
        """Add an entry, and remove those that it replaces. With the same key and ``added``, it keeps their position."""
        place = self._next
        for row in self._same(entry):
            other = self._entry(row)
            if entry.takes_place_of(other):
                if other.key == entry.key and other.added == entry.added:
                    place = self._place_of(row)
                self._drop(row, other)
        if entry.removed:
            return
        if place == self._next:
            self._next += 1
        row = len(self._rows) + len(self._added)
        self._tally(entry, 1)
        for name, index in self._indexes.items():
            index.add(getattr(entry, name), row)
        self._added.append(entry)
        self._alive_added.append(True)
        self._place.append(place)
        self._table = None
        if len(self._added) >= max(_MOST_ADDED, len(self._rows)):
            self._begin(self.table)

    def _same(self, entry: RecordingEntry) -> list[int]:
        """The rows with the same id or source."""
        places = dict.fromkeys(self._where("recording_id", entry.recording_id))
        if entry.source:
            places |= dict.fromkeys(self._where("source", entry.source))
        return list(places)

    def _drop(self, row: int, entry: RecordingEntry) -> None:
        if row < len(self._rows):
            self._alive[row] = False
        else:
            self._alive_added[row - len(self._rows)] = False
        self._table = None
        self._tally(entry, -1)

    def _tally(self, entry: RecordingEntry, by: int) -> None:
        """Count an added entry (``by`` 1) or a removed one (-1)."""
        self._count += by
        if entry.kind != "blueprint":
            self.layers += by
            self.recordings += by * (not self.of_recording(entry.recording_id))
        self.chunks += by * entry.chunks
        self.rows += by * entry.rows
        self.bytes += by * entry.bytes

    def _place_of(self, row: int) -> int:
        return row if row < len(self._rows) else self._place[row - len(self._rows)]

    def _entry(self, row: int) -> RecordingEntry:
        if row >= len(self._rows):
            return self._added[row - len(self._rows)]
        return next(entries_in(self._rows.slice(row, 1).to_batches()))

    def _where(self, name: str, value: str) -> list[int]:
        """The live rows with ``value`` in column ``name``."""
        first = len(self._rows)
        index = self._indexes.get(name)
        if index is None and self._scans[name] < _SCANS:
            self._scans[name] += 1
            found = np.flatnonzero(pc.fill_null(pc.equal(self._rows[name], value), False)).tolist()
            found += [at for at, entry in enumerate(self._added, first) if getattr(entry, name) == value]
        else:
            if index is None:
                index = self._indexes[name] = _Index(self._rows[name].to_pylist())
                for at, entry in enumerate(self._added, first):
                    index.add(getattr(entry, name), at)
            found = index.rows(value)
        return [r for r in found if (self._alive[r] if r < first else self._alive_added[r - first])]


class _Index:
    """The rows of each value of a column."""

    def __init__(self, values: list[str | None]) -> None:
        self._first: dict[str, int] = {}
        self._more: dict[str, list[int]] = {}
        for row, value in enumerate(values):
            self.add(value, row)

    def add(self, value: str | None, row: int) -> None:
        """Add a row with a value."""
        if value is not None and self._first.setdefault(value, row) != row:
            self._more.setdefault(value, []).append(row)

    def rows(self, value: str) -> list[int]:
        """The rows with a value, ascending."""
        first = self._first.get(value)
        return [] if first is None else [first, *self._more.get(value, ())]


def live_rows(table: pa.Table) -> Rows:
    """The numbers of a table's live rows, in order of arrival.

    A row is not live if a later row replaces it: a row with its key, or, if its source is kept, a row with another
    known content of that source that is not a removal. A row that only got another source keeps its place: that of the
    row before it with its key, added at the same time.
    """
    keys, removed = _keys(table), _numpy(table["removed"])
    following = _next_of(keys)
    is_live = ~removed & (following < 0)
    displaced = _displaced(table, removed)
    is_live &= displaced == len(table)
    return _in_order(np.flatnonzero(is_live), keys, _numpy(table["added"]), removed, displaced)


def _keys(table: pa.Table) -> Rows:
    """A number for each row, the same for rows with the same key."""
    application = pc.if_else(pc.equal(table["kind"], "blueprint"), table["application_id"], "")
    codes = _codes(table["recording_id"])
    for column in (table["kind"], application, table["layer"]):
        more = _codes(column)
        codes = np.unique(codes * (int(more.max(initial=0)) + 1) + more, return_inverse=True)[1].astype(np.int64)
    return codes


def _next_of(codes: Rows) -> Rows:
    """For each row, the next row with the same number, or -1."""
    order = np.argsort(codes, kind="stable")
    same = codes[order][1:] == codes[order][:-1]
    following = np.full(len(codes), -1, dtype=np.int64)
    following[order[:-1][same]] = order[1:][same]
    return following


def _displaced(table: pa.Table, removed: npt.NDArray[Any]) -> Rows:
    """Return for each row the first later row with another content of its source, or the table's length.

    Rows whose source is not kept have none.
    """
    count = len(table)
    displacers = np.full(count, count, dtype=np.int64)
    candidates = np.flatnonzero(~removed & _numpy(pc.not_equal(table["source_digest"], "")))
    sources, digests = _codes(table["source"])[candidates], _codes(table["source_digest"])[candidates]
    order = np.argsort(sources, kind="stable")
    if not len(order):
        return displacers
    sources, digests, rows = sources[order], digests[order], candidates[order]
    starts = np.append(True, (sources[1:] != sources[:-1]) | (digests[1:] != digests[:-1]))
    run = np.cumsum(starts) - 1
    first = np.flatnonzero(starts)
    follows = np.append(sources[first][1:] == sources[first][:-1], False)
    following = np.where(follows, rows[np.append(first[1:], 0)], count)
    displacers[rows] = following[run]
    return np.where(_numpy(table["source_kept"]), displacers, count)


def _in_order(live: Rows, keys: Rows, added: npt.NDArray[Any], removed: npt.NDArray[Any], displaced: Rows) -> Rows:
    """The live rows, sorted by place."""
    order = np.argsort(keys, kind="stable")
    before, after = order[:-1], order[1:]
    stays = (keys[before] == keys[after]) & (added[before] == added[after]) & ~removed[before] & ~removed[after]
    stays &= displaced[before] >= after
    place = np.arange(len(keys))
    for earlier, later in zip(before[stays].tolist(), after[stays].tolist(), strict=True):
        place[later] = place[earlier]
    return live[np.argsort(place[live], kind="stable")]


def _codes(column: pa.ChunkedArray) -> Rows:
    """A number for each value."""
    indices = column.combine_chunks().dictionary_encode().indices
    return np.asarray(indices.to_numpy(zero_copy_only=False), dtype=np.int64)


def _numpy(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    return np.asarray(column.to_numpy())


def _sum(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)
