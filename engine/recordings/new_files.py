"""Shards and manifests of a commit, which no version names yet.

Small recordings share a shard, a large one has several.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Sequence
from typing import Final

from ..errors import WriteError, writing
from ..execution import Folder, LocalFolder, PartChunk, Shard, Staging, neighbours, sync_folder
from ..faults import reach
from ..rrd import MESSAGE_HEADER_SIZE, StoreEntry
from .folder import RecordingsFolder

MOST_CHUNKS: Final = 100_000
"""Chunks of one shard, whose footer is made in memory."""


class NewShards:
    """Copies chunks out of parts into shards of about ``shard_bytes`` each.

    Shards appear in ``folder`` by :meth:`finish`, durably, under names that nothing knows yet.
    """

    def __init__(self, staging: Staging, folder: Folder, destination: str, shard_bytes: int) -> None:
        self._staging = staging
        self._folder = folder
        self._destination = destination
        self._most = shard_bytes
        self._shards: list[Shard] = []
        self._open: Shard | None = None

    def add(self, store: StoreEntry, chunks: Sequence[PartChunk]) -> list[PartChunk]:
        """Copy a recording's chunks, in the order in which they lie in their parts; gives their new places."""
        moved: list[PartChunk] = []
        with writing(self._destination):
            for run in neighbours(chunks, self._most):
                moved += self._with_room(run).append(store, run)
        return moved

    def _with_room(self, run: Sequence[PartChunk]) -> Shard:
        shard = self._open
        if shard is not None and shard.chunks:
            size = sum(chunk.entry.size + MESSAGE_HEADER_SIZE for chunk in run)
            if shard.size + size > self._most or shard.chunks + len(run) > MOST_CHUNKS:
                self._seal()
        if self._open is None:
            folder = self._staging.folder if isinstance(self._folder, LocalFolder) else self._folder
            self._open = Shard(folder, f"{uuid.uuid4().hex}.rrd", self._staging, self._destination)
            self._shards.append(self._open)
        return self._open

    def _seal(self) -> None:
        shard, self._open = self._open, None
        if shard is not None:
            shard.seal()

    def finish(self) -> None:
        """Let all shards appear in their folder."""
        with writing(self._destination):
            self._seal()
            for shard in self._shards:
                shard.file.finish()
                if isinstance(self._folder, LocalFolder):
                    (self._staging.local / shard.name).rename(self._folder.place(shard.name))
                reach("shard.rename", self._folder.place(shard.name))
            if isinstance(self._folder, LocalFolder):
                sync_folder(self._folder.location)

    @property
    def size(self) -> int:
        """The bytes of all shards, once they are finished."""
        return sum(shard.size for shard in self._shards)

    def discard(self) -> None:
        """Throw away what was begun; shards that have appeared are removed too, since nothing names them."""
        for shard in self._shards:
            shard.file.discard()
        self._folder.delete(shard.name for shard in self._shards)


_MANIFEST_BYTES: Final = 32 << 20
"""What is held in memory until a manifest is written."""


class NewFiles:
    """Writes shards and manifests of about 32 MiB; all are there, durably, by :meth:`finish`."""

    def __init__(self, folder: RecordingsFolder, staging: Staging, shard_bytes: int) -> None:
        self.folder = folder
        self.shards = NewShards(staging, folder.shards, str(folder.path), shard_bytes)
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
