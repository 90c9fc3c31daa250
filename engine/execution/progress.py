"""What a run tells while it goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..reports import RunReport


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


class ProgressListener(Protocol):
    """Is told how a run goes; called from one thread at a time."""

    def started(self, total_splits: int, total_bytes: int) -> None:
        """The plan is made and tasks begin."""
        ...

    def advanced(self, done: ProgressState) -> None:
        """Some splits finished, or bytes were written, since the last call."""
        ...

    def finished(self, result: RunReport) -> None:
        """The output is committed."""
        ...
