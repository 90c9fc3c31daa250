"""Which part of a recording is wanted, by log time."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...engine.errors import UsageError
from .records import ChunkHead

_BEYOND: Final = 2**64


class TimeRange(NamedTuple):
    """Log times from ``start`` (inclusive) to ``end`` (exclusive), ns as the writer wrote them."""

    start: int
    end: int

    def overlaps(self, head: ChunkHead) -> bool:
        """Whether a chunk may hold messages of this range. One whose times are both 0 does not say."""
        if head.start_time == head.end_time == 0:
            return head.uncompressed_size > 0
        return head.start_time < self.end and head.end_time >= self.start

    def holds(self, log_times: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Which of these times are in the range."""
        inside: npt.NDArray[np.bool_] = (log_times >= np.uint64(self.start)) & (log_times <= np.uint64(self.end - 1))
        return inside if self.end > self.start else np.zeros(len(log_times), np.bool_)


def checked_range(start: int | None, end: int | None) -> TimeRange | None:
    """The range of the arguments ``start_time_ns`` and ``end_time_ns``; None when neither is given.

    Raises ``TypeError``, ``OverflowError`` or ``UsageError``.

    >>> checked_range(5, None)
    TimeRange(start=5, end=18446744073709551616)
    """
    if start is None and end is None:
        return None
    first = 0 if start is None else _checked("start_time_ns", start)
    last = _BEYOND if end is None else _checked("end_time_ns", end)
    if first > last:
        raise UsageError(f"start_time_ns, {first:,}, is later than end_time_ns, {last:,}")
    return TimeRange(first, last)


def _checked(name: str, value: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"argument '{name}': '{type(value).__name__}' object cannot be interpreted as an integer")
    value = value.__index__()
    if not 0 <= value < _BEYOND:
        raise OverflowError(f"argument '{name}': the number does not fit into 64 bits without a sign")
    return value
