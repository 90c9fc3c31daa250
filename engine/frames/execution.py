"""One execution of a query: its segments, and who reads them, this process or Spark's workers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import SessionError
from ..execution import RunOptions, query_executor
from .metrics import MeasuredScan
from .plan import RowRequest, SegmentShare, Unit, needed_bytes, stored_bytes, tasks_over


class Rows(Protocol):
    """The rows of the segments of an execution, by whoever reads them."""

    def rows(self, segment: int) -> Iterator[pa.RecordBatch]:
        """The rows of a segment."""
        ...

    def close(self) -> None:
        """End what runs, and remove all files."""
        ...


class Execution:
    """An execution. It reads nothing before rows are requested."""

    def __init__(
        self,
        segments: Sequence[Unit],
        predicate: pc.Expression | None,
        options: RunOptions,
        measured: MeasuredScan | None = None,
    ) -> None:
        self._segments = segments
        self._predicate = predicate
        self._options = options
        self._measured = measured
        self._lock = threading.Lock()
        self._rows: Rows | None = None
        self._is_closed = False

    def rows(self, segment: int, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """The rows of a segment, with the columns ``names``; of one that is not there, none."""
        rows = self._unmeasured(segment, names)
        return rows if self._measured is None else self._measured.stream(segment, names, rows)

    @property
    def is_here(self) -> bool:
        """Whether it is known that this process reads."""
        return isinstance(self._rows, LocalRows)

    def _unmeasured(self, segment: int, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        if segment < len(self._segments):
            for batch in self._chosen(None if names is None else tuple(names)).rows(segment):
                self._check()
                yield batch

    def _check(self) -> None:
        if self._is_closed:
            raise SessionError("the rows of a query were asked for after its end", hint="Ask for them again.")

    def close(self) -> None:
        """End what runs, and remove all files."""
        self._is_closed = True
        if self._measured is not None:
            self._measured.stop()
        with self._lock:
            if self._rows is not None:
                self._rows.close()
        if self._measured is not None:
            self._measured.close()

    def _chosen(self, names: tuple[str, ...] | None) -> Rows:
        """The reader, chosen once: all segments are read with the same columns."""
        with self._lock:
            self._check()
            if self._rows is None:
                self._rows = rows_of(self._segments, RowRequest(names, self._predicate), self._options, self._measured)
            return self._rows


def rows_of(
    segments: Sequence[Unit], request: RowRequest, options: RunOptions, measured: MeasuredScan | None = None
) -> Rows:
    """The rows of segments, read by whoever has them first, or by whom ``options`` name."""
    stored = stored_bytes(segments)
    # all that is stored may be little enough: then no manifest is read for it
    executor = query_executor(options.executor, lambda: int(stored.sum()))
    if executor == "inline":
        return LocalRows(segments, request)
    needed = needed_bytes(segments, request, stored)
    if query_executor(options.executor, lambda: int(needed.sum())) == "inline":
        return LocalRows(segments, request)
    from .spark_rows import SparkRows

    tasks, places = tasks_over(segments, needed)
    return SparkRows(tasks, places, request, options, measured)


class LocalRows:
    """The rows of segments, read lazily in this process by the threads that request them."""

    def __init__(self, segments: Sequence[Unit], request: RowRequest) -> None:
        self._segments = segments
        self._request = request

    def rows(self, segment: int) -> Iterator[pa.RecordBatch]:
        """The rows of a segment."""
        return SegmentShare(self._segments[segment]).batches(self._request)

    def close(self) -> None:
        """Nothing: what is not taken is not read."""
