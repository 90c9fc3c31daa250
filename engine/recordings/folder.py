"""The files of a store of recordings.

::

    store/
      versions/00000001.json     names its tables; appears whole, in one step, and never changes
      tables/<name>.arrow        recordings that were added, an entry each
      manifests/<name>.arrows    chunk rows (header, shard, place, digest) of the recordings of one commit
      shards/<name>.rrd          RRD files; Rerun opens each by itself. Small recordings of one commit share one

A version file holds a digest of itself and one of each table, a table's entries one of each manifest, a manifest one
of each chunk; all are verified on reading.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from ..chunk import Chunk
from ..errors import CommitUnknownError, ReadError, SourceMissingError, WriteError
from ..execution.folders import Folder, LocalFolder, sync_folder
from ..failing import writing
from ..locations import located
from ..store.chunk_manifest import MANIFEST_ERRORS, kept_chunk, parse_manifest
from ..store.version_files import RESTORE, VersionFiles, name_of, unreadable
from .entry import RecordingEntry
from .entry_table import entries_in, parse_table
from .version import RecordingsVersion, TableRef

_HOW = "Make one with `chunkmill ingest … --into`, or Ingest(…, into=…)."


class RecordingsFolder:
    """The folder, or the prefix of an object store, of a store of recordings."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = located(path)
        folder = Folder.at(self.path)
        self.versions_folder = folder.sub("versions")
        self.tables = folder.sub("tables")
        self.manifests = folder.sub("manifests")
        self.shards = folder.sub("shards")
        self.files = VersionFiles(self.versions_folder, str(self.path), _HOW)

    def prepare(self) -> None:
        """Make the folders."""
        with writing(str(self.path)):
            for folder in (self.versions_folder, self.tables, self.manifests, self.shards):
                folder.make()
            if isinstance(self.path, Path):
                sync_folder(self.path)
                sync_folder(self.path.parent)

    def versions(self) -> list[RecordingsVersion]:
        """All versions, oldest first."""
        return [self.read_version(number) for number in self.files.numbers()]

    def version(self, number: int | None = None) -> RecordingsVersion:
        """The version ``number``, by default the newest. Raises ``SourceMissingError`` where there is none."""
        chosen = self.files.chosen(number)
        try:
            return self.read_version(chosen)
        except ReadError:
            if number is not None or self.files.chosen(None) == chosen:
                raise
            return self.version()  # it was vacuumed between the two, as there is a newer one

    def newest(self) -> RecordingsVersion | None:
        """The newest version, if there is any."""
        number = self.files.newest()
        return self.read_version(number) if number else None

    def read_version(self, number: int) -> RecordingsVersion:
        """A version that is there."""
        data = self.files.read(number)
        try:
            return RecordingsVersion.of(data)
        except (TypeError, ValueError, KeyError) as error:
            raise unreadable(error, self.versions_folder.place(name_of(number))) from error

    def rows(self, ref: TableRef) -> Iterator[pa.RecordBatch]:
        """The rows of a table of entries, some at a time. Raises ``ReadError``."""
        count = 0
        try:
            for batch in parse_table(self.tables.get(ref.name), ref.digest):
                yield batch
                count += batch.num_rows
            if count != ref.entries:
                raise ValueError(f"it has {count} entries instead of {ref.entries}")
        except MANIFEST_ERRORS as error:
            raise ReadError(
                f"a table of recordings cannot be read: {error}", path=self.tables.place(ref.name), hint=RESTORE
            ) from error

    def entries(self, tables: Iterable[TableRef]) -> list[RecordingEntry]:
        """What tables say, oldest first. Raises ``ReadError``."""
        return [entry for ref in tables for entry in entries_in(self.rows(ref))]

    def named(self, tables: Iterable[TableRef]) -> tuple[set[str], set[str]]:
        """The manifests and the shards that tables name. Raises ``ReadError``."""
        manifests: set[str] = set()
        shards: set[str] = set()
        for ref in tables:
            for batch in self.rows(ref):
                manifests.update(batch["manifest"].unique().to_pylist())
                shards.update(batch["shards"].flatten().unique().to_pylist())
        return manifests, shards

    def chunks(self, entry: RecordingEntry) -> list[Chunk]:
        """The chunks of a recording, undecoded, in their order."""
        if not entry.manifest:
            raise SourceMissingError(
                f"the chunks of recording {entry.recording_id} are not kept in this store",
                path=str(self.path),
                hint=f"Read its RRD, {entry.rrd}.",
            )
        place = self.manifests.place(entry.manifest)
        try:
            data = self.manifests.get_range(entry.manifest, entry.manifest_offset, entry.manifest_size)
            found = parse_manifest(data, entry.manifest_digest)
            if len(found) != entry.chunks:
                raise ValueError(f"it lists {len(found)} chunks instead of {entry.chunks}")
        except MANIFEST_ERRORS as error:
            raise ReadError(
                f"the manifest of recording {entry.recording_id} cannot be read: {error}",
                path=place,
                offset=entry.manifest_offset,
                hint=RESTORE,
            ) from error
        return [kept_chunk(c, self.shards, entry.store) for c in found]

    def publish(self, version: RecordingsVersion) -> None:
        """Make a version visible, in one step.

        Raises ``WriteError`` where it certainly was not: another version has its number (transient), or the disk is
        full. Raises ``CommitUnknownError`` where nobody knows; the caller must not remove anything then, nor where
        something raises that is no ``Exception``.
        """
        try:
            made = self.files.publish(version.number, version.to_dict())
        except Exception as error:
            if self._certainly_not(version.number):
                raise
            raise CommitUnknownError(
                f"it is not known whether version {version.number} was committed: {error}",
                path=str(self.path),
                hint="Nothing was removed. Run it again: what was committed is not done twice.",
                transient=True,
            ) from error
        if not made:
            raise WriteError(
                f"version {version.number} was committed by another writer in the meantime",
                path=str(self.path),
                hint="Nothing of this run is visible; run it again on top of that version.",
                transient=True,
            )

    def _certainly_not(self, number: int) -> bool:
        if not isinstance(self.versions_folder, LocalFolder):
            return False  # a request that failed here may still arrive there
        try:
            return not self.versions_folder.exists(name_of(number))
        except OSError:
            return False
