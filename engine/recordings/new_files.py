"""Shards and manifests of a commit, which no version names yet.

Small recordings share a shard, a large one has several.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, NamedTuple

from ..errors import WriteError
from ..execution.chunk_rows import PartChunk
from ..execution.folders import Folder, LocalFolder, NewFile, sync_folder
from ..execution.shards import SHARD_BYTES, unique_names
from ..execution.staging import Staging
from ..failing import writing
from ..faults import reach
from ..rrd import MESSAGE_HEADER_SIZE, RrdWriter, StoreEntry
from .folder import RecordingsFolder

MOST_CHUNKS: Final = 100_000
"""Chunks of one shard, whose footer is made in memory."""


class _Sealed(NamedTuple):
    name: str
    file: NewFile
    size: int


@dataclass
class _Open:
    name: str
    file: NewFile
    writer: RrdWriter
    chunks: int = 0


class ShardStitcher:
    """Copies chunks out of parts into shards of about ``shard_bytes`` each; the kernel copies, nothing is decoded.

    Shards appear in ``folder`` by :meth:`finish`, durably, under names that nothing knows yet.
    """

    def __init__(self, staging: Staging, folder: Folder, destination: str, shard_bytes: int = SHARD_BYTES) -> None:
        self._staging = staging
        self._folder = folder
        self._destination = destination
        self._most = shard_bytes
        self._names = unique_names()
        self._open: _Open | None = None
        self._sealed: list[_Sealed] = []

    def add(self, store: StoreEntry, chunks: Sequence[PartChunk]) -> list[PartChunk]:
        """Copy a recording's chunks, in the order in which they lie in their parts; gives their new places."""
        moved: list[PartChunk] = []
        with writing(self._destination):
            for part, found in groupby(chunks, key=lambda c: c.part):
                for run in _runs(list(found), self._most):
                    moved += self._copy(store, part, run)
        return moved

    def _copy(self, store: StoreEntry, part: str, run: Sequence[PartChunk]) -> list[PartChunk]:
        start = run[0].entry.offset - MESSAGE_HEADER_SIZE
        size = run[-1].entry.offset + run[-1].entry.size - start
        shard = self._with_room(size, len(run))
        shard.writer.begin_store(store)
        shard.chunks += len(run)
        place = self._staging.folder.place(part)
        entries = shard.writer.append_part(store, place, [c.entry for c in run], start, size)
        return [replace(c, part=shard.name, entry=entry) for c, entry in zip(run, entries, strict=True)]

    def _with_room(self, size: int, chunks: int) -> _Open:
        shard = self._open
        if shard is not None and shard.chunks:
            full = shard.writer.position + size > self._most or shard.chunks + chunks > MOST_CHUNKS
            if full:
                self._seal()
                shard = None
        if shard is None:
            name = next(self._names)
            folder = self._staging.folder if isinstance(self._folder, LocalFolder) else self._folder
            file = folder.new(name)
            shard = self._open = _Open(name, file, RrdWriter(file.file, path=self._destination))
        return shard

    def _seal(self) -> None:
        shard, self._open = self._open, None
        if shard is not None:
            self._sealed.append(_Sealed(shard.name, shard.file, 0))
            shard.writer.finish()
            self._sealed[-1] = _Sealed(shard.name, shard.file, shard.writer.position)
            reach("shard.write", _written(shard.file))
            shard.file.seal()

    def finish(self) -> None:
        """Let all shards appear in their folder."""
        with writing(self._destination):
            self._seal()
            for shard in self._sealed:
                shard.file.finish()
                if isinstance(self._folder, LocalFolder):
                    (self._staging.local / shard.name).rename(self._folder.place(shard.name))
                reach("shard.rename", self._folder.place(shard.name))
            if isinstance(self._folder, LocalFolder):
                sync_folder(self._folder.location)

    @property
    def names(self) -> list[str]:
        """The names of all shards so far."""
        return [shard.name for shard in self._sealed] + ([self._open.name] if self._open else [])

    @property
    def size(self) -> int:
        """The bytes of all shards, once they are finished."""
        return sum(shard.size for shard in self._sealed)

    def discard(self) -> None:
        """Throw away what was begun; shards that have appeared are removed too, since nothing names them."""
        for file in [shard.file for shard in self._sealed] + ([self._open.file] if self._open else []):
            file.discard()
        self._folder.delete(self.names)


def _written(file: NewFile) -> str | os.PathLike[str] | None:
    name = getattr(file.file, "name", None)
    return name if isinstance(name, str) else None


def _runs(chunks: Sequence[PartChunk], most: int) -> Iterator[list[PartChunk]]:
    """Neighbours in one part that fit into one shard; larger ones by themselves."""
    run: list[PartChunk] = []
    size = 0
    for chunk in chunks:
        gap = run and chunk.entry.offset - MESSAGE_HEADER_SIZE != run[-1].entry.offset + run[-1].entry.size
        if run and (gap or size + chunk.entry.size > most):
            yield run
            run, size = [], 0
        run.append(chunk)
        size += chunk.entry.size + MESSAGE_HEADER_SIZE
    if run:
        yield run


_MANIFEST_BYTES: Final = 32 << 20
"""What is held in memory until a manifest is written."""


class NewFiles:
    """Writes shards and manifests of about 32 MiB; all are there, durably, by :meth:`finish`."""

    def __init__(self, folder: RecordingsFolder, staging: Staging, shard_bytes: int) -> None:
        self.folder = folder
        self.shards = ShardStitcher(staging, folder.shards, str(folder.path), shard_bytes)
        self.manifests: list[str] = []
        self._pieces: list[bytes] = []
        self._size = 0

    def add_manifest(self, data: bytes) -> tuple[str, int]:
        """Add the manifest of a recording; the file it is going to lie in, and its offset there."""
        if self._size >= _MANIFEST_BYTES:
            self._write_manifest()
        if not self._pieces:
            self.manifests.append(f"{uuid.uuid4().hex}.arrows")
        offset = self._size
        self._pieces.append(data)
        self._size += len(data)
        return self.manifests[-1], offset

    def finish(self) -> None:
        """Let all of them be there."""
        self.shards.finish()
        self._write_manifest()

    def discard(self) -> None:
        """Remove them, as far as possible: certainly no version names them. A vacuum finds what stays."""
        with contextlib.suppress(OSError, WriteError):
            self.shards.discard()
        with contextlib.suppress(OSError, WriteError):
            self.folder.manifests.delete(self.manifests)

    def _write_manifest(self) -> None:
        if self._pieces:
            name = self.manifests[-1]
            with writing(str(self.folder.path)):
                put_durably(self.folder.manifests, name, b"".join(self._pieces))
                reach("manifest.write", self.folder.manifests.place(name))
            self._pieces, self._size = [], 0


def put_durably(folder: Folder, name: str, data: bytes) -> None:
    """Write a file that a version is going to name: its name is on the disk before that version's."""
    folder.put(name, data)
    if isinstance(folder, LocalFolder):
        sync_folder(folder.location)
