"""Committing recordings to a store, a batch at a time."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import Chunk, ChunkHeader, Schema, is_property
from ..errors import ChunkmillError, CommitUnknownError, ReadError, ReadWarning, UsageError, WriteError, writing
from ..execution import SHARD_BYTES, Lease, PartChunk, Staging
from ..faults import reach
from ..rrd import NEVER_CHANGES, ChunkTable, StoreEntry, VerifiedPayload, digest_of, keeping_open
from ..storage import author, publish
from .entries import (
    BASE_LAYER,
    Key,
    LiveEntries,
    RecordingEntry,
    key_of,
    moved_to,
    removal_of,
    rows_of,
    still,
    table_of,
)
from .folder import RecordingsFolder, manifest_bytes, table_of_parts
from .schemas import SchemaFiles
from .summaries import LayerSummary, properties_of, ranges_of, with_summary
from .times import TimesBytes, times_of_parts
from .vacuum import NewFiles, SweptError, put_durably, vacuum_folder
from .versions import RecordingsVersion, TableRef

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Origin:
    """The source file of recordings. If ``kept``, a new content of the file replaces them."""

    path: str
    size: int
    modified_ns: int
    digest: str
    kept: bool = True
    etag: str | None = None


class InPlace(NamedTuple):
    """The places of a recording's chunks in its own file, and their summary."""

    table: ChunkTable
    summary: LayerSummary


@dataclass(frozen=True, slots=True)
class Arrived:
    """A recording to commit: its chunks in parts of the staging folder, with digests, in order.

    Without ``keep_chunks``, the store records only the entry, and the chunks are in the RRD ``rrd``. With ``in_place``
    there are no parts: the store refers to the source file. ``silent_columns`` are all-null columns, which no chunk
    header has.
    """

    store: StoreEntry
    source: Origin
    chunks: Sequence[PartChunk] = ()
    rrd: str | None = None
    keep_chunks: bool = True
    layer: str = BASE_LAYER
    in_place: InPlace | None = None
    silent_columns: Sequence[ChunkHeader] = ()

    @property
    def key(self) -> Key:
        """The key of its entry."""
        return key_of(self.store, self.layer)


@dataclass(frozen=True, slots=True)
class Commit:
    """The facts of a commit other than recordings: its query and batch, and the figures of the version."""

    operation: str = "ingest"
    query_id: str = ""
    batch: int = 0
    files: Mapping[str, int] = field(default_factory=dict)
    bytes_in: int = 0
    began: float = field(default_factory=lambda: time.perf_counter())  # a lambda, as tests replace the clock


Rule = Callable[[LiveEntries, RecordingsVersion | None, Sequence[RecordingEntry]], Sequence[RecordingEntry]]
"""A check of a base: takes its recordings, version and the entries to add; returns those to add, or raises."""

_Change = Callable[[], tuple[Sequence[RecordingEntry], bool] | None]
"""The entries to publish, and whether they replace all others instead of being added; None for no change."""

_SWEPT_ATTEMPTS: Final = 5


