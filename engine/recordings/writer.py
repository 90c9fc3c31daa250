"""Committing recordings to a store, a batch at a time."""

from __future__ import annotations

import contextlib
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import Chunk, Schema, is_property
from ..errors import ChunkmillError, CommitUnknownError, ReadError, ReadWarning, UsageError, WriteError, writing
from ..execution import SHARD_BYTES, PartChunk, Staging
from ..faults import reach
from ..rrd import NEVER_CHANGES, StoreEntry, VerifiedPayload, digest_of, keeping_open
from .entries import Key, RecordingEntry, rows_of, table_of
from .folder import RecordingsFolder, manifest_bytes, table_of_parts
from .lease import Lease
from .live import LiveEntries
from .new_files import NewFiles, put_durably
from .schemas import SchemaFiles
from .summaries import properties_of, ranges_of
from .vacuum import vacuum_folder
from .versions import RecordingsVersion, TableRef


@dataclass(frozen=True, slots=True)
class Origin:
    """The file that recordings come from. ``kept``: it stays where it is."""

    path: str
    size: int
    modified_ns: int
    digest: str
    kept: bool = True


@dataclass(frozen=True, slots=True)
class Arrived:
    """A recording that is to be committed: its chunks in parts of the staging folder, with digests, in their order.

    ``keep_chunks``: whether the store takes them, or only notes the recording, whose chunks are in the RRD ``rrd``.
    """

    store: StoreEntry
    source: Origin
    chunks: Sequence[PartChunk]
    rrd: str | None = None
    keep_chunks: bool = True


@dataclass(frozen=True, slots=True)
class Commit:
    """The facts of a commit beside its recordings: whose batch it is, and the figures of the version."""

    operation: str = "ingest"
    query_id: str = ""
    batch: int = 0
    files: Mapping[str, int] = field(default_factory=dict)
    bytes_in: int = 0
    began: float = field(default_factory=lambda: time.perf_counter())  # not itself: tests stop the clock


