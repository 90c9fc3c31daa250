"""The files of a store of recordings, of one or a million.

::

    store/
      versions/00000001.json     names its tables; appears whole, in one step, and never changes
      tables/<name>.arrow        recordings that were added, an entry each
      manifests/<name>.arrows    chunk rows (header, shard, place, digest) of the recordings of one commit, and times
      schemas/<digest>.arrow     columns of layers, see :mod:`.schemas`
      shards/<name>.rrd          RRD files; Rerun opens each by itself. Small recordings of one commit share one

A version file holds digests of itself and of each table; a table's entries hold digests of manifests and of the times
after them; a manifest holds a digest of each chunk. All are verified on reading. :mod:`.versions` describes how
concurrent writers work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..chunk import Chunk
from ..errors import ReadError, SourceMissingError, UnsupportedError, UsageError, writing
from ..execution import Folder, PartChunk, sync_folder
from ..limits import MIB
from ..locations import located
from ..optimisation import ChunkReferences
from ..rrd import (
    CHUNK_TABLE,
    ChunkTable,
    Recent,
    check_digest,
    digest_of,
    state_of,
)
from ..storage import RESTORE, VersionFiles, is_url, name_of, unreadable
from ..task_context import Fetches, find
from .entries import LiveEntries, RecordingEntry, entries_in, parse_table
from .schemas import SchemaFiles
from .versions import RecordingsVersion, TableRef, check_no_catalog

FORMAT: Final = 5
"""The format of a store's versions. Releases for format 4 do not know tags, and would vacuum tagged versions."""
MANIFEST_ERRORS = (OSError, pa.ArrowException, ValueError, TypeError, KeyError)
"""The errors that reading a damaged manifest may raise."""


def table_of_parts(chunks: Sequence[PartChunk]) -> ChunkTable:
    """The chunk table of chunks in parts."""
    return ChunkTable.of([c.entry for c in chunks], [c.part for c in chunks])


_AS_IT_IS: Final = pa.ipc.IpcWriteOptions()
"""The defaults of a writer: with explicit options, it does not read the environment each time."""


