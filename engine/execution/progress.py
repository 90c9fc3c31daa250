"""What a run tells while it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ProgressState:
    """How far a run is. Bytes done are source bytes of finished splits; bytes written are those in parts."""

    splits_done: int
    splits_total: int
    bytes_done: int
    bytes_total: int
    chunks: int
    bytes_written: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a finished run did. ``bytes_in`` are source bytes, ``bytes_out`` those of the destination."""

    splits: int
    chunks: int
    rows: int
    bytes_in: int
    bytes_out: int
    seconds: float
    warnings: tuple[str, ...] = field(default=())


class ProgressListener(Protocol):
    """Is told how a run goes; called from one thread at a time."""

    def started(self, total_splits: int, total_bytes: int) -> None:
        """The plan is made and tasks begin."""
        ...

    def advanced(self, done: ProgressState) -> None:
        """Some splits finished, or bytes were written, since the last call."""
        ...

    def finished(self, result: RunResult) -> None:
        """The output is committed."""
        ...
