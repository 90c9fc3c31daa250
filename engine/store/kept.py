"""A store that is kept: a folder (or a prefix of an object store) of RRD shards, and versions of a manifest over them.

::

    store/
      versions/00000001.json     names a manifest; appears whole, in one step, and never changes
      manifests/<name>.arrow     the chunk rows of one version: header, shard, place, digest
      shards/<name>.rrd          RRD files; Rerun opens each by itself

Guarantee: a reader sees the chunks of one version, all of them; a writer that dies leaves nothing that a reader could
see. Two writers of one version number: the first wins, the second gets a :class:`WriteError` that says so; what
protects the files from both is told in :mod:`.version_files`. A version file holds a digest of itself and one of its
manifest, the manifest one of each chunk; all are verified on reading.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..chunk import Chunk
from ..errors import CommitUnknownError, ReadError, UsageError
from ..execution.chunk_rows import PartChunk
from ..execution.folders import Folder, LocalFolder, sync_folder
from ..execution.shards import unique_names, write_shards
from ..execution.staging import Staging
from ..failing import writing
from ..locations import located
from ..recordings.chunk_manifest import MANIFEST_ERRORS, kept_chunk, manifest_bytes, parse_manifest
from ..recordings.cleaning import remove_unneeded
from ..recordings.version_files import RESTORE, VersionFiles, name_of, unreadable
from ..rrd import StoreEntry
from ..rrd.digest import digest_of

_VERSIONS, _MANIFESTS, _SHARDS = "versions", "manifests", "shards"


@dataclass(frozen=True, slots=True)
class StoreVersion:
    """One version of a kept store.

    ``created`` is in seconds since the epoch; ``first``: the number of the first version that counts, as earlier ones
    are removed.
    """

    number: int
    created: float
    chunks: int
    rows: int
    bytes: int
    application_id: str
    recording_id: str
    manifest: str
    manifest_digest: str
    first: int = 0

    @property
    def store(self) -> StoreEntry:
        """The recording that the shards belong to."""
        return StoreEntry("recording", self.application_id, self.recording_id)


class KeptFolder:
    """The folder of a kept store."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = located(path)
        folder = Folder.at(self.path)
        self._versions, self._manifests, self._shards = (folder.sub(n) for n in (_VERSIONS, _MANIFESTS, _SHARDS))
        self._files = VersionFiles(self._versions, str(self.path), "Make one with stream.collect(into=…).")

    # --- reading

    def versions(self) -> list[StoreVersion]:
        """All versions, oldest first."""
        return [self._version(number) for number in self._files.numbers()]

    def version(self, number: int | None = None) -> StoreVersion:
        """The version ``number``, by default the newest."""
        newest = self.newest() if number is None else None
        return newest or self._version(self._files.chosen(number))

    def newest(self) -> StoreVersion | None:
        """The newest version, if there is any."""
        latest = self._files.latest()
        return self._parsed(*latest) if latest else None

    def chunks(self, version: StoreVersion) -> list[Chunk]:
        """The chunks of a version, undecoded, in its order."""
        path = self._manifests.place(version.manifest)
        try:
            found = parse_manifest(self._manifests.get(version.manifest), version.manifest_digest)
        except MANIFEST_ERRORS as error:
            raise ReadError(
                f"the manifest of version {version.number} cannot be read: {error}", path=path, hint=RESTORE
            ) from error
        if len(found) != version.chunks:
            raise ReadError(
                f"version {version.number} has {version.chunks} chunks, its manifest lists {len(found)}",
                path=path,
                hint="Restore the file from a copy.",
            )
        return [kept_chunk(c, self._shards, version.store) for c in found]

    def _version(self, number: int) -> StoreVersion:
        return self._parsed(number, self._files.read(number))

    def _parsed(self, number: int, data: dict[str, Any]) -> StoreVersion:
        try:
            return StoreVersion(**data)
        except TypeError as error:
            raise unreadable(error, self._versions.place(name_of(number))) from error

    # --- writing

    def prepare(self) -> None:
        """Make the folders."""
        with writing(str(self.path)):
            for folder in (self._versions, self._manifests, self._shards):
                folder.make()

    def write(
        self,
        staging: Staging,
        store: StoreEntry,
        chunks: Sequence[PartChunk],
        shard_bytes: int,
        after: StoreVersion | None,
    ) -> StoreVersion:
        """Stitch parts into shards, and publish a version that is made of them ``after`` the one that was the newest.

        ``chunks`` are in the order in which they lie in their parts. Nothing of it is visible before the last step.
        """
        moves = isinstance(staging.folder, LocalFolder)
        into = staging.folder if moves else self._shards
        names, kept, size = [], [], 0
        try:
            for shard in write_shards(staging, store, chunks, shard_bytes, str(self.path), into, unique_names()):
                names.append(shard.name)
                kept += shard.chunks
                size += shard.size
                with writing(str(self.path)):
                    shard.file.finish()
            if moves:
                self._take_over(staging.local, names)
        except BaseException:
            if not moves:
                self._shards.delete(names)
            raise
        return self.commit(store, sorted(kept, key=lambda c: c.entry.header.chunk_id), size, after)

    def _take_over(self, folder: Path, names: Sequence[str]) -> None:
        with writing(str(self.path)):
            for name in names:
                (folder / name).rename(self._shards.place(name))
            sync_folder(Path(self._shards.place("")))

    def commit(
        self, store: StoreEntry, chunks: Sequence[PartChunk], size: int, after: StoreVersion | None
    ) -> StoreVersion:
        """Publish a version of chunks in shards of this folder, of ``size`` bytes together.

        ``after``: the newest version from before the first of them was written. Raises ``WriteError`` where it was
        certainly not published, as when another version has its number: its files are then removed. Raises
        ``CommitUnknownError`` where nobody knows, so that nothing is removed.
        """
        manifest = f"{uuid.uuid4().hex}.arrow"
        data = manifest_bytes(chunks)
        with writing(str(self.path)):
            self._manifests.put(manifest, data)
        version = StoreVersion(
            number=after.number + 1 if after else 1,
            created=time.time(),
            chunks=len(chunks),
            rows=sum(c.entry.header.num_rows for c in chunks),
            bytes=size,
            application_id=store.application_id,
            recording_id=store.recording_id,
            manifest=manifest,
            manifest_digest=digest_of(data).hex(),
            first=after.first if after else 0,
        )
        try:
            self._files.commit(version.number, asdict(version))
        except CommitUnknownError:
            raise
        except Exception:
            with writing(str(self.path)):
                self._manifests.delete([manifest])
                self._shards.delete({c.part for c in chunks})
            raise
        return version

    def vacuum(self, keep: int = 1) -> int:
        """Remove what no version but the newest ``keep`` needs. Gives the number of bytes freed.

        Where there is something to remove, a version is published first that has the same chunks; it is not counted.
        A run that writes meanwhile fails, and can be repeated.
        """
        if keep < 1:
            raise UsageError(f"keep must be at least 1, not {keep}")
        newest = self.version()
        kept: dict[str, StoreVersion] = {}
        first = newest.number
        for version in reversed(self.versions()):
            if version.manifest not in kept and len(kept) == keep:
                break
            kept[version.manifest] = version
            first = version.number
        shards = {getattr(c.payload, "path", "").rpartition("/")[2] for v in kept.values() for c in self.chunks(v)}
        following = replace(newest, number=newest.number + 1, created=time.time(), first=max(first, newest.first))

        def publish() -> None:
            self._files.commit(following.number, asdict(following))

        with writing(str(self.path)):
            return remove_unneeded(
                self._files, first, [(self._manifests, kept.keys()), (self._shards, shards)], publish
            )