def manifest_bytes(table: ChunkTable) -> bytes:
    """Return the bytes of a manifest."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, CHUNK_TABLE, options=_AS_IT_IS) as out:
        out.write_batch(table.batch)
    return bytes(sink.getvalue().to_pybytes())


def parse_chunks(data: bytes, digest: str) -> ChunkTable:
    """The chunk table in a manifest, verified before Arrow reads a byte."""
    check_digest(data, digest)
    table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
    table.validate(full=True)
    return ChunkTable.from_arrow(table)


def parse_manifest(data: bytes, digest: str) -> list[PartChunk]:
    """The chunks of a manifest, verified like in :func:`parse_chunks`."""
    table = parse_chunks(data, digest)
    which, parts = table.part_codes
    placed = zip(which.tolist(), table.entries(), strict=True)
    return [PartChunk(0, number, parts[at], entry) for number, (at, entry) in enumerate(placed)]


def bytes_by_part(data: bytes, digest: str) -> dict[str, tuple[int, int]]:
    """Return the bytes and chunks of a manifest in each part, verified like in :func:`parse_manifest`."""
    check_digest(data, digest)
    table = pa.ipc.open_file(pa.py_buffer(data)).read_all().select(["part", "size"])
    table.validate(full=True)
    rows = table.group_by("part").aggregate([("size", "sum"), ("size", "count")]).to_pylist()
    return {row["part"]: (row["size_sum"], row["size_count"]) for row in rows}


def _is_absolute(part: str) -> bool:
    return part.startswith("/") or is_url(part)


_HOW = "Create one with stream.collect(into=…), Ingest(…, into=…) or `chunkmill ingest … --into`."


def _identity(entry: RecordingEntry) -> tuple[Any, ...]:
    """Return the fields that determine an entry's chunks, apart from its manifest's file."""
    place = (entry.manifest_offset, entry.manifest_size, entry.manifest_digest)
    return (*place, entry.in_place, entry.file_version, entry.shards, entry.store, entry.chunks)


class RecordingsFolder:
    """The files of a store of recordings, in a folder or below a prefix of an object store.

    With ``pinned``, that version counts as the newest, and writing raises ``UsageError``.
    """

    def __init__(self, path: str | os.PathLike[str], pinned: int | None = None) -> None:
        self.path = located(path)
        self.pinned = pinned
        folder = Folder.at(self.path)
        self.versions_folder = folder.sub("versions")
        self.tables = folder.sub("tables")
        self.manifests = folder.sub("manifests")
        self.shards = folder.sub("shards")
        self.schemas = folder.sub("schemas")
        self.writers = folder.sub("writers")
        self.files = VersionFiles(self.versions_folder, str(self.path), _HOW, newest_format=FORMAT)

    def check_unpinned(self) -> None:
        """Raise ``UsageError`` if a version is pinned."""
        if self.pinned is not None:
            raise UsageError(
                f"this is version {self.pinned} of the recordings, which cannot be changed",
                path=str(self.path),
                hint="Change the dataset itself, or restore() this version.",
            )

    def prepare(self) -> None:
        """Make the folders. Raises ``UsageError`` for the folder of a catalog, and if a version is pinned."""
        self.check_unpinned()
        check_no_catalog(self.path)
        with writing(str(self.path)):
            kinds = (self.versions_folder, self.tables, self.manifests, self.shards, self.schemas, self.writers)
            for folder in kinds:
                folder.make()
            if isinstance(self.path, Path):
                sync_folder(self.path)
                sync_folder(self.path.parent)

    def versions(self) -> list[RecordingsVersion]:
        """All versions, oldest first."""
        return [self.read_version(number) for number in self.files.numbers()]

    def version(self, number: int | None = None) -> RecordingsVersion:
        """The version ``number``, by default the newest.

        Raises ``SourceMissingError`` if there is none, ``UsageError`` for the folder of a catalog.
        """
        newest = self.newest() if number is None else None
        if newest is not None:
            return newest
        try:
            return self.read_version(self.files.chosen(number))
        except SourceMissingError:
            check_no_catalog(self.path)
            raise

    def newest(self) -> RecordingsVersion | None:
        """The newest version, or the pinned one; None without a store."""
        if self.pinned is not None:
            return self._pinned_version()
        latest = self.files.latest()
        return self._parsed(*latest) if latest else None

    def _pinned_version(self) -> RecordingsVersion:
        assert self.pinned is not None
        try:
            return self.read_version(self.pinned)
        except SourceMissingError as error:
            raise self._removed() from error

    def _removed(self) -> SourceMissingError:
        return SourceMissingError(
            f"a vacuum has removed version {self.pinned}",
            path=str(self.path),
            hint="To keep a version, tag it: dataset.tag(name, version).",
        )

    def _is_removed(self) -> bool:
        """Return True if the pinned version was removed, although its file may still exist."""
        latest = self.files.latest()
        return latest is not None and self.pinned is not None and not self._parsed(*latest).counts(self.pinned)

    def read_version(self, number: int) -> RecordingsVersion:
        """Read an existing version."""
        return self._parsed(number, self.files.read(number))

    def _parsed(self, number: int, data: Mapping[str, Any]) -> RecordingsVersion:
        if "tables" not in data and "manifest" in data:
            raise UnsupportedError(
                "this store has an old format for a single recording, which is no longer supported",
                path=str(self.path),
                hint="Read its files shards/*.rrd with RrdReader, and collect them into another folder.",
            )
        try:
            return RecordingsVersion.of(data)
        except (TypeError, ValueError, KeyError) as error:
            raise unreadable(error, self.versions_folder.place(name_of(number))) from error

    def rows(self, ref: TableRef) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table of entries in batches. Raises ``ReadError``."""
        place = self.tables.place(ref.name)
        state = None if find(Fetches) is not None else state_of(place)
        kept = None if state is None else _TABLES.find((state, ref))
        if kept is not None:
            yield from kept
            return
        batches: list[pa.RecordBatch] = []
        try:
            for batch in parse_table(self.tables.get(ref.name), ref.digest):
                yield batch
                batches.append(batch)
            count = sum(batch.num_rows for batch in batches)
            if count != ref.entries:
                raise ValueError(f"it has {count} entries instead of {ref.entries}")
        except MANIFEST_ERRORS as error:
            raise ReadError(f"a table of recordings cannot be read: {error}", path=place, hint=RESTORE) from error
        if state is not None:
            _TABLES.keep((state, ref), batches, sum(batch.nbytes for batch in batches))

    def entries(self, tables: Iterable[TableRef]) -> list[RecordingEntry]:
        """The entries of tables, oldest first. Raises ``ReadError``."""
        return [entry for ref in tables for entry in entries_in(self.rows(ref))]

    def live(self, version: RecordingsVersion) -> LiveEntries:
        """The recordings of a version. Raises ``ReadError``."""
        return LiveEntries.of_rows(batch for ref in version.tables for batch in self.rows(ref))

    def newest_live(
        self, live: Callable[[RecordingsVersion], LiveEntries] | None = None
    ) -> tuple[RecordingsVersion | None, LiveEntries]:
        """Return the newest version, if any, and its recordings, by :meth:`live` or ``live``. Raises ``ReadError``."""
        while True:
            version = self.newest()
            if version is None:
                return None, LiveEntries()
            try:
                return version, (live or self.live)(version)
            except ReadError as error:
                if self._is_removed():
                    raise self._removed() from error
                if self.pinned is not None or self.files.newest() == version.number:
                    raise
                # Otherwise a newer version exists, and this one's tables were removed meanwhile.

    def named(self, tables: Iterable[TableRef]) -> tuple[set[str], set[str]]:
        """Return the manifests and shards in tables. Raises ``ReadError``."""
        manifests: set[str] = set()
        shards: set[str] = set()
        for ref in tables:
            for batch in self.rows(ref):
                manifests.update(batch["manifest"].unique().to_pylist())
                shards.update(batch["shards"].flatten().unique().to_pylist())
        return manifests, shards

    def vacuumed(self, error: BaseException, place: str) -> ReadError | None:
        """Return the error for a vacuumed file, or None if it is damage."""
        if not isinstance(error, FileNotFoundError):
            return None
        try:
            if self._is_removed():
                return self._removed()
            newest = None if self.pinned is not None else self.newest()
            if (
                newest is None
                or not newest.vacuumed
                or place.rpartition("/")[2] in set().union(*self.named(self._needed_tables(newest)))
            ):
                return None
        except ReadError:
            return None
        return ReadError(
            "a vacuum removed this file, which only older versions need",
            path=place,
            hint="Repeat the query on the newest version. To protect long queries, vacuum only versions older than any "
            "query, or tag the version that they read.",
        )

    def _needed_tables(self, newest: RecordingsVersion) -> set[TableRef]:
        """The tables of the newest version, and of tagged versions."""
        return set(newest.tables).union(*(self.read_version(number).tables for number in set(newest.tags.values())))

    def chunks(self, entry: RecordingEntry) -> list[Chunk]:
        """Yield the chunks of a recording, undecoded, in order; each is verified when read."""
        return list(self.references(entry).chunks())

    def manifest(self, entry: RecordingEntry) -> bytes:
        """The verified manifest of a recording. Raises ``ReadError``."""
        data = self.manifests.get_range(entry.manifest, entry.manifest_offset, entry.manifest_size)
        if digest_of(data).hex() != entry.manifest_digest:
            raise ReadError(
                f"the manifest of recording {entry.recording_id} changed after it was written: its digest differs",
                path=self.manifests.place(entry.manifest),
                offset=entry.manifest_offset,
                hint=RESTORE,
            )
        return data

    def references_of(self, entries: Sequence[RecordingEntry]) -> list[ChunkReferences]:
        """Return references to the chunks of several recordings, whose manifests are read and parsed together.

        Raises ``ReadError`` or one of :data:`MANIFEST_ERRORS` if one is damaged; :meth:`references` finds out which.
        """
        places = {entry.manifest: self.manifests.place(entry.manifest) for entry in entries}
        states = {name: state_of(place) for name, place in places.items()}
        key = tuple([(states[entry.manifest], *_identity(entry)) for entry in entries])
        cached = None if None in states.values() else _GROUPS.find(key)
        if cached is None:
            cached = self._references_of(entries)
            if None not in states.values():
                _GROUPS.keep(key, cached, 2 * sum(entry.manifest_size for entry in entries))
        return cached

    def _references_of(self, entries: Sequence[RecordingEntry]) -> list[ChunkReferences]:
        batches = []
        for entry, data in zip(entries, self._manifests_of(entries), strict=True):
            check_digest(data, entry.manifest_digest)
            reader = pa.ipc.open_file(pa.py_buffer(data))
            if reader.num_record_batches != 1 or reader.schema != CHUNK_TABLE:
                raise ValueError("it does not have exactly one batch")
            batch = reader.get_batch(0)
            batch.validate(full=True)
            if batch.num_rows != entry.chunks:
                raise ValueError(f"it lists {batch.num_rows} chunks instead of {entry.chunks}")
            batches.append(batch)
        whole = ChunkTable.from_arrow(pa.Table.from_batches(batches, CHUNK_TABLE))
        codes, parts = whole.part_codes
        sizes = [entry.chunks for entry in entries]
        for entry, some in zip(entries, np.split(codes, np.cumsum(sizes)[:-1]), strict=True):
            for part in {parts[code] for code in some.tolist()}:
                if entry.in_place != _is_absolute(part) or not (entry.in_place or part in entry.shards):
                    raise ValueError(f"its chunks are in {part!r}, which is not one of its files")
        tables = whole.within(self.shards.place).shares(sizes)
        return [
            ChunkReferences(table, entry.file_version, None if entry.in_place else entry.store)
            for entry, table in zip(entries, tables, strict=True)
        ]

    def _manifests_of(self, entries: Sequence[RecordingEntry]) -> list[memoryview]:
        """The manifests of recordings; adjacent ones in a file are read at once."""
        order = sorted(range(len(entries)), key=lambda i: (entries[i].manifest, entries[i].manifest_offset))
        manifests = [memoryview(b"")] * len(entries)
        for name, group in groupby(order, key=lambda i: entries[i].manifest):
            numbers = list(group)
            first, last = entries[numbers[0]], entries[numbers[-1]]
            start, stop = first.manifest_offset, last.manifest_offset + last.manifest_size
            if stop - start > 2 * sum(entries[i].manifest_size for i in numbers):
                for i in numbers:
                    one = self.manifests.get_range(name, entries[i].manifest_offset, entries[i].manifest_size)
                    manifests[i] = memoryview(one)
                continue
            data = memoryview(self.manifests.get_range(name, start, stop - start))
            for i in numbers:
                at = entries[i].manifest_offset - start
                manifests[i] = data[at : at + entries[i].manifest_size]
        return manifests

    def references(self, entry: RecordingEntry) -> ChunkReferences:
        """Return references to the chunks of a recording."""
        if not entry.manifest:
            raise SourceMissingError(
                f"the chunks of recording {entry.recording_id} are not in this store",
                path=str(self.path),
                hint=f"Read its RRD, {entry.rrd}.",
            )
        place = self.manifests.place(entry.manifest)
        state = None if find(Fetches) is not None else state_of(place)
        key = (state, *_identity(entry))
        cached = None if state is None else _RECENT.find(key)
        if cached is not None:
            return cached
        try:
            data = self.manifests.get_range(entry.manifest, entry.manifest_offset, entry.manifest_size)
            table = parse_chunks(data, entry.manifest_digest)
            if len(table) != entry.chunks:
                raise ValueError(f"it lists {len(table)} chunks instead of {entry.chunks}")
            for part in table.part_codes[1]:
                if entry.in_place != _is_absolute(part) or not (entry.in_place or part in entry.shards):
                    raise ValueError(f"its chunks are in {part!r}, which is not one of its files")
        except MANIFEST_ERRORS as error:
            raise self.vacuumed(error, place) or ReadError(
                f"the manifest of recording {entry.recording_id} cannot be read: {error}",
                path=place,
                offset=entry.manifest_offset,
                hint=RESTORE,
            ) from error
        # Other programs wrote files in place, and may put the store elsewhere than at a message's beginning.
        store = None if entry.in_place else entry.store
        references = ChunkReferences(table.within(self.shards.place), entry.file_version, store)
        if state is not None:
            _RECENT.keep(key, references, 2 * entry.manifest_size)
        return references

    def publish(self, version: RecordingsVersion) -> bool:
        """Make a version visible, in one step; return False if its number is taken.

        Raises the errors of :meth:`VersionFiles.commit`, and ``UsageError`` if a version is pinned.
        """
        self.check_unpinned()
        return self.files.commit(version.number, version.to_dict())


