"""All of a store read, to see whether it is what was written: versions, tables, manifests, shards and chunks."""

from __future__ import annotations

from collections import defaultdict

from ..errors import ReadError, SourceMissingError
from ..rrd import ChunkEntry, Findings, StoreEntry, Verification, verify_file
from .entries import RecordingEntry
from .folder import RecordingsFolder
from .versions import RESTORE, TableRef

_ToldOfShards = defaultdict[str, defaultdict[int, list[tuple[StoreEntry, ChunkEntry]]]]
"""What manifests tell of the chunks of each shard, by the offsets of their messages."""


def verify_store(folder: RecordingsFolder) -> Verification:
    """Read all that the versions of a store name, and compare it with what they say.

    Version files, tables of recordings, manifests and chunks have the digests that are told of them; each recording
    has the rows and chunks that its entry counts; each chunk is decoded, once, and is what the manifest and its
    shard's footer say. Chunks are counted by shards, those included that only old versions still need. What is
    otherwise is a fault of the result. Raises ``SourceMissingError`` where there is no store.
    """
    found = Findings()
    tables: dict[TableRef, None] = {}
    for number in folder.files.numbers():
        with found.noting():
            tables.update(dict.fromkeys(folder.read_version(number).tables))
    told: _ToldOfShards = defaultdict(lambda: defaultdict(list))
    manifests: set[tuple[str, int]] = set()
    for table in tables:
        with found.noting():
            for entry in folder.entries([table]):
                if entry.manifest and (entry.manifest, entry.manifest_offset) not in manifests:
                    manifests.add((entry.manifest, entry.manifest_offset))
                    with found.noting():
                        _read_manifest(folder, entry, told)
    for shard in sorted(told):
        try:
            found.add(verify_file(shard, told[shard]))
        except SourceMissingError as error:
            found.fault(ReadError("a shard that the store names is not there", path=error.path, hint=RESTORE))
    return found.verification()


def _read_manifest(folder: RecordingsFolder, entry: RecordingEntry, told: _ToldOfShards) -> None:
    """Take what a recording's manifest tells of its chunks. Raises ``ReadError``."""
    table = folder.references(entry).table
    which, shards = table.part_codes
    rows = 0
    for at, chunk in zip(which.tolist(), table.entries(), strict=True):
        told[shards[at]][chunk.offset].append((entry.store, chunk))
        rows += chunk.header.num_rows
    if rows != entry.rows:
        raise ReadError(
            f"the manifest of recording {entry.recording_id} lists {rows:,} rows instead of {entry.rows:,}",
            path=folder.manifests.place(entry.manifest),
            offset=entry.manifest_offset,
            hint=RESTORE,
        )