class StoreWriter:
    """The one writer of a store; ``lease`` is what makes it the one.

    It knows the entries of the newest version, and its own since then.
    """

    def __init__(self, folder: RecordingsFolder, lease: Lease | None = None, *, shard_bytes: int = SHARD_BYTES) -> None:
        if shard_bytes <= 0:
            raise UsageError(f"shard_bytes must be positive, not {shard_bytes}")
        self.folder = folder
        self._lease = lease
        self._shard_bytes = shard_bytes
        self._may_be_visible = False
        self._is_behind = False
        self._new_table: str | None = None
        self._is_complete = False
        folder.prepare()
        self.version: RecordingsVersion | None = None
        self.live = LiveEntries()
        self.refresh()

    def refresh(self) -> None:
        """Look at the newest version anew."""
        self.version = self.folder.newest()
        self.live = self.folder.live(self.version) if self.version else LiveEntries()
        self._is_behind = False

    @property
    def number(self) -> int:
        """The number of the newest version, 0 before the first."""
        return self.version.number if self.version else 0

    def is_done(self, query_id: str, batch: int) -> bool:
        """Whether the store holds this batch of this query already."""
        self.catch_up()
        return self.version is not None and self.version.batches.get(query_id, 0) >= batch

    @property
    def shard_bytes(self) -> int:
        """The size that shards get, about."""
        return self._shard_bytes

    def commit(
        self,
        staging: Staging,
        arrived: Sequence[Arrived],
        commit: Commit,
        *,
        moved: Sequence[RecordingEntry] = (),
        gone: Sequence[RecordingEntry] = (),
    ) -> RecordingsVersion:
        """Bring recordings from their parts into the store, and publish the version that has them.

        ``moved`` are entries of recordings that are there already, with another source; those that are ``gone`` are
        not in it any more.

        Guarantee: readers see all of it or nothing. Raises ``WriteError`` where it was certainly not committed (what
        was written for it is removed), ``CommitUnknownError`` where that is not known (nothing is removed).
        """
        self.catch_up()
        self.complete()
        properties = [_properties(one, staging) for one in arrived]
        files = NewFiles(self.folder, staging, self._shard_bytes)
        with self.undoing(files):
            elsewhere = {entry.key: entry for entry in moved}
            new = self._bring_in(arrived, properties, commit, files, elsewhere)
            if all(any(one.takes_place_of(old) for one in (*moved, *new)) for old in gone):
                return self.publish([*moved, *new], commit)
            left = {entry.key for entry in gone}
            stay = [elsewhere.get(entry.key, entry) for entry in self.live if entry.key not in left]
            return self.rewrite([*stay, *new], commit)

    def complete(self) -> None:
        """Publish a version in which entries of format 3 say their schema, ranges and properties, if there are any.

        One whose chunks cannot be read stays as it is, with a warning. Raises as :meth:`commit` does.
        """
        if self._is_complete:
            return
        self._is_complete = True
        table = self.live.columns("schema", "manifest")
        if not pc.any(pc.and_(pc.is_null(table["schema"]), pc.not_equal(table["manifest"], ""))).as_py():
            return
        schemas = SchemaFiles(self.folder)
        self.rewrite([self._completed(entry, schemas) for entry in self.live], Commit("upgrade"))

    def _completed(self, entry: RecordingEntry, schemas: SchemaFiles) -> RecordingEntry:
        if entry.schema is not None or not entry.manifest:
            return entry
        try:
            schema, ranges, properties = self.folder.summary(entry)
        except ReadError as error:
            warnings.warn(f"the columns of {entry.recording_id} are not known: {error}", ReadWarning, stacklevel=2)
            return entry
        return replace(entry, schema=schemas.put(schema), ranges=ranges, properties=properties)

    @contextlib.contextmanager
    def undoing(self, files: NewFiles) -> Iterator[None]:
        """Remove ``files`` where what is done within fails, and no version can name them."""
        self._may_be_visible = False
        try:
            yield
        except BaseException:
            if not self._may_be_visible:
                files.discard()
            raise

    def publish(self, entries: Sequence[RecordingEntry], commit: Commit) -> RecordingsVersion:
        """Publish a version with more entries, whose chunks are in place. Raises as :meth:`commit` does."""
        self.complete()
        return self._publish(entries, commit, anew=False)

    def rewrite(self, entries: Sequence[RecordingEntry], commit: Commit) -> RecordingsVersion:
        """Publish a version of these entries alone, in one table. Raises as :meth:`commit` does."""
        return self._publish(entries, commit, anew=True)

    def _publish(self, entries: Sequence[RecordingEntry], commit: Commit, *, anew: bool) -> RecordingsVersion:
        if self._is_behind:
            raise WriteError("a commit failed, and the store was not looked at since", path=str(self.folder.path))
        self._may_be_visible = False
        self._new_table = None
        try:
            version = self._next(entries, commit, anew=anew)
            self.check()
            self._may_be_visible = True
            self.folder.publish(version)
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, CommitUnknownError):
                self._may_be_visible = False
                self._remove_table()
            self._is_behind = True
            base = self.number
            with contextlib.suppress(ChunkmillError, OSError):  # the next use tries again
                self.refresh()
            if isinstance(error, ReadError) and self.number != base:
                raise self.folder.files.taken(base + 1) from error  # what it was to be built upon is removed by now
            raise
        self.version = version
        reach("version.done")
        return version

    def check(self) -> None:
        """Raise a transient ``WriteError`` where another has become the one writer: what is begun is in vain."""
        if self._lease is not None:
            self._lease.check()

    def vacuum(self, *, keep: int, older_than_seconds: float) -> int:
        """See :meth:`RecordingStore.vacuum`."""
        self.catch_up()
        if self.version is None:
            return 0
        self._is_behind = True
        self.check()
        self.version, freed = vacuum_folder(self.folder, self.version, keep=keep, older_than_seconds=older_than_seconds)
        self._is_behind = False
        return freed

    def _remove_table(self) -> None:
        if self._new_table is not None:
            with contextlib.suppress(OSError, WriteError):
                self.folder.tables.delete([self._new_table])

    def catch_up(self) -> None:
        """Look at the newest version anew, where a commit has failed.

        To be called before the first file of a run is written, and not again until it is published.
        """
        if self._is_behind:
            self.refresh()

    def _bring_in(
        self,
        arrived: Sequence[Arrived],
        properties: Sequence[bytes],
        commit: Commit,
        files: NewFiles,
        moved: Collection[Key],
    ) -> list[RecordingEntry]:
        places = {id(a): files.shards.add(a.store, a.chunks) for a in arrived if a.keep_chunks}
        schemas = SchemaFiles(self.folder)
        entries = []
        for one, values in zip(arrived, properties, strict=True):
            chunks = places.get(id(one), list(one.chunks))
            data = manifest_bytes(table_of_parts(chunks)) if one.keep_chunks else b""
            name, offset = files.add_manifest(data) if data else ("", 0)
            entry = self._entry(one, chunks, commit, name, offset, data)
            schema = schemas.put(Schema.from_headers(c.entry.header for c in chunks).to_arrow())
            entry = replace(
                entry,
                schema=schema,
                ranges=ranges_of(t for c in chunks for t in c.entry.header.timelines),
                properties=values,
            )
            entries.append(self._counted(entry, moved))
        files.finish()
        return entries

    def _entry(
        self, one: Arrived, chunks: Sequence[PartChunk], commit: Commit, name: str, offset: int, manifest: bytes
    ) -> RecordingEntry:
        source = one.source
        return RecordingEntry(
            recording_id=one.store.recording_id,
            application_id=one.store.application_id,
            kind=one.store.kind,
            segment_version=1,
            source=source.path,
            source_size=source.size,
            source_modified_ns=source.modified_ns,
            source_digest=source.digest,
            source_kept=source.kept,
            rrd=one.rrd,
            manifest=name,
            manifest_offset=offset,
            manifest_size=len(manifest),
            manifest_digest=digest_of(manifest).hex() if manifest else "",
            shards=tuple(dict.fromkeys(c.part for c in chunks)) if manifest else (),
            chunks=len(chunks),
            rows=sum(c.entry.header.num_rows for c in chunks),
            bytes=sum(c.entry.size for c in chunks),
            query_id=commit.query_id,
            batch=commit.batch,
            added=time.time(),
        )

    def _counted(self, entry: RecordingEntry, moved: Collection[Key]) -> RecordingEntry:
        """An entry with its segment version, which is one above those whose place it takes."""
        before = [self.live.get(entry.key), *(e for e in self.live.of_source(entry.source) if e.key not in moved)]
        earlier = [e.segment_version for e in before if e is not None and entry.takes_place_of(e)]
        return replace(entry, segment_version=max(earlier, default=0) + 1) if earlier else entry

    def _next(self, entries: Sequence[RecordingEntry], commit: Commit, *, anew: bool) -> RecordingsVersion:
        """The version after this one, with these entries, or ``anew`` of them alone; its tables are written."""
        if anew:
            self.live = LiveEntries()
        for entry in entries:
            self.live.add(entry)
        before = self.version
        batches = dict(before.batches) if before else {}
        if commit.query_id:
            batches[commit.query_id] = commit.batch
        return RecordingsVersion(
            number=self.number + 1,
            created=time.time(),
            operation=commit.operation,
            tables=self._tables(before.tables if before and not anew else (), entries),
            batches=batches,
            recordings=self.live.recordings,
            chunks=self.live.chunks,
            rows=self.live.rows,
            bytes=self.live.bytes,
            files=dict(commit.files),
            bytes_in=commit.bytes_in,
            seconds=time.perf_counter() - commit.began,
            totals=dict(Counter(before.totals if before else {}) + Counter(commit.files)),
            first=before.first if before else 0,
        )

    def _tables(self, before: Sequence[TableRef], entries: Sequence[RecordingEntry]) -> tuple[TableRef, ...]:
        """The tables of the next version. Those that are not much larger than what is added are merged with it.

        So their number stays logarithmic, and an entry is written again a logarithmic number of times.
        """
        if not entries:
            return tuple(before)
        tables, merged = list(before), list[TableRef]()
        count = len(entries)
        while tables and tables[-1].entries <= 2 * count:
            merged.insert(0, tables.pop())
            count += merged[0].entries
        rows: Iterable[pa.RecordBatch] = chain(*map(self.folder.rows, merged), rows_of(entries))
        if not tables and count > len(self.live):  # else one that was replaced must go on hiding what it replaced
            rows = self.live.batches()
        data, count = table_of(rows)
        name = self._new_table = f"{uuid.uuid4().hex}.arrow"
        with writing(str(self.folder.path)):
            put_durably(self.folder.tables, name, data)
            reach("table.write", self.folder.tables.place(name))
        return (*tables, TableRef(name, digest_of(data).hex(), count))


def _properties(one: Arrived, staging: Staging) -> bytes:
    """The properties of a recording, whose chunks lie in parts."""
    found = [c for c in one.chunks if c.entry.header.is_static and is_property(c.entry.header.entity_path)]
    with keeping_open():
        return properties_of(_in_part(c, one.store, staging) for c in found)


def _in_part(chunk: PartChunk, store: StoreEntry, staging: Staging) -> Chunk:
    place = staging.folder.place(chunk.part)
    return Chunk.lazy(chunk.entry.header, VerifiedPayload.of(place, chunk.entry, version=NEVER_CHANGES, store=store))