_TABLES: Final = Recent[list[pa.RecordBatch]](32 * MIB, largest=16 * MIB)
_RECENT: Final = Recent[ChunkReferences](48 * MIB, largest=4 * MIB)
_GROUPS: Final = Recent[list[ChunkReferences]](48 * MIB, largest=8 * MIB)


class StoreReader:
    """Reads the newest entries of a store repeatedly; tables and schemas, which never change, are cached.

    Thread-safe. Its results are shared, and must not be changed.
    """

    def __init__(self, folder: RecordingsFolder) -> None:
        self.folder = folder
        self.schemas = SchemaFiles(folder)
        self._rows: dict[TableRef, list[pa.RecordBatch]] = {}
        self._live: tuple[tuple[TableRef, ...], LiveEntries] = ((), LiveEntries())
        self._union: tuple[frozenset[str], pa.Schema] = (frozenset(), pa.schema([]))

    def live(self) -> LiveEntries:
        """Return the recordings of the newest version; empty without a store. Raises ``ReadError``."""
        return self.folder.newest_live(self._live_of)[1]

    def _live_of(self, version: RecordingsVersion) -> LiveEntries:
        tables, live = self._live
        if version.tables != tables:
            rows = {ref: self._rows.get(ref) or list(self.folder.rows(ref)) for ref in version.tables}
            live = LiveEntries.of_rows(batch for ref in version.tables for batch in rows[ref])
            self._rows, self._live = rows, (version.tables, live)
        return live

    def union(self, digests: Iterable[str]) -> pa.Schema:
        """Return the union of schemas, like :meth:`SchemaFiles.union`; the last one is cached."""
        wanted = frozenset(digests)
        last_digests, union = self._union
        if not wanted or wanted != last_digests:
            union = self.schemas.union(wanted)
            self._union = wanted, union
        return union
