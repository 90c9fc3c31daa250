"""Metrics of an ingestion, for Prometheus to fetch."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, start_http_server

from ..errors import UsageError
from ..limits import as_text
from .events import IngestListener
from .files import BatchResult, Outcome

HOST: Final = "127.0.0.1"
"""Where metrics are served unless another address is named: they can be read by anybody who reaches the port."""

_PREFIX: Final = "chunkmill_ingest"
_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class IngestMetrics(IngestListener):
    """Counts what happens, since this process began; has a registry of its own. Call it from any thread.

    A batch that was known before (replayed after a crash) counts as replayed, and its files are not counted again.
    ``quarantined`` gives the number of files in quarantine; it is asked whenever the metrics are fetched.
    """

    def __init__(self, quarantined: Callable[[], int] | None = None) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._info = Info(_PREFIX, "The query, and what it reads and writes.", registry=self.registry)
        self._files = self._counter("files", "Files by what became of them.", ["outcome"])
        for outcome in Outcome:
            self._files.labels(outcome.value)
        self._recordings = self._counter("recordings", "Recordings that were added or replaced.")
        self._chunks = self._counter("chunks", "Chunks of these recordings.")
        self._rows = self._counter("rows", "Rows of these chunks.")
        self._bytes_in = self._counter("read_bytes", "Sizes of the files that were added or replaced something.")
        self._bytes_out = self._counter("written_bytes", "Sizes of what was kept of them.")
        self._batches = self._counter("batches", "Batches that were committed.")
        self._replayed = self._counter("batches_replayed", "Batches that had been committed before a restart.")
        self._failures = self._counter("batch_failures", "Batches that failed as a whole.")
        self._seconds = Histogram(
            f"{_PREFIX}_batch_seconds", "How long batches took.", buckets=_SECONDS, registry=self.registry
        )
        self._up = self._gauge("up", "1 while the ingestion runs.")
        self._number = self._gauge("last_batch_number", "The number of the last committed batch.")
        self._committed = self._gauge("last_batch_timestamp_seconds", "When it was committed, in Unix time.")
        self._version = self._gauge("store_version", "The version of the store after it.")
        self._looked = self._gauge("last_look_timestamp_seconds", "When the folder was listed last, in Unix time.")
        self._ready = self._gauge("ready_files", "Files that can be taken.")
        self._waiting = self._gauge("waiting_files", "Files that have to settle first.")
        self._oldest = self._gauge("oldest_waiting_seconds", "How long the oldest of all these has been there.")
        self._running_files = self._gauge("running_batch_files", "Files of the batch that runs.")
        self._running_bytes = self._gauge("running_batch_bytes", "Their sizes together.")
        if quarantined is not None:
            in_quarantine = self._gauge("quarantined_files", "Files in quarantine.")
            in_quarantine.set_function(lambda: _number_or_nan(quarantined))

    def _counter(self, name: str, meaning: str, labels: list[str] | None = None) -> Counter:
        return Counter(f"{_PREFIX}_{name}", meaning, labels or [], registry=self.registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", meaning, registry=self.registry)

    def started(self, query_id: str, source: str, home: str) -> None:
        """See :class:`IngestListener`."""
        self._info.info({"query_id": query_id, "source": as_text(source), "store": as_text(home)})
        self._up.set(1)

    def looked(self, ready: int, waiting: int, oldest_seconds: float) -> None:
        """See :class:`IngestListener`."""
        self._ready.set(ready)
        self._waiting.set(waiting)
        self._oldest.set(oldest_seconds)
        self._looked.set_to_current_time()

    def batch_began(self, number: int, files: int, size: int) -> None:
        """See :class:`IngestListener`."""
        del number
        self._running_files.set(files)
        self._running_bytes.set(size)

    def batch_done(self, result: BatchResult) -> None:
        """See :class:`IngestListener`."""
        self._batch_over()
        self._number.set(result.number)
        self._committed.set_to_current_time()
        self._version.set(result.version)
        if result.replayed:
            self._replayed.inc()
            return
        self._batches.inc()
        self._seconds.observe(result.seconds)
        for found in result.files:
            self._files.labels(found.outcome.value).inc()
            self._recordings.inc(len(found.recordings))
            self._chunks.inc(found.chunks)
            self._rows.inc(found.rows)
            self._bytes_out.inc(found.bytes_out)
            if found.outcome in (Outcome.ADDED, Outcome.REPLACED):
                self._bytes_in.inc(found.file.size)

    def batch_failed(self, number: int, error: Exception) -> None:
        """See :class:`IngestListener`."""
        del number, error
        self._batch_over()
        self._failures.inc()

    def stopped(self, reason: str) -> None:
        """See :class:`IngestListener`."""
        del reason
        self._batch_over()
        self._up.set(0)

    def _batch_over(self) -> None:
        self._running_files.set(0)
        self._running_bytes.set(0)


class MetricsServer:
    """Serves metrics at ``http://host:port/metrics`` until it is closed; a context manager.

    Port 0 takes a free one; ``port`` is the one it is. Raises ``UsageError`` where the port is used by another program
    or the address is none of this host. Without TLS and without a password: what can reach the address can read it.
    """

    def __init__(self, metrics: IngestMetrics, port: int, host: str = HOST) -> None:
        try:
            self._server, self._thread = start_http_server(port, host, metrics.registry)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(
                f"metrics cannot be served at {host}:{port}: {reason[:1].lower()}{reason[1:]}",
                hint="Name another port with --metrics-port; 0 takes any that is free.",
            ) from error
        self.host = host
        self.port: int = self._server.server_port

    @property
    def url(self) -> str:
        """The address of the metrics."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/metrics"

    def close(self) -> None:
        """Stop, and give the port back."""
        if threading.current_thread() is not self._thread and self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _number_or_nan(count: Callable[[], Any]) -> float:
    try:
        return float(count())
    except Exception:  # noqa: BLE001 (the other metrics are served all the same)
        return math.nan
