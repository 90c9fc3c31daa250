"""Kept stores of one recording: the versions of one, and what a store of chunks needs of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from ..rrd import StoreEntry


@dataclass(frozen=True, slots=True)
class StoreVersion:
    """One version of a kept store of one recording.

    ``created`` is in seconds since the epoch; ``bytes`` are those of its chunks as stored; ``first``: the number of
    the first version that counts, as earlier ones are removed.
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
        """The recording that the shards belong to."""
        return StoreEntry("recording", self.application_id, self.recording_id)


class Kept(ABC):
    """The store of recordings that keeps the chunks of a :class:`ChunkStore` or a :class:`LazyStore`."""

    version: StoreVersion
    """The version that is open."""

    @abstractmethod
    def versions(self) -> list[StoreVersion]:
        """Return all versions, oldest first."""

    @abstractmethod
    def vacuum(self, keep: int) -> int:
        """Remove what only versions older than the newest ``keep`` need, and return the bytes freed."""
