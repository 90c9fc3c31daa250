"""Metrics of queries, recorded in blocks of :func:`query_metrics`."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ReadError, SourceMissingError
from ..query import AnswerColumns, QueriedSegment, SegmentFigures, SegmentGroup
from ..task_context import Fetches, TaskContext
from .filters import Term

_NEVER = timedelta(0)


@dataclass(frozen=True)
class QueryMetrics:
    """One execution of a query. Chunks in the operating system's cache also count as read.

    The plan. ``query_chunks``, ``query_segments``, ``query_layers`` (by name) and ``query_entities`` count the data
    that the rows need after pruning, even if it was not read. ``query_bytes`` is the stored size of these chunks, and
    ``query_columns`` the number of columns of the reader. ``query_type`` is ``static`` (no index), ``full_scan``,
    ``range`` (index values are given, or bounded by a filter), ``latest_at`` (index values are given, and filled) or
    ``dataframe`` (index values are bounded, and filled). ``filters_pushed_down`` are filters that reduced the data to
    read. ``filters_applied_client_side`` are filters of the scan that were applied to the rows. (Filters that
    DataFusion applies above the scan are in neither.) ``entity_path_narrowing_applied`` is true if the selected columns
    excluded entities and their rows.

    The execution. ``total_duration`` is the time from the plan to the end of the last stream,
    ``time_to_first_chunk_info`` the time to the first list of chunks, and ``time_to_first_chunk`` the time to the first
    rows. ``error_kind`` is ``direct_fetch`` (a file could not be read), ``decode`` (it was damaged) or ``other``.
    ``direct_terminal_reason`` is the reason why a file could not be read: ``source_changed``, ``connection`` or
    ``other``.

    Files and objects are fetched without a server, so all ``fetch_grpc_…`` are 0. ``fetch_direct_requests`` counts
    reads of files and requests to object stores, including manifests. ``fetch_direct_original_ranges`` counts the
    requested ranges, and ``fetch_direct_merged_ranges`` the ranges that were read for them. Clients of object stores
    retry silently. ``…_retries``, ``…_requests_retried`` and ``…_retry_sleep`` are therefore always 0, and
    ``fetch_direct_max_attempt`` is 1 for each partition that read something. ``delivered_rows`` and ``delivered_bytes``
    are the rows and Arrow bytes of the batches that the scan returned.
    """

    dataset_id: str
    query_chunks: int
    query_segments: int
    query_layers: int
    query_columns: int
    query_entities: int
    query_bytes: int
    query_chunks_per_segment_min: int
    query_chunks_per_segment_max: int
    query_chunks_per_segment_mean: float
    query_type: str
    primary_index_name: str | None
    time_to_first_chunk_info: timedelta | None
    filters_pushed_down: int
    filters_applied_client_side: int
    entity_path_narrowing_applied: bool

    total_duration: timedelta
    time_to_first_chunk: timedelta | None
    error_kind: str | None
    direct_terminal_reason: str | None

    fetch_grpc_requests: int = 0
    fetch_grpc_bytes: int = 0
    fetch_direct_requests: int = 0
    fetch_direct_bytes: int = 0
    fetch_direct_retries: int = 0
    fetch_direct_requests_retried: int = 0
    fetch_direct_retry_sleep: timedelta = _NEVER
    fetch_direct_max_attempt: int = 0
    fetch_direct_original_ranges: int = 0
    fetch_direct_merged_ranges: int = 0
    delivered_rows: int = 0
    delivered_bytes: int = 0

    @property
    def waste_ratio(self) -> float | None:
        """The fetched bytes divided by the bytes of the rows, or None if there are no rows."""
        return self.fetch_bytes / self.delivered_bytes if self.delivered_bytes else None

    @property
    def fetch_requests(self) -> int:
        """All requests."""
        return self.fetch_grpc_requests + self.fetch_direct_requests

    @property
    def fetch_bytes(self) -> int:
        """The total number of fetched bytes."""
        return self.fetch_grpc_bytes + self.fetch_direct_bytes

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, for JSON; durations are in seconds."""
        figures = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: v.total_seconds() if isinstance(v, timedelta) else v for name, v in figures.items()}


