"""One part of an MCAP file that a task reads by itself, and the range of log times that is wanted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...engine.errors import UsageError
from ...engine.stream import Split
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


@dataclass(frozen=True, slots=True)
class McapSplit(Split):
    """A run of records of the data section, from one byte to another.

    ``chunks`` and ``messages`` are the numbers of Chunk and Message records to be found there, None where only reading
    tells; chunks that are skipped count, their messages don't. ``check_data_crc``: the split is the whole data section,
    and its CRC is to be compared with the writer's. ``times``: chunks that do not overlap this range are skipped.
    ``before`` and ``after`` name the decoders of the file level whose chunks come ahead of the split's messages and
    behind them. ``is_whole``: there is no other split. Where ``is_planned`` is false nothing else is known yet: who
    reads the split has to plan it.
    """

    start: int
    end: int
    chunks: int | None = None
    messages: int | None = None
    check_data_crc: bool = False
    times: TimeRange | None = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    is_whole: bool = False
    is_planned: bool = True
