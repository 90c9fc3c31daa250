"""A store that is kept: a folder (or a prefix of an object store) of RRD shards, and versions of a manifest over them.

::

    store/
      versions/00000001.json     names a manifest; appears whole, in one step, and never changes
      manifests/<name>.arrow     the chunk rows of one version: header, shard, place, digest
      shards/<name>.rrd          RRD files; Rerun opens each by itself

Guarantee: a reader sees the chunks of one version, all of them; a writer that dies leaves nothing that a reader could
see. Two writers of one version number: the first wins, the second gets a :class:`WriteError` that says so. A version
file holds a digest of itself and one of its manifest, the manifest one of each chunk; all are verified on reading.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from ..chunk import Chunk
from ..errors import ReadError, SourceMissingError, UnsupportedError, WriteError
from ..execution.chunk_rows import SCHEMA, PartChunk, RowWriter, parse_rows
from ..execution.folders import Folder, LocalFolder, sync_folder
from ..execution.shards import unique_names, write_shards
from ..execution.staging import Staging
from ..failing import writing
from ..locations import located
from ..rrd import StoreEntry
from ..rrd.digest import VerifiedPayload, digest_of
from ..rrd.opening import NEVER_CHANGES

FORMAT = 1
_VERSIONS, _MANIFESTS, _SHARDS = "versions", "manifests", "shards"
_NAME: Final = re.compile(r"\d{8,}\.json")
_RESTORE: Final = "The store was damaged; restore the file from a copy, or open another version."


@dataclass(frozen=True, slots=True)
class StoreVersion:
    """One version of a kept store. ``created`` is in seconds since the epoch."""

    number: int
    created: float
    chunks: int
    rows: int
    bytes: int
    application_id: str
    recording_id: str
    manifest: str
    manifest_digest: str

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

    # --- reading

    def versions(self) -> list[StoreVersion]:
        """All versions, oldest first."""
        return [self._version(name) for name in self._version_names()]

    def version(self, number: int | None = None) -> StoreVersion:
        """The version ``number``, by default the newest."""
        names = self._version_names()
        name = names[-1] if number is None and names else _version_name(number or 0)
        if name in names:
            return self._version(name)
        have = ", ".join(str(_number_of(n)) for n in names) or "none"
        raise SourceMissingError(f"there is no version {number}", path=str(self.path), hint=f"There are: {have}.")

    def newest_number(self) -> int:
        """The number of the newest version, 0 where there is none."""
        return max((_number_of(name) for name in self._version_names(may_be_new=True)), default=0)

    def _version_names(self, *, may_be_new: bool = False) -> list[str]:
        if not may_be_new and not self._versions.exists():
            raise SourceMissingError(
                "no store is kept here", path=str(self.path), hint="Make one with stream.collect(into=…)."
            )
        return sorted(name for name in self._versions.names() if _NAME.fullmatch(name))

    def chunks(self, version: StoreVersion) -> list[Chunk]:
        """The chunks of a version, undecoded, in its order."""
        path = self._manifests.place(version.manifest)
        try:
            found = _parse_manifest(self._manifests.get(version.manifest), version.manifest_digest)
        except (OSError, pa.ArrowException, ValueError, TypeError, KeyError) as error:
            raise ReadError(
                f"the manifest of version {version.number} cannot be read: {error}", path=path, hint=_RESTORE
            ) from error
        if len(found) != version.chunks:
            raise ReadError(
                f"version {version.number} has {version.chunks} chunks, its manifest lists {len(found)}",
                path=path,
                hint="Restore the file from a copy.",
            )
        return [self._chunk(c, version.store) for c in found]

    def _version(self, name: str) -> StoreVersion:
        place = self._versions.place(name)
        try:
            data = json.loads(self._versions.get(name))
            if data.pop("digest", None) != _digest_of_version(data):
                raise ValueError("it is not what was written: its digest differs")
            if data.pop("format", None) != FORMAT:
                raise UnsupportedError(
                    "this version has a format that is not known here",
                    path=place,
                    hint="It was written by a newer release; read it with that.",
                )
            return StoreVersion(**data)
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ReadError(f"this version cannot be read: {error}", path=place, hint=_RESTORE) from error

    def _chunk(self, found: PartChunk, store: StoreEntry) -> Chunk:
        entry = found.entry
        payload = VerifiedPayload(
            self._shards.place(found.part),
            entry.offset,
            entry.size,
            entry.header.chunk_id,
            found.digest or b"",
            entry.uncompressed_size,
            store,
            version=NEVER_CHANGES,
        )
        return Chunk.lazy(entry.header, payload)

    # --- writing

    def prepare(self) -> None:
        """Make the folders."""
        with writing(str(self.path)):
            for folder in (self._versions, self._manifests, self._shards):
                folder.make()

    def write(
        self, staging: Staging, store: StoreEntry, chunks: Sequence[PartChunk], shard_bytes: int, after: int
    ) -> StoreVersion:
        """Stitch parts into shards, and publish a version ``after`` the given one that is made of them.

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

    def commit(self, store: StoreEntry, chunks: Sequence[PartChunk], size: int, after: int) -> StoreVersion:
        """Publish a version ``after`` the given one, of chunks in shards of this folder of ``size`` bytes together.

        Raises a transient ``WriteError`` where another version has its number; its files are then removed. Of another
        failure nobody knows whether it came before or after the version appeared, so nothing is removed.
        """
        manifest = f"{uuid.uuid4().hex}.arrow"
        data = _manifest(chunks)
        with writing(str(self.path)):
            self._manifests.put(manifest, data)
        version = StoreVersion(
            number=after + 1,
            created=time.time(),
            chunks=len(chunks),
            rows=sum(c.entry.header.num_rows for c in chunks),
            bytes=size,
            application_id=store.application_id,
            recording_id=store.recording_id,
            manifest=manifest,
            manifest_digest=digest_of(data).hex(),
        )
        if not self._publish(version):
            with writing(str(self.path)):
                self._manifests.delete([manifest])
                self._shards.delete({c.part for c in chunks})
            raise WriteError(
                f"version {version.number} was committed by another writer in the meantime",
                path=str(self.path),
                hint="Nothing of this run is visible; run it again on top of that version.",
                transient=True,
            )
        return version

    def _publish(self, version: StoreVersion) -> bool:
        """Put the version file there if no other has its number: the one step that makes it visible."""
        data = {"format": FORMAT, **asdict(version)}
        text = json.dumps({**data, "digest": _digest_of_version(data)})
        with writing(str(self.path)):
            return self._versions.create(_version_name(version.number), text.encode())

    def vacuum(self, keep: int = 1) -> int:
        """Remove what no version but the newest ``keep`` needs. Gives the number of bytes freed.

        A version file goes first, so that no reader can open it any more; then what only it needed. Do not call it
        while another process writes to the store.
        """
        versions = self.versions()
        kept = versions[-keep:] if keep > 0 else []
        manifests = {v.manifest for v in kept}
        shards = {getattr(c.payload, "path", "") for v in kept for c in self.chunks(v)}
        with writing(str(self.path)):
            self._versions.delete(_version_name(v.number) for v in versions[: len(versions) - len(kept)])
            freed = _delete(self._manifests, lambda name: name not in manifests)
            freed += _delete(self._shards, lambda name: self._shards.place(name) not in shards)
            freed += _delete(self._versions, lambda name: name.startswith("."))
        return freed