class MetricsCollector:
    """The metrics of the queries in a block of :func:`query_metrics`.

    You can read them inside the block and afterwards.
    """

    def __init__(self) -> None:
        self._queries: list[QueryMetrics] = []

    @property
    def queries(self) -> list[QueryMetrics]:
        """The queries that have ended so far, in the order in which they ended."""
        return list(self._queries)

    def last_query(self) -> QueryMetrics | None:
        """The query that ended last, or None."""
        return self._queries[-1] if self._queries else None

    def clear(self) -> None:
        """Remove all queries."""
        self._queries.clear()

    def add(self, metrics: QueryMetrics) -> None:
        """Add a query."""
        self._queries.append(metrics)


_open: ContextVar[tuple[MetricsCollector, ...]] = ContextVar("chunkmill_query_metrics", default=())


@contextlib.contextmanager
def query_metrics() -> Iterator[MetricsCollector]:
    """Collect metrics of queries by ``reader`` calls within the block, also if their frames are executed later.

    Each execution of such a frame counts as a query, also if it ends early (``limit``) or fails. Blocks can be nested:
    the outer block collects all queries, the inner one only its own. The block applies to the current context
    (``contextvars``). Queries of other threads are not collected, unless the thread runs in a copy of this context.

    ::

        with query_metrics() as metrics:
            dataset.reader("frame").limit(100).collect()
        print(metrics.last_query().fetch_bytes)
    """
    collector = MetricsCollector()
    token = _open.set((*_open.get(), collector))
    try:
        yield collector
    finally:
        _open.reset(token)


def open_collectors() -> tuple[MetricsCollector, ...]:
    """The collectors of the open blocks of this context."""
    return _open.get()


_PATIENCE: Final = 5.0
"""The most seconds that the end of an execution waits for a batch that a thread is taking."""
_STEP: Final = 0.002


class Measuring:
    """The collectors of a reader's frame."""

    def __init__(self, dataset_id: str = "") -> None:
        self.dataset_id = dataset_id
        self.collectors: tuple[MetricsCollector, ...] = open_collectors()

    def scan(
        self,
        columns: AnswerColumns,
        units: Sequence[QueriedSegment | SegmentGroup],
        predicate: pc.Expression | None,
        filters: Sequence[Term],
    ) -> MeasuredScan | None:
        """Return the measured execution of a new scan, or None without a collector.

        ``predicate`` is the part of DataFusion's ``filters`` that the kernel evaluates.
        """
        return MeasuredScan(self, columns, units, predicate, filters) if self.collectors else None


