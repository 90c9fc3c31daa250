"""The plan of an execution: tasks, and the segments that they read.

A plan needs only the entries of segments, and the manifests of some, to estimate the part of the stored bytes that a
query needs. A task with a share of a long segment reads the manifest to find its share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ReadError
from ..limits import MIB
from ..query import PIECE_BYTES, QueriedSegment, SegmentGroup
from ..recordings import RecordingsFolder

Unit = QueriedSegment | SegmentGroup
"""A segment, or several segments that are read together."""

Integers = npt.NDArray[np.int64]

TASK_BYTES: Final = 64 * MIB
"""The approximate bytes of chunks that a task reads."""

_SEGMENT_BYTES: Final = 64 << 10
"""The cost of reading a segment's manifest, as an equal number of bytes of chunks."""

_SAMPLES: Final = 8
"""The number of segments whose manifests are read to estimate the needed part of all bytes."""


@dataclass(frozen=True, slots=True)
class RowRequest:
    """A request to all segments: the columns ``names`` (None: all) of the rows that pass ``predicate``."""

    names: tuple[str, ...] | None = None
    predicate: pc.Expression | None = None


@dataclass(frozen=True, slots=True)
class SegmentShare:
    """Share ``number`` of ``of`` of a segment's rows. All shares in order are the segment's rows."""

    segment: Unit
    number: int = 0
    of: int = 1

    def batches(self, request: RowRequest) -> Iterator[pa.RecordBatch]:
        """The rows, in the order of the index. Raises ``ReadError`` with the segment's name."""
        pieces = [self.segment] if self.of == 1 else _pieces(self.segment, self.of)
        first, stop = (len(pieces) * at // self.of for at in (self.number, self.number + 1))
        try:
            for piece in pieces[first:stop]:
                yield from piece.batches(request.names, request.predicate)
        except ReadError as error:
            raised = _vacuumed(error) or error
            if isinstance(self.segment, QueriedSegment):
                raised.message += f", in segment {self.segment.segment_id}"
            if raised is error:
                raise
            raise raised from error


def _vacuumed(error: ReadError) -> ReadError | None:
    """The error for a shard that a vacuum removed, or None for another error."""
    store, _, name = (error.path or "").rpartition("/shards/")
    return RecordingsFolder(store).vacuumed(error, error.path or "") if store and "/" not in name else None


@dataclass(frozen=True, slots=True)
class TaskShares:
    """The input of one task: shares of segments, in order. ``size`` is the approximate number of bytes."""

    shares: tuple[SegmentShare, ...]
    size: int

    @property
    def label(self) -> str:
        """The name of the task's input."""
        first, last = self.shares[0], self.shares[-1]
        if first.of > 1:
            return f"segment {first.segment.segment_id} [{first.number + 1}/{first.of}]"
        if first is last:
            return f"segment {first.segment.segment_id}"
        return f"segments {first.segment.segment_id} to {last.segment.segment_id}"


def stored_bytes(segments: Sequence[Unit]) -> Integers:
    """The stored bytes of all chunks of each segment."""
    return np.array([segment.stored_bytes for segment in segments], np.int64)


def needed_bytes(segments: Sequence[Unit], request: RowRequest, stored: Integers) -> Integers:
    """Estimate the bytes of the needed chunks of each segment, from the manifests of some segments.

    ``stored`` are the bytes of all chunks of each segment. Raises ``ReadError``.
    """
    if not len(segments):
        return stored
    ends = np.cumsum(stored)
    # sample by bytes, so that large segments are more likely
    places = np.searchsorted(ends, (np.arange(_SAMPLES) + 0.5) * (ends[-1] / _SAMPLES))
    some = np.unique(np.minimum(places, len(segments) - 1)) if len(segments) > _SAMPLES else np.arange(len(segments))
    sampled = np.array([needed_of(segments[number], request) for number in some.tolist()], np.int64)
    if len(some) == len(segments):
        return sampled
    needed: Integers = (stored * (sampled.sum() / max(int(stored[some].sum()), 1))).astype(np.int64)
    needed[some] = sampled
    return needed


def needed_of(segment: Unit, request: RowRequest) -> int:
    """The bytes of a segment's chunks that are read. Raises ``ReadError``."""
    if isinstance(segment, QueriedSegment):
        return segment.read_bytes(request.names, request.predicate)
    columns = segment.columns.narrowed(request.names, request.predicate)
    _, needed = segment.needed(columns, request.predicate)
    return sum(int(layer.table.sizes[rows].sum()) for layer, rows in needed)


def _pieces(segment: Unit, count: int) -> Sequence[Unit]:
    """A segment cut into about ``count`` pieces, or more, as the bytes of a piece are limited."""
    _, needed = segment.needed(segment.columns, None)
    size = sum(int(layer.table.uncompressed_sizes[rows].sum()) for layer, rows in needed)
    return segment.cut(min(max(-(-size // count), 1), PIECE_BYTES))


def tasks_over(segments: Sequence[Unit], needed: Integers) -> tuple[list[TaskShares], list[range]]:
    """Divide segments into tasks by their needed bytes; return the tasks, and the numbers of each segment's tasks.

    Small neighbours are read by one task; a large segment is divided among several.
    """
    tasks: list[TaskShares] = []
    places: list[range] = []
    waiting: list[SegmentShare] = []
    size = 0

    def flush() -> None:
        nonlocal size
        if waiting:
            tasks.append(TaskShares(tuple(waiting), size))
        waiting.clear()
        size = 0

    for segment, own in zip(segments, needed.tolist(), strict=True):
        cost = own + _SEGMENT_BYTES
        if size + cost > TASK_BYTES:
            flush()
        count = -(-own // TASK_BYTES) if own > 1.5 * TASK_BYTES else 1
        places.append(range(len(tasks), len(tasks) + count))
        if count == 1:
            waiting.append(SegmentShare(segment))
            size += cost
        else:
            tasks += [TaskShares((SegmentShare(segment, i, count),), own // count) for i in range(count)]
    flush()
    return tasks, places
