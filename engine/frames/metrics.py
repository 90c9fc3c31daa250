"""Metrics of queries: what each took, for whoever has a scope of :func:`query_metrics` open when a frame is made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

_NEVER = timedelta(0)


@dataclass(frozen=True)
class QueryMetrics:
    """One execution of a query. Chunks that are in a cache of the operating system are counted as read, too.

    The plan. ``query_chunks``, ``query_segments``, ``query_layers`` (by their names) and ``query_entities`` are those
    that the rows need after pruning, whether they were read or not, ``query_bytes`` the bytes of these chunks as they
    are stored, ``query_columns`` the columns of the reader. ``query_type`` is ``static`` (no index), ``full_scan``,
    ``range`` (index values are given, or bounded by a filter), ``latest_at`` (given, and filled) or ``dataframe``
    (bounded, and filled). ``filters_pushed_down`` decided what was read; ``filters_applied_client_side`` were handed to
    the scan, too, but looked at when rows were there. (What DataFusion applies by itself above is in neither.)
    ``entity_path_narrowing_applied``: the columns that were selected left out entities, and their rows.

    The execution. ``total_duration`` is from the plan to the end of the last stream, ``time_to_first_chunk_info`` to
    the first list of chunks, ``time_to_first_chunk`` to the first rows. ``error_kind`` is ``direct_fetch`` (a file
    could not be read), ``decode`` (it was damaged) or ``other``, and ``direct_terminal_reason`` why a file could not
    be read: ``source_changed``, ``connection`` or ``other``.

    Files and objects are fetched without a server, so all ``fetch_grpc_…`` are 0. ``fetch_direct_requests`` are reads
    of files and requests to object stores, manifests among them; ``fetch_direct_original_ranges`` the pieces that were
    asked for, and ``fetch_direct_merged_ranges`` the ranges that were read for them. Clients of object stores repeat
    what fails by themselves and do not tell, so that ``…_retries``, ``…_requests_retried`` and ``…_retry_sleep`` count
    nothing, and ``fetch_direct_max_attempt`` is 1 for each partition that read something.
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

    @property
    def fetch_requests(self) -> int:
        """All requests."""
        return self.fetch_grpc_requests + self.fetch_direct_requests

    @property
    def fetch_bytes(self) -> int:
        """All bytes that were fetched."""
        return self.fetch_grpc_bytes + self.fetch_direct_bytes

    def to_dict(self) -> dict[str, Any]:
        """The fields by their names; durations in seconds, for JSON."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: v.total_seconds() if isinstance(v, timedelta) else v for name, v in found.items()}


class MetricsCollector:
    """The metrics of the queries of a scope, see :func:`query_metrics`; it can be read within it and afterwards."""

    def __init__(self) -> None:
        self._queries: list[QueryMetrics] = []

    @property
    def queries(self) -> list[QueryMetrics]:
        """The queries so far, in the order in which they ended; they stay where they are."""
        return list(self._queries)

    def last_query(self) -> QueryMetrics | None:
        """The query that ended last, or None."""
        return self._queries[-1] if self._queries else None

    def clear(self) -> None:
        """Forget all of them."""
        self._queries.clear()

    def add(self, metrics: QueryMetrics) -> None:
        """Take another query."""
        self._queries.append(metrics)


_open: ContextVar[tuple[MetricsCollector, ...]] = ContextVar("chunkmill_query_metrics", default=())


@contextlib.contextmanager
def query_metrics() -> Iterator[MetricsCollector]:
    """Collect metrics of each query whose frame is made by ``reader`` within the block, whenever it is executed.

    Each execution of such a frame is a query of its own, also one that is ended early (``limit``) or fails. A scope
    within another sees its own, and the other one all. It is seen by what runs in this context: other threads do
    their queries unseen, unless they were started with a copy of it.

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
    """The collectors of the scopes that are open here."""
    return _open.get()