class MeasuredScan:
    """An execution: a stream for each unit (a segment, or several small ones). It reports once: when all streams have
    ended, or when it is closed or dropped.
    """

    def __init__(
        self,
        measuring: Measuring,
        columns: AnswerColumns,
        units: Sequence[QueriedSegment | SegmentGroup],
        predicate: pc.Expression | None,
        filters: Sequence[Term],
    ) -> None:
        self._begun = time.time()
        self._measuring = measuring
        self._columns = columns
        self._units = units
        self._predicate = predicate
        self._filters = filters
        self._narrowed = columns
        self._figures: dict[int, list[SegmentFigures]] = {}
        self._whole: set[int] = set()
        self._ended: set[int] = set()
        self._running = self._delivered_rows = self._delivered_bytes = 0
        self._error: Exception | None = None
        self._has_begun = self._is_closed = self._has_reported = False
        self._streams: weakref.WeakSet[MeasuredStream] = weakref.WeakSet()
        self._changed = threading.Condition()
        self._telling = threading.RLock()

    def stream(
        self, number: int, names: Sequence[str] | None, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """The batches of a segment, with these columns. Reading them counts the segment's figures."""
        with self._changed:
            self._has_begun = True
            self._running += 1
            self._narrowed = self._columns.narrowed(names, self._predicate)
            stream = MeasuredStream(lambda *end: self._end(number, *end), batches, self._count)
            self._streams.add(stream)
        return stream

    def _count(self, batch: pa.RecordBatch) -> None:
        with self._changed:
            self._delivered_rows += batch.num_rows
            self._delivered_bytes += batch.nbytes

    def add(self, number: int, figures: SegmentFigures) -> None:
        """Add the figures of a segment, or of a share of a segment."""
        with self._changed:
            self._figures.setdefault(number, []).append(figures)

    def _end(self, number: int, figures: SegmentFigures, is_whole: bool, error: Exception | None) -> None:
        self.add(number, figures)
        with self._changed:
            if not self._is_closed:
                self._error = self._error or error
            self._running -= 1
            self._changed.notify_all()
            self._ended.add(number)
            if is_whole:
                self._whole.add(number)
            is_last = not self._running and len(self._ended) >= len(self._units)
        if is_last:
            self._tell()

    def stop(self) -> None:
        """Ignore later errors of streams: they are effects of the end."""
        self._is_closed = True

    def close(self) -> None:
        """End the streams that DataFusion has not dropped yet, and report. DataFusion drops streams in its own threads.

        This waits some seconds for streams from which a thread is taking a batch, as the bytes of that batch count.
        """
        self.stop()
        with self._changed:
            streams = list(self._streams)
        until = time.monotonic() + _PATIENCE
        while self._running:
            for stream in streams:
                stream.close()
            with self._changed:
                self._changed.wait_for(lambda: not self._running, _STEP)
            if time.monotonic() > until:
                break
        if self._has_begun:
            self._tell()

    def __del__(self) -> None:
        if self._has_begun:
            self._tell()

    def _tell(self) -> None:
        with self._telling:
            if self._has_reported:
                return
            self._has_reported = True
            metrics = self._metrics(time.time())
            for collector in self._measuring.collectors:
                collector.add(metrics)

    def _metrics(self, ended: float) -> QueryMetrics:
        figures = [figure for some in self._figures.values() for figure in some]
        chunks = self._chunks_needed()
        counts = [len(some) for some in chunks if some]
        kind, reason = (None, None) if self._error is None else kind_of(self._error)
        pushed = [term.decides_what_is_read(self._columns) for term in self._filters]
        requests = sum(segment_figures.requests for segment_figures in figures)
        return QueryMetrics(
            dataset_id=self._measuring.dataset_id,
            query_chunks=sum(counts),
            query_segments=len(counts),
            query_layers=len({layer for some in chunks for layer, _ in some}),
            query_columns=len(self._columns.arrow),
            query_entities=len({c.entity_path for c in self._narrowed.visible}),
            query_bytes=sum(sum(some.values()) for some in chunks),
            query_chunks_per_segment_min=min(counts, default=0),
            query_chunks_per_segment_max=max(counts, default=0),
            query_chunks_per_segment_mean=sum(counts) / len(counts) if counts else 0.0,
            query_type=_type_of(self._columns, self._filters),
            primary_index_name=self._columns.query.index,
            time_to_first_chunk_info=self._first(segment_figures.planned for segment_figures in figures),
            filters_pushed_down=sum(pushed),
            filters_applied_client_side=len(pushed) - sum(pushed),
            entity_path_narrowing_applied=self._narrowed is not self._columns,
            total_duration=timedelta(seconds=max(ended - self._begun, 0)),
            time_to_first_chunk=self._first(segment_figures.first for segment_figures in figures),
            error_kind=kind,
            direct_terminal_reason=reason,
            fetch_direct_requests=requests,
            fetch_direct_bytes=sum(segment_figures.bytes for segment_figures in figures),
            fetch_direct_max_attempt=sum(
                any(segment_figures.requests for segment_figures in some) for some in self._figures.values()
            ),
            fetch_direct_original_ranges=sum(segment_figures.pieces for segment_figures in figures),
            fetch_direct_merged_ranges=requests,
            delivered_rows=self._delivered_rows,
            delivered_bytes=self._delivered_bytes,
        )

    def _chunks_needed(self) -> list[dict[tuple[str, int], int]]:
        """Return the bytes of the chunks that each segment needs, by layer and number. The chunks of a unit that was
        not read to its end are planned.
        """
        chunks: dict[str, dict[tuple[str, int], int]] = {}
        for number, unit in enumerate(self._units):
            figures = self._figures.get(number, [])
            if number not in self._whole:
                figures = [SegmentFigures()]
                with TaskContext(*figures).entered(), contextlib.suppress(ReadError):  # the reader gets this error
                    unit.plan(self._narrowed, self._predicate)
            for segment_id, layers in (
                (name, some) for segment_figures in figures for name, some in segment_figures.chunks.items()
            ):
                mine = chunks.setdefault(segment_id, {})
                mine.update({(layer, row): size for layer, some in layers.items() for row, size in some.items()})
        return list(chunks.values())

    def _first(self, moments: Iterator[float | None]) -> timedelta | None:
        reached = [moment for moment in moments if moment is not None]
        return timedelta(seconds=max(min(reached) - self._begun, 0)) if reached else None


class MeasuredStream:
    """The batches of a segment. When they end, fail or are dropped, ``end`` is called with the figures, whether the end
    was reached, and the error.
    """

    def __init__(
        self,
        end: Callable[[SegmentFigures, bool, Exception | None], None],
        batches: Iterator[pa.RecordBatch],
        count: Callable[[pa.RecordBatch], None] | None = None,
    ) -> None:
        self._end = end
        self._count = count
        self._figures = SegmentFigures()
        self._fetches = Fetches()
        self._batches = TaskContext(self._figures, self._fetches).run(batches)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            batch = next(self._batches)
        except StopIteration:
            self._finish(is_whole=True)
            raise
        except Exception as error:
            self._finish(error=error)
            raise
        self._figures.first = self._figures.first or time.time()
        if self._count is not None:
            self._count(batch)
        return batch

    def close(self) -> None:
        """End the stream, unless another thread is taking a batch."""
        with contextlib.suppress(ValueError):  # raised while a thread takes a batch
            self._finish()

    __del__ = close

    def _finish(self, *, is_whole: bool = False, error: Exception | None = None) -> None:
        self._batches.close()
        end = vars(self).pop("_end", None)  # in one step, as two threads may do this
        if end is not None:
            self._figures.read(self._fetches)
            end(self._figures, is_whole, error)


def measured_batches(batches: Iterator[pa.RecordBatch], figures: list[SegmentFigures]) -> Iterator[pa.RecordBatch]:
    """The batches of a segment's share in a task. At their end, the share's figures are appended to ``figures``."""
    return MeasuredStream(lambda mine, _, __: figures.append(mine), batches)


def kind_of(error: Exception) -> tuple[str, str | None]:
    """The ``error_kind`` and ``direct_terminal_reason`` of an error; see :class:`QueryMetrics`."""
    if isinstance(error, ReadError) and error.transient:
        return "direct_fetch", "connection"
    if isinstance(error, ReadError) and any(words in error.message for words in ("was replaced", "was changed")):
        return "direct_fetch", "source_changed"
    if isinstance(error, (SourceMissingError, OSError)):
        return "direct_fetch", "other"
    return ("decode" if isinstance(error, (ReadError, ValueError)) else "other"), None


def _type_of(columns: AnswerColumns, filters: Sequence[Term]) -> str:
    query = columns.query
    if query.index is None:
        return "static"
    if query.values is not None:
        return "latest_at" if query.fill_latest_at else "range"
    if any(query.index in term.fields for term in filters):
        return "dataframe" if query.fill_latest_at else "range"
    return "full_scan"
