"""A store that is kept: a folder of RRD shards and versions of a manifest over them.

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
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from ..chunk import Chunk
from ..errors import ReadError, SourceMissingError, UnsupportedError, WriteError
from ..execution.chunk_rows import SCHEMA, PartChunk, RowWriter, parse_rows
from ..execution.commit import sync_folder
from ..failing import writing
from ..locations import local_path
from ..rrd import StoreEntry
from ..rrd.digest import VerifiedPayload, digest_of

FORMAT = 1
_VERSIONS, _MANIFESTS, _SHARDS = "versions", "manifests", "shards"
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
        self.path = local_path(path)

    # --- reading

    def versions(self) -> list[StoreVersion]:
        """All versions, oldest first."""
        folder = self.path / _VERSIONS
        if not folder.is_dir():
            raise SourceMissingError(
                "no store is kept here", path=str(self.path), hint="Make one with stream.collect(into=…)."
            )
        return [self._version(f) for f in sorted(folder.glob("*.json"))]

    def version(self, number: int | None = None) -> StoreVersion:
        """The version ``number``, by default the newest."""
        versions = self.versions()
        if number is None and versions:
            return versions[-1]
        for version in versions:
            if version.number == number:
                return version
        have = ", ".join(str(v.number) for v in versions) or "none"
        raise SourceMissingError(f"there is no version {number}", path=str(self.path), hint=f"There are: {have}.")

    def chunks(self, version: StoreVersion) -> list[Chunk]:
        """The chunks of a version, undecoded, in its order."""
        path = self.path / _MANIFESTS / version.manifest
        try:
            found = _parse_manifest(path.read_bytes(), version.manifest_digest)
        except (OSError, pa.ArrowException, ValueError, TypeError, KeyError) as error:
            raise ReadError(
                f"the manifest of version {version.number} cannot be read: {error}", path=str(path), hint=_RESTORE
            ) from error
        if len(found) != version.chunks:
            raise ReadError(
                f"version {version.number} has {version.chunks} chunks, its manifest lists {len(found)}",
                path=str(path),
                hint="Restore the file from a copy.",
            )
        return [self._chunk(c) for c in found]

    def _version(self, file: Path) -> StoreVersion:
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            if data.pop("digest", None) != _digest_of_version(data):
                raise ValueError("it is not what was written: its digest differs")
            if data.pop("format", None) != FORMAT:
                raise UnsupportedError(
                    "this version has a format that is not known here",
                    path=str(file),
                    hint="It was written by a newer release; read it with that.",
                )
            return StoreVersion(**data)
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ReadError(f"this version cannot be read: {error}", path=str(file), hint=_RESTORE) from error

    def _chunk(self, found: PartChunk) -> Chunk:
        entry = found.entry
        shard = str(self.path / _SHARDS / found.part)
        payload = VerifiedPayload(shard, entry.offset, entry.size, entry.header.chunk_id, found.digest or b"")
        return Chunk.lazy(entry.header, payload)

    # --- writing

    def prepare(self) -> None:
        """Make the folders."""
        with writing(str(self.path)):
            for name in (_VERSIONS, _MANIFESTS, _SHARDS):
                (self.path / name).mkdir(parents=True, exist_ok=True)

    def commit(
        self, store: StoreEntry, shards: Iterable[Path], chunks: Sequence[PartChunk], after: int
    ) -> StoreVersion:
        """Publish a version ``after`` the given one: shards (files of this file system, renamed) and their chunks.

        ``part`` of each chunk is the name of its shard's file. Nothing of it is visible before the last step.
        """
        manifest = f"{uuid.uuid4().hex}.arrow"
        size = 0
        with writing(str(self.path)):
            for shard in shards:
                size += shard.stat().st_size
                shard.rename(self.path / _SHARDS / shard.name)
            sync_folder(self.path / _SHARDS)
            digest = _write_manifest(self.path / _MANIFESTS / manifest, chunks)
        version = StoreVersion(
            number=after + 1,
            created=time.time(),
            chunks=len(chunks),
            rows=sum(c.entry.header.num_rows for c in chunks),
            bytes=size,
            application_id=store.application_id,
            recording_id=store.recording_id,
            manifest=manifest,
            manifest_digest=digest,
        )
        self._publish(version)
        return version

    def _publish(self, version: StoreVersion) -> None:
        """Put the version file there if no other has its number: the one step that makes it visible."""
        folder = self.path / _VERSIONS
        target = folder / f"{version.number:08d}.json"
        draft = folder / f".{uuid.uuid4().hex}.draft"
        data = {"format": FORMAT, **asdict(version)}
        with writing(str(self.path)):
            try:
                with draft.open("w") as file:
                    json.dump({**data, "digest": _digest_of_version(data)}, file)
                    file.flush()
                    os.fsync(file.fileno())
                os.link(draft, target)
                sync_folder(folder)
            except FileExistsError:
                raise WriteError(
                    f"version {version.number} was committed by another writer in the meantime",
                    path=str(self.path),
                    hint="Nothing of this run is visible; run it again on top of that version.",
                    transient=True,
                ) from None
            finally:
                draft.unlink(missing_ok=True)

    def vacuum(self, keep: int = 1) -> int:
        """Remove what no version but the newest ``keep`` needs. Gives the number of bytes freed.

        A version file goes first, so that no reader can open it any more; then what only it needed. Do not call it
        while another process writes to the store.
        """
        versions = self.versions()
        kept = versions[-keep:] if keep > 0 else []
        manifests = {v.manifest for v in kept}
        shards = {getattr(c.payload, "path", "") for v in kept for c in self.chunks(v)}
        freed = 0
        with writing(str(self.path)):
            for version in versions[: len(versions) - len(kept)]:
                (self.path / _VERSIONS / f"{version.number:08d}.json").unlink()
            doomed = [p for p in (self.path / _MANIFESTS).iterdir() if p.name not in manifests]
            doomed += [p for p in (self.path / _SHARDS).iterdir() if str(p) not in shards]
            doomed += list((self.path / _VERSIONS).glob(".*.draft"))
            for path in doomed:
                freed += path.stat().st_size
                path.unlink()
        return freed


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


def _write_manifest(path: Path, chunks: Sequence[PartChunk]) -> str:
    """Write the manifest; gives its digest."""
    rows = RowWriter(0)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, SCHEMA) as out:
        for chunk in chunks:
            for batch in rows.add(chunk.entry, chunk.part, chunk.digest):
                out.write_batch(batch)
        out.write_batch(rows.batch())
    data = sink.getvalue()
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return digest_of(data).hex()
