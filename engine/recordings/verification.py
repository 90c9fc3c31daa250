"""Verification of a store: all versions, tables, manifests, shards and chunks are read and checked."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Set
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ..chunk import ChunkData
from ..errors import ReadError, SourceMissingError
from ..rrd import (
    NEVER_CHANGES,
    ChunkEntry,
    Findings,
    Look,
    StoreEntry,
    Times,
    Verification,
    open_positional,
    verify_file,
)
from ..storage import RESTORE
from .entries import SCHEMA, LiveEntries, RecordingEntry
from .folder import MANIFEST_ERRORS, RecordingsFolder
from .schemas import SchemaFiles
from .summaries import NO_PROPERTIES, properties_in
from .times import times_in
from .versions import TableRef


class _Told(defaultdict[tuple[str, str], defaultdict[int, list[tuple[StoreEntry, ChunkEntry]]]]):
    """The manifests' claims about chunks, by file and its version, and by offset."""

    def __init__(self) -> None:
        super().__init__(lambda: defaultdict(list))


class _Times(defaultdict[tuple[str, str], defaultdict[int, list[tuple[Times, int]]]]):
    """The times of the same chunks, and each chunk's number in them."""

    def __init__(self) -> None:
        super().__init__(lambda: defaultdict(list))

    def look(self, shard: tuple[str, str]) -> Look | None:
        """Return a function that compares a file's chunks with their times, or None."""
        claims = self.get(shard)
        if claims is None:
            return None

        def look(offset: int, data: ChunkData) -> None:
            for times, number in claims.get(offset, ()):
                times.expect(number, data)

        return look


def verify_store(folder: RecordingsFolder) -> Verification:
    """Read all files of all versions of a store, and compare them with their digests and entries.

    This compares version files, tables of recordings, schemas, manifests, times and chunks with their digests, and the
    counts of rows and chunks with the entries. Each chunk is decoded once, and compared with the manifest, the times
    and the footer of its shard. Files in place must be unchanged since their registration. Chunks that only old
    versions need are counted too. Each difference is a fault of the result. Raises ``SourceMissingError`` if there is
    no store.
    """
    findings = Findings()
    tables: dict[TableRef, None] = {}
    for number in folder.files.numbers():
        with findings.noting():
            tables.update(dict.fromkeys(folder.read_version(number).tables))
    claims, times = _Told(), _Times()
    manifests: set[tuple[str, int]] = set()
    schemas = SchemaFiles(folder)
    in_place = _in_place(folder)
    for table in tables:
        with findings.noting():
            for entry in folder.entries([table]):
                place = entry.manifest, entry.manifest_offset
                if not entry.manifest or place in manifests:
                    continue
                manifests.add(place)
                with findings.noting():
                    _read_columns(schemas, folder, entry)
                with findings.noting():
                    is_there = not entry.in_place or place in in_place
                    _read_manifest(folder, entry, *((claims, times) if is_there else (_Told(), _Times())))
    for shard, version in sorted(claims):
        try:
            with findings.noting(), open_positional(shard, version):
                findings.add(verify_file(shard, claims[shard, version], times.look((shard, version))))
        except SourceMissingError as error:
            findings.fault(_gone("shard" if version == NEVER_CHANGES else "file in place", error.path))
    return findings.verification()


