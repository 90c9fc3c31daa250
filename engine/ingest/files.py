"""Files that landed, their way through an ingestion, and the listeners that are told of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, order=True)
class LandedFile:
    """A file of a landing folder: its absolute path or URL, size in bytes, and time of modification in ns (Unix)."""

    path: str
    size: int
    modified_ns: int


class Outcome(StrEnum):
    """The end of a file's way through a batch."""

    ADDED = "added"
    """Its recordings are in the store."""
    REPLACED = "replaced"
    """Its recordings are in the store, in place of those of an earlier content of the same file."""
    DUPLICATE = "duplicate"
    """A file of the same content is in the store already."""
    QUARANTINED = "quarantined"
    """It failed; the quarantine says why."""
    VANISHED = "vanished"
    """It was gone when it was to be read."""
    CHANGED = "changed"
    """It changed while it was read, so nothing of it was taken; a later batch will."""


@dataclass(frozen=True, slots=True)
class FileResult:
    """The result of one file. ``digest``: of its content, hexadecimal; ``error``: ``ChunkmillError.to_dict()``."""

    file: LandedFile
    outcome: Outcome
    digest: str | None = None
    recordings: tuple[str, ...] = ()
    chunks: int = 0
    rows: int = 0
    bytes_out: int = 0
    error: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of a batch, file by file. ``version``: the store's afterwards; ``replayed``: it was known before."""

    query_id: str
    number: int
    version: int
    files: tuple[FileResult, ...] = field(default=())
    seconds: float = 0.0
    replayed: bool = False

    def count(self, *outcomes: Outcome) -> int:
        """The number of files with one of these outcomes."""
        return sum(result.outcome in outcomes for result in self.files)


class IngestListener(Protocol):
    """Who wants to know what an ingestion does. Called on its threads; must not raise and must not take long."""

    def started(self, query_id: str, source: str, home: str) -> None:
        """The ingestion of ``source`` has begun; ``home`` is the store."""

    def looked(self, ready: int, waiting: int, oldest_seconds: float) -> None:
        """The landing folder was listed: files to take, files that must settle first, seconds the oldest waits."""

    def batch_began(self, number: int, files: int, size: int) -> None:
        """A batch of ``files`` files with ``size`` bytes begins."""

    def batch_done(self, result: BatchResult) -> None:
        """A batch is committed."""

    def batch_failed(self, number: int, error: Exception) -> None:
        """A batch failed as a whole; it will be tried again by the next start."""

    def stopped(self, reason: str) -> None:
        """The ingestion has ended."""


class Listeners:
    """Several listeners as one."""

    def __init__(self, *listeners: IngestListener) -> None:
        self._all = listeners

    def started(self, query_id: str, source: str, home: str) -> None:
        """See :class:`IngestListener`."""
        for one in self._all:
            one.started(query_id, source, home)

    def looked(self, ready: int, waiting: int, oldest_seconds: float) -> None:
        """See :class:`IngestListener`."""
        for one in self._all:
            one.looked(ready, waiting, oldest_seconds)

    def batch_began(self, number: int, files: int, size: int) -> None:
        """See :class:`IngestListener`."""
        for one in self._all:
            one.batch_began(number, files, size)

    def batch_done(self, result: BatchResult) -> None:
        """See :class:`IngestListener`."""
        for one in self._all:
            one.batch_done(result)

    def batch_failed(self, number: int, error: Exception) -> None:
        """See :class:`IngestListener`."""
        for one in self._all:
            one.batch_failed(number, error)

    def stopped(self, reason: str) -> None:
        """See :class:`IngestListener`."""
        for one in self._all:
            one.stopped(reason)