def _delete(folder: Folder, is_doomed: Callable[[str], bool]) -> int:
    """Remove some files of a folder; gives their size in bytes."""
    doomed = [entry for entry in folder.entries() if is_doomed(entry.name)]
    folder.delete(entry.name for entry in doomed)
    return sum(entry.size for entry in doomed)


def _version_name(number: int) -> str:
    return f"{number:08d}.json"


def _number_of(name: str) -> int:
    return int(name.partition(".")[0])


def _digest_of_version(data: dict[str, Any]) -> str:
    """The digest of what a version file says, its own digest left out."""
    return digest_of(json.dumps(data, sort_keys=True).encode()).hex()


def _parse_manifest(data: bytes, digest: str) -> list[PartChunk]:
    """The chunks of a manifest, verified before Arrow looks at a byte of it."""
    if digest_of(data).hex() != digest:
        raise ValueError("it is not what was written: its digest differs")
    batches = pa.ipc.open_file(pa.py_buffer(data)).read_all().to_batches()
    for batch in batches:
        batch.validate(full=True)
    return parse_rows(batches)[0]


def _manifest(chunks: Sequence[PartChunk]) -> bytes:
    """The manifest of a version."""
    rows = RowWriter(0)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, SCHEMA) as out:
        for chunk in chunks:
            for batch in rows.add(chunk.entry, chunk.part, chunk.digest):
                out.write_batch(batch)
        out.write_batch(rows.batch())
    return bytes(sink.getvalue().to_pybytes())