def check_store(folder: RecordingsFolder) -> list[tuple[RecordingEntry | None, ReadError]]:
    """Check that the files of a store, and its files in place, exist, without reading chunks.

    Versions and tables must have their recorded digests, and so must the schemas, manifests and times of the newest
    version. The shards of that version must exist, and files in place must be unchanged since their registration. Each
    fault comes with its layer, if it concerns one. Raises ``SourceMissingError`` if there is no store.
    """
    faults = list[tuple[RecordingEntry | None, ReadError]]()

    def look(read: Callable[[], object], entry: RecordingEntry | None = None) -> None:
        try:
            read()
        except ReadError as error:
            faults.append((entry, error))

    tables: dict[TableRef, None] = {}
    for number in folder.files.numbers():
        look(lambda number=number: tables.update(dict.fromkeys(folder.read_version(number).tables)))  # type: ignore[misc]
    for table in tables:
        look(lambda table=table: deque(folder.rows(table), 0))  # type: ignore[misc]
    if faults:
        return faults
    newest = folder.newest()
    live = LiveEntries() if newest is None else folder.live(newest)
    schemas = SchemaFiles(folder)
    for digest in live.columns("schema")["schema"].drop_null().unique().to_pylist():
        look(lambda digest=digest: schemas.get(digest))  # type: ignore[misc]
    shards = set(folder.shards.names())
    with ThreadPoolExecutor(_AT_ONCE, "chunkmill-check") as threads:
        for entry, error in threads.map(lambda entry: (entry, _fault_of(folder, entry, shards)), live):
            if error is not None:
                faults.append((entry, error))
    return faults


_AT_ONCE: Final = 16


def _fault_of(folder: RecordingsFolder, entry: RecordingEntry, shards: Set[str]) -> ReadError | None:
    """The fault of a layer's manifest, times or files of chunks, or None."""
    try:
        if not entry.manifest:
            return None
        folder.references(entry)
        times = times_in(folder, entry)
        if times is not None:
            times.check()
        if entry.in_place:
            open_positional(entry.source, entry.file_version).close()
    except ReadError as error:
        return error
    gone = next((shard for shard in entry.shards if shard not in shards), None)
    return None if gone is None else _gone("shard", folder.shards.place(gone))


def _gone(what: str, path: str | None) -> ReadError:
    hint = RESTORE if what == "shard" else "Restore the file, or remove its recordings from the store."
    return ReadError(f"a {what} of the store is missing", path=path, hint=hint)


def _in_place(folder: RecordingsFolder) -> set[tuple[str, int]]:
    """Return the newest version's manifests whose chunks are in files outside the store."""
    try:
        newest = folder.newest()
        live = folder.live(newest).table if newest else SCHEMA.empty_table()
    except ReadError:  # reading that file reports it
        return set()
    rows = live.filter(live["in_place"])
    return set(zip(rows["manifest"].to_pylist(), rows["manifest_offset"].to_pylist(), strict=True))


def _read_columns(schemas: SchemaFiles, folder: RecordingsFolder, entry: RecordingEntry) -> None:
    """Read the schema and the properties of a recording. Raises ``ReadError``."""
    if entry.schema is not None:
        schemas.get(entry.schema)
    try:
        properties_in(entry.properties or NO_PROPERTIES)
    except MANIFEST_ERRORS as error:
        raise ReadError(
            f"the properties of recording {entry.recording_id} cannot be read: {error}",
            path=folder.tables.place(""),
            hint=RESTORE,
        ) from error


def _read_manifest(folder: RecordingsFolder, entry: RecordingEntry, claims: _Told, time_claims: _Times) -> None:
    """Collect the claims of a recording's manifest and times about its chunks. Raises ``ReadError``."""
    chunks = folder.references(entry)
    times = times_in(folder, entry)
    if times is not None:
        times.check()
    table = chunks.table
    which, shards = table.part_codes
    rows = 0
    for number, (at, chunk) in enumerate(zip(which.tolist(), table.entries(), strict=True)):
        shard = shards[at], chunks.version or NEVER_CHANGES
        claims[shard][chunk.offset].append((entry.store, chunk))
        if times is not None:
            time_claims[shard][chunk.offset].append((times, number))
        rows += chunk.header.num_rows
    if rows != entry.rows:
        raise ReadError(
            f"the manifest of recording {entry.recording_id} lists {rows:,} rows instead of {entry.rows:,}",
            path=folder.manifests.place(entry.manifest),
            offset=entry.manifest_offset,
            hint=RESTORE,
        )
