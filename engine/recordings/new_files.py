"""Shards and manifests of a commit, which no version names yet."""

from __future__ import annotations

import contextlib
import uuid
from typing import Final

from ..errors import WriteError
from ..execution.folders import Folder, LocalFolder, sync_folder
from ..execution.staging import Staging
from ..failing import writing
from ..faults import reach
from .folder import RecordingsFolder
from .shards import ShardStitcher

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
