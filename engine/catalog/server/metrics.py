"""Metrics of a server, for Prometheus to fetch."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from .methods import Status

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX: Final = "chunkmill_serve"
_SECONDS: Final = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 300)


class ServeMetrics:
    """Counts calls since the server began; has a registry of its own. Call it from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._calls = Counter(
            f"{_PREFIX}_calls", "Calls that ended, by status.", ["method", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            f"{_PREFIX}_call_seconds", "How long calls took.", ["method"], buckets=_SECONDS, registry=self.registry
        )
        self._running = Gauge(f"{_PREFIX}_running_calls", "Calls that run.", registry=self.registry)
        self._bytes = Counter(f"{_PREFIX}_sent_bytes", "Bytes of messages that were sent.", registry=self.registry)
        self._stalled = Counter(
            f"{_PREFIX}_stalled",
            "Calls and connections that were ended as their client stalled.",
            registry=self.registry,
        )

    def began(self) -> None:
        """Count a call that runs."""
        self._running.inc()

    def sent(self, size: int) -> None:
        """Count the bytes of a message."""
        self._bytes.inc(size)

    def ended(self, method: str, status: Status, seconds: float) -> None:
        """Count a call that ended."""
        self._running.dec()
        self._calls.labels(method, status.name).inc()
        self._seconds.labels(method).observe(seconds)

    def stalled(self) -> None:
        """Count a client that took or sent nothing for too long."""
        self._stalled.inc()

    def text(self) -> bytes:
        """All of them as Prometheus reads them."""
        return generate_latest(self.registry)
