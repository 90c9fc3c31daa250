"""All of a store read, to see whether it is what was written: versions, tables, manifests, shards and chunks."""

from __future__ import annotations

from collections import defaultdict

from ..errors import ReadError, SourceMissingError
from ..rrd import NEVER_CHANGES, ChunkEntry, Findings, StoreEntry, Verification, open_positional, verify_file
from .entries import SCHEMA, RecordingEntry
from .folder import MANIFEST_ERRORS, RecordingsFolder
from .schemas import SchemaFiles
from .summaries import NO_PROPERTIES, properties_in
from .versions import RESTORE, TableRef


class _Told(defaultdict[tuple[str, str], defaultdict[int, list[tuple[StoreEntry, ChunkEntry]]]]):
    """The chunks that manifests tell of, by the files, of which version, that they lie in, and by their offsets."""

    def __init__(self) -> None:
        super().__init__(lambda: defaultdict(list))


_PUT_BACK = "Put it back, or take its recordings out of the store."


def verify_store(folder: RecordingsFolder) -> Verification:
    """Read all that the versions of a store name, and compare it with what they say.

    Version files, tables of recordings, schemas, manifests and chunks have the digests that are told of them; each
    recording has the rows and chunks that its entry counts; each chunk is decoded, once, and is what the manifest and
    its shard's footer say. Files that the newest version uses in place are those that were registered. Chunks are
    counted by shards, those included that only old versions still need. What is otherwise is a fault of the result.
    Raises ``SourceMissingError`` where there is no store.
    """
    found = Findings()
    tables: dict[TableRef, None] = {}
    for number in folder.files.numbers():
        with found.noting():
            tables.update(dict.fromkeys(folder.read_version(number).tables))
    told = _Told()
    manifests: set[tuple[str, int]] = set()
    schemas = SchemaFiles(folder)
    in_place = _in_place(folder)
    for table in tables:
        with found.noting():
            for entry in folder.entries([table]):
                place = entry.manifest, entry.manifest_offset
                if not entry.manifest or place in manifests:
                    continue
                manifests.add(place)
                with found.noting():
                    _read_columns(schemas, folder, entry)
                with found.noting():
                    _read_manifest(folder, entry, told if not entry.in_place or place in in_place else _Told())
    for shard, version in sorted(told):
        try:
            with found.noting(), open_positional(shard, version):
                found.add(verify_file(shard, told[shard, version]))
        except SourceMissingError as error:
            what, hint = ("shard", RESTORE) if version == NEVER_CHANGES else ("file in place", _PUT_BACK)
            found.fault(ReadError(f"a {what} that the store names is not there", path=error.path, hint=hint))
    return found.verification()


def _in_place(folder: RecordingsFolder) -> set[tuple[str, int]]:
    """The manifests of the newest version whose chunks lie in files that are not the store's."""
    try:
        newest = folder.newest()
        live = folder.live(newest).table if newest else SCHEMA.empty_table()
    except ReadError:  # told where that file is read
        return set()
    there = live.filter(live["in_place"])
    return set(zip(there["manifest"].to_pylist(), there["manifest_offset"].to_pylist(), strict=True))


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


def _read_manifest(folder: RecordingsFolder, entry: RecordingEntry, told: _Told) -> None:
    """Take what a recording's manifest tells of its chunks. Raises ``ReadError``."""
    chunks = folder.references(entry)
    table = chunks.table
    which, shards = table.part_codes
    rows = 0
    for at, chunk in zip(which.tolist(), table.entries(), strict=True):
        told[shards[at], chunks.version or NEVER_CHANGES][chunk.offset].append((entry.store, chunk))
        rows += chunk.header.num_rows
    if rows != entry.rows:
        raise ReadError(
            f"the manifest of recording {entry.recording_id} lists {rows:,} rows instead of {entry.rows:,}",
            path=folder.manifests.place(entry.manifest),
            offset=entry.manifest_offset,
            hint=RESTORE,
        )
