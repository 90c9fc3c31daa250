"""Kept stores of one recording: their versions, and the interface that a store of chunks needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from ..rrd import StoreEntry


@dataclass(frozen=True, slots=True)
class StoreVersion:
    """One version of a kept store of one recording.

    ``created`` is in seconds since the epoch. ``bytes`` is the stored size of its chunks. ``first`` is the number of
    the oldest version that still exists.
    """

    number: int
    created: float
    chunks: int
    rows: int
    bytes: int
    application_id: str
    recording_id: str
    first: int = 0

    @property
    def store(self) -> StoreEntry:
        """The recording that the messages in the shards name."""
        return StoreEntry("recording", self.application_id, self.recording_id)


class Kept(ABC):
    """The store of recordings with the chunks of a :class:`ChunkStore` or a :class:`LazyStore`."""

    version: StoreVersion
    """The open version."""

    @abstractmethod
    def versions(self) -> list[StoreVersion]:
        """Return all versions, oldest first."""

    @abstractmethod
    def vacuum(self, keep: int) -> int:
        """Remove versions older than the newest ``keep``, with their files, and return the bytes freed."""