class StoreWriter:
    """A writer of a store, which makes one commit at a time. Several may write at once, in any processes.

    It has the entries of the last version it read. If the number of a commit is taken, the commit reads the newer
    versions, applies its rule again, and continues on top of them. ``lease`` is the lease of an ingestion: commits fail
    if it is lost.
    """

    def __init__(self, folder: RecordingsFolder, lease: Lease | None = None, *, shard_bytes: int = SHARD_BYTES) -> None:
        if shard_bytes <= 0:
            raise UsageError(f"shard_bytes must be positive, not {shard_bytes}")
        self.folder = folder
        self._lease = lease
        self._shard_bytes = shard_bytes
        self._files: NewFiles | None = None
        self._may_be_visible = False
        self._is_behind = False
        self._new_table: str | None = None
        self._is_complete = False
        folder.prepare()
        self.version: RecordingsVersion | None = None
        self.live = LiveEntries()
        self.refresh()

    def refresh(self) -> None:
        """Read the newest version again."""
        self.version, self.live = self.folder.newest_live()
        self._is_behind = False

    def catch_up(self) -> None:
        """Read the newest version if there is a newer one or a commit has failed.

        Call this before the first file of a run is written, and not again until the run is published.
        """
        if self._is_behind or not self.folder.files.is_newest(self.number):
            self.refresh()

    @property
    def number(self) -> int:
        """The number of the last version read, or 0."""
        return self.version.number if self.version else 0

    def is_done(self, query_id: str, batch: int) -> bool:
        """Return True if the store already has this batch of this query."""
        self.catch_up()
        return self.version is not None and self.version.batches.get(query_id, 0) >= batch

    @property
    def shard_bytes(self) -> int:
        """The approximate size of a shard."""
        return self._shard_bytes

    def commit(
        self,
        staging: Staging | None,
        arrived: Sequence[Arrived],
        commit: Commit,
        *,
        moved: Sequence[RecordingEntry] = (),
        gone: Sequence[RecordingEntry] = (),
        alone: bool = False,
        rule: Rule | None = None,
    ) -> RecordingsVersion:
        """Write recordings from their parts into the store, and publish a version with them.

        ``staging`` has the parts; recordings in place need none. ``moved`` are entries of existing recordings with a
        new source. Recordings in ``gone`` are removed; with ``alone``, all earlier ones are. ``rule`` is applied to
        each base version.

        Guarantee: readers see all of the commit or nothing. Raises ``WriteError`` if it certainly failed (its files are
        removed), ``CommitUnknownError`` if the outcome is unknown (no file is removed), and errors of ``rule``.
        """
        self.catch_up()
        self.complete()
        kept_chunks = [recording.chunks if recording.keep_chunks else () for recording in arrived]
        layers = [
            (recording, _summary(recording, staging), times_of_parts(c, staging))
            for recording, c in zip(arrived, kept_chunks, strict=True)
        ]

        def bring_in(files: NewFiles) -> RecordingsVersion:
            new = self._bring_in(layers, commit, files)
            version = self._publish(partial(self._with_arrived, new, moved, gone, alone, rule), commit)
            assert version is not None
            return version

        return self.with_files(bring_in, staging)

    def complete(self) -> None:
        """If the store has entries of format 3, publish a version with their schemas, ranges and properties.

        An unreadable recording is unchanged, with a warning. Raises the errors of :meth:`commit`.
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
        try:
            return with_summary(self.folder, entry, schemas.put)
        except ReadError as error:
            warnings.warn(f"the columns of {entry.recording_id} are not known: {error}", ReadWarning, stacklevel=2)
            return entry

    def with_files(self, write: Callable[[NewFiles], _Result], staging: Staging | None = None) -> _Result:
        """Return the result of ``write``, which writes the :meth:`files` of a commit, and publishes it.

        It is called again, with other files, if a vacuum ran while the first were announced.
        """
        for attempt in range(_SWEPT_ATTEMPTS):
            try:
                with self.files(staging) as files:
                    return write(files)
            except SweptError:
                if attempt + 1 == _SWEPT_ATTEMPTS:
                    raise
                self.catch_up()
        raise AssertionError("the last attempt raises")  # pragma: no cover

    @contextlib.contextmanager
    def files(self, staging: Staging | None = None) -> Iterator[NewFiles]:
        """Files for one commit, published within the block. They are announced, so that no vacuum removes them.

        Call this after :meth:`catch_up`, as an earlier vacuum does not see the announcement. If the block fails, the
        files are removed, unless a version may name them.
        """
        files = NewFiles(self.folder, staging, self._shard_bytes, base=self.number)
        self._may_be_visible = False
        self._files = files
        try:
            yield files
        except BaseException:
            if not self._may_be_visible:
                files.discard()
            raise
        finally:
            self._files = None
            files.withdraw()

    def publish(
        self, entries: Sequence[RecordingEntry], commit: Commit, *, rule: Rule | None = None
    ) -> RecordingsVersion:
        """Publish a version with more entries, whose chunks are in files in place, or in :meth:`files`.

        ``rule`` is applied to each base version, and may omit or change entries. Raises the errors of :meth:`commit`.
        """
        self.complete()
        version = self._publish(lambda: (self._ruled(entries, rule), False), commit)
        assert version is not None
        return version

    def rewrite(self, entries: Sequence[RecordingEntry], commit: Commit) -> RecordingsVersion | None:
        """Publish a version of one table, in which these entries replace those that are ``live`` now.

        Concurrent changes by others take precedence. If they cover all changed entries, nothing is published, and None
        is returned. Raises the errors of :meth:`commit`.
        """
        return self._publish(partial(self._rewritten, self.live, entries), commit)

    def _ruled(self, entries: Sequence[RecordingEntry], rule: Rule | None) -> Sequence[RecordingEntry]:
        return entries if rule is None else rule(self.live, self.version, entries)

    def _with_arrived(
        self,
        new: Sequence[RecordingEntry],
        moved: Sequence[RecordingEntry],
        gone: Sequence[RecordingEntry],
        alone: bool,
        rule: Rule | None,
    ) -> tuple[Sequence[RecordingEntry], bool]:
        """The change that :meth:`commit` publishes on top of the newest version."""
        live = self.live
        elsewhere = {entry.key: now for entry in moved if (now := moved_to(live.get(entry.key), entry)) is not None}
        entries = self._ruled([*elsewhere.values(), *(self._counted(entry, elsewhere) for entry in new)], rule)
        left = list(live) if alone else [now for old in gone if (now := still(live.get(old.key), old)) is not None]
        keys, sources = {entry.key for entry in entries}, {entry.source for entry in entries}
        left = [old for old in left if old.key not in keys]
        hidden = {e.key for e in left if e.source in sources and any(entry.takes_place_of(e) for entry in entries)}
        return [*(removal_of(old) for old in left if old.key not in hidden), *entries], False

    def _rewritten(
        self, before: LiveEntries, entries: Sequence[RecordingEntry]
    ) -> tuple[Sequence[RecordingEntry], bool] | None:
        """The change that :meth:`rewrite` publishes in place of the newest version."""
        if self.live is before:
            return entries, True
        given = {entry.key: entry for entry in entries}
        now = {entry.key: entry for entry in self.live}  # a lookup for each key takes eight times as long
        changed = {e.key: e for e in before if given.get(e.key) != e}
        same = {key for key, entry in changed.items() if now.get(key) == entry}
        if changed and not same:
            return None
        rest = (given.get(key) if key in same else entry for key, entry in now.items())
        return [entry for entry in rest if entry is not None], True

    def _publish(self, change: _Change, commit: Commit) -> RecordingsVersion | None:
        if self._is_behind:
            raise WriteError("a commit failed, and the store has not been read since", path=str(self.folder.path))
        if self._files is None:
            return self.with_files(lambda files: self._publish_with(files, change, commit))
        return self._publish_with(self._files, change, commit)

    def _publish_with(self, files: NewFiles, change: _Change, commit: Commit) -> RecordingsVersion | None:
        def attempt() -> bool | None:
            if self._is_behind:
                self.refresh()
            self._may_be_visible = False
            files.check(self.version)
            changed = change()
            if changed is None:
                return False
            if self._attempt(files, *changed, commit):
                return True
            reach("version.rebase")
            return None

        hint = "Nothing of this run is visible; run it again."
        return self.version if publish(attempt, "this store", path=str(self.folder.path), hint=hint) else None

    def _attempt(self, files: NewFiles, entries: Sequence[RecordingEntry], anew: bool, commit: Commit) -> bool:
        """Try to publish a version on top of the known one; return False if its number is taken."""
        base = self.number
        self._new_table = None
        self._is_behind = True
        try:
            version = self._next(files, entries, anew, commit)
            self.check()
            self._may_be_visible = True
            made = self.folder.publish(version)
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, CommitUnknownError):
                self._may_be_visible = False
                self._remove_table()
            with contextlib.suppress(ChunkmillError, OSError):  # the next use tries again
                self.refresh()
            if isinstance(error, ReadError) and self.number != base:
                return False  # the base's files were removed meanwhile
            raise
        if not made:
            self._may_be_visible = False
            self._remove_table()
            return False
        self.version = version
        self._is_behind = False
        reach("version.done")
        return True

    def check(self) -> None:
        """Raise a transient ``WriteError`` if the lease is lost, because another process runs this ingestion."""
        if self._lease is not None:
            self._lease.check()

    def vacuum(self, *, keep: int, older_than_seconds: float) -> int:
        """See :meth:`RecordingStore.vacuum`."""
        self.catch_up()
        if self.version is None:
            return 0
        self._is_behind = True
        before = self.version
        self.version, freed = vacuum_folder(self.folder, before, keep=keep, older_than_seconds=older_than_seconds)
        if self.version.tables == before.tables:
            self._is_behind = False
        return freed

    def _remove_table(self) -> None:
        if self._new_table is not None:
            with contextlib.suppress(OSError, WriteError):
                self.folder.tables.delete([self._new_table])

    def _bring_in(
        self, arrived: Sequence[tuple[Arrived, LayerSummary, TimesBytes]], commit: Commit, files: NewFiles
    ) -> list[RecordingEntry]:
        own = (recording for recording, _, _ in arrived if recording.keep_chunks and recording.in_place is None)
        shards = {id(recording): files.shards.add(recording.store, recording.chunks) for recording in own}
        schemas = SchemaFiles(self.folder)
        entries = []
        for recording, summary, times in arrived:
            table = (
                table_of_parts(shards.get(id(recording), recording.chunks))
                if recording.in_place is None
                else recording.in_place.table
            )
            data = manifest_bytes(table) if recording.keep_chunks else b""
            name, offset = files.add_manifest(data, times.pieces) if data else ("", 0)
            source = recording.source
            entries.append(
                RecordingEntry(
                    recording_id=recording.store.recording_id,
                    application_id=recording.store.application_id,
                    kind=recording.store.kind,
                    segment_version=1,
                    source=source.path,
                    source_size=source.size,
                    source_modified_ns=source.modified_ns,
                    source_digest=source.digest,
                    source_kept=source.kept,
                    rrd=recording.rrd,
                    manifest=name,
                    manifest_offset=offset,
                    manifest_size=len(data),
                    manifest_digest=digest_of(data).hex() if data else "",
                    shards=tuple(table.part_codes[1]) if data and recording.in_place is None else (),
                    chunks=len(table),
                    rows=int(table.num_rows.sum()),
                    bytes=table.message_bytes,
                    query_id=commit.query_id,
                    batch=commit.batch,
                    added=time.time(),
                    layer=recording.layer,
                    in_place=recording.in_place is not None,
                    source_etag=source.etag,
                    schema=schemas.put(summary.schema),
                    ranges=summary.ranges,
                    properties=summary.properties,
                    times_size=times.size,
                    times_digest=times.digest,
                )
            )
        files.finish()
        return entries

    def _counted(self, entry: RecordingEntry, moved: Collection[Key]) -> RecordingEntry:
        """Return an entry with its segment version, one above those it replaces."""
        before = [self.live.get(entry.key), *(e for e in self.live.of_source(entry.source) if e.key not in moved)]
        earlier = [e.segment_version for e in before if e is not None and entry.takes_place_of(e)]
        return replace(entry, segment_version=max(earlier, default=0) + 1) if earlier else entry

    def _next(
        self, files: NewFiles, entries: Sequence[RecordingEntry], anew: bool, commit: Commit
    ) -> RecordingsVersion:
        """Return the next version, with these entries added, or if ``anew`` only these; write its tables.

        The facts from vacuums, and tags, are carried over.
        """
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
            tables=self._tables(files, before.tables if before and not anew else (), entries),
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
            vacuumed=before.vacuumed if before else 0,
            spared=before.spared if before else {},
            author=author(),
            layers=self.live.layers,
            tags=before.tags if before else {},
        )

    def _tables(
        self, files: NewFiles, before: Sequence[TableRef], entries: Sequence[RecordingEntry]
    ) -> tuple[TableRef, ...]:
        """The tables of the next version. Those not much larger than the addition are merged with it.

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
        if not tables and count > len(self.live):  # otherwise replaced entries must keep hiding older ones
            rows = self.live.batches()
        data, count = table_of(rows)
        name = self._new_table = files.name(".arrow")
        with writing(str(self.folder.path)):
            put_durably(self.folder.tables, name, data)
            reach("table.write", self.folder.tables.place(name))
        return (*tables, TableRef(name, digest_of(data).hex(), count))


def _summary(recording: Arrived, staging: Staging | None) -> LayerSummary:
    """Return the summary of a new recording; if its chunks are in parts, from their headers."""
    if recording.in_place is not None:
        return recording.in_place.summary
    headers = [c.entry.header for c in recording.chunks]
    property_chunks = [
        c for c, h in zip(recording.chunks, headers, strict=True) if h.is_static and is_property(h.entity_path)
    ]
    assert staging is not None or not property_chunks, "chunks in parts need a staging folder"
    places = [staging.folder.place(c.part) for c in property_chunks] if staging is not None else []
    verified = partial(VerifiedPayload.of, version=NEVER_CHANGES, store=recording.store)
    payloads = [verified(place, c.entry) for place, c in zip(places, property_chunks, strict=True)]
    with keeping_open():
        properties = properties_of(
            Chunk.lazy(c.entry.header, p) for c, p in zip(property_chunks, payloads, strict=True)
        )
    schema = Schema.from_headers([*headers, *recording.silent_columns]).to_arrow()
    return LayerSummary(schema, ranges_of(t for header in headers for t in header.timelines), properties)
