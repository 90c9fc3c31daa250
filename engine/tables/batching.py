"""Numbers of rows that a function gets at once: by the time that they take, and by their bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..errors import UsageError
from ..limits import MIB

_PATIENCE: Final = 16
"""Batches of the smallest size after which a larger one is tried."""
SECONDS: Final = 10.0
"""The time that a batch of a function is to take."""
LOAD_SECONDS: Final = 60.0
"""The time that a batch of a load is to take."""
FLUSH_SECONDS: Final = 5.0
"""The time after which what was computed is kept as a checkpoint."""
FLUSH_BYTES: Final = 64 * MIB
READ_ROWS: Final = 2**17
READ_BYTES: Final = 4 * MIB
"""Bytes that are read at once: with 32 MiB, whose memory is new each time, reading blobs took twice as long."""
ASKED_READ_BYTES: Final = 32 * MIB
"""The most where the rows of a batch are asked for."""


@dataclass(frozen=True)
class Batching:
    """Limits of the rows of a batch, the seconds that one is to take, and those between checkpoints."""

    first: int | None = None
    least: int = 1
    most: int | None = None
    seconds: float = SECONDS
    flush_seconds: float = FLUSH_SECONDS
    read_bytes: int = READ_BYTES

    def __post_init__(self) -> None:
        for name in ("first", "least", "most"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"a checkpoint has at least one row, got {value}")
        if self.most is not None and self.most < self.least:
            raise UsageError(f"max_checkpoint_size is {self.most}, less than min_checkpoint_size, {self.least}")
        if self.flush_seconds < 0:
            raise UsageError("batch_checkpoint_flush_interval_seconds must be at least 0")

    @property
    def read_rows(self) -> int:
        """Rows that are read at once."""
        return min(self.most or READ_ROWS, max(READ_ROWS, self.first or 0))


class BatchSize:
    """The rows of the next batch, from how long those before took.

    >>> size = BatchSize(Batching(first=100, least=10, most=1000, seconds=1.0))
    >>> size.rows
    100
    >>> size.took(100, 4.0)
    >>> size.rows
    25
    """

    def __init__(self, batching: Batching) -> None:
        self._batching = batching
        self.rows = self._within(batching.first or batching.least)
        self._initial = self.rows
        self._at_least = 0

    def took(self, rows: int, seconds: float) -> None:
        """Learn what a batch took."""
        batching = self._batching
        self.rows = self._within(round(rows / max(seconds, 1e-6) * batching.seconds))
        self._at_least = self._at_least + 1 if self.rows == batching.least else 0
        if self._at_least >= _PATIENCE:
            self.rows = self._within(min(self.rows + 1, max(self._initial, batching.least + 1)))

    def _within(self, rows: int) -> int:
        limit = self._batching.most or 2**31
        if self._batching.first is not None and self._batching.most is None:
            limit = self._batching.first
        return max(min(self._batching.least, limit), min(rows, limit))
