"""What ``chunkmill ingest`` and ``vacuum`` do."""

from __future__ import annotations

import logging
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, Final

import click

from ..errors import UsageError
from ..execution.choice import executor_name
from ..ingest import Ingest, IngestListener, IngestQuery
from ..ingest.durations import seconds_of
from ..ingest.home import home_of
from ..ingest.json_log import logging_to
from ..ingest.log import IngestLog
from ..ingest.quarantine import FileQuarantine
from ..locations import located
from ..spark import Terminated, note_signal
from ..store import OptimizationProfile, RecordingStore
from ..units import size as shown_size
from .failures import exit_code, paragraph

PROFILES: Final = {"object-store": OptimizationProfile.OBJECT_STORE, "live": OptimizationProfile.LIVE, "none": None}
_UNITS: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30}

logger = logging.getLogger("chunkmill.cli")


def run_ingest(
    *,
    landing: str,
    into: str | None,
    rrds: str | None,
    pipeline: str | None,
    once: bool,
    every: str | None,
    max_files: int | None,
    max_bytes: str | None,
    reading: dict[str, Any],
    optimize: str,
    metrics_port: int | None,
    metrics_host: str,
    log_json: bool,
    quiet: bool,
    executor: str | None,
    master: str | None,
    conf: dict[str, str],
    **options: Any,
) -> None:
    """Run an ingestion until it has ended, or a signal says so."""
    if once and every is not None:
        raise UsageError("--once looks for files once, and --every again and again: give one of them")
    if into is None and rrds is None:
        raise UsageError("an ingestion needs a destination", hint="Name a store with --into, or a folder with --rrds.")
    wants_spark = master is not None or bool(conf)
    if executor == "inline" and wants_spark:
        raise UsageError("--master and --conf are for Spark, and --executor inline runs without it")
    executor = executor or ("spark" if wants_spark else None)
    if executor_name(executor) == "spark":
        from ..spark import start_ahead

        start_ahead(master, conf)
    bounds: dict[str, Any] = {}
    if max_files is not None:
        bounds["max_files_per_trigger"] = max_files
    if max_bytes is not None:
        bounds["max_bytes_per_trigger"] = bytes_of(max_bytes)
    listeners: list[IngestListener] = [IngestLog(every_file=log_json)]
    with ExitStack() as open_things:
        open_things.enter_context(logging_to(as_json=log_json, level=logging.WARNING if quiet else logging.INFO))
        if metrics_port is not None:
            listeners.insert(0, _metrics(open_things, metrics_port, metrics_host, into or rrds or ""))
        made = Ingest(
            landing,
            into=into,
            rrds=rrds,
            pipeline=pipeline,
            optimize=PROFILES[optimize],
            executor=executor,
            master=master,
            conf=conf or None,
            listeners=listeners,
            **bounds,
            **options,
            **reading,
        )
        query = made.start(once=once, every=every or "1s")
        try:
            with _stopped_by_signals(query):
                _wait(query, as_json=log_json)
        except (KeyboardInterrupt, Terminated) as interrupt:
            query.interrupt()
            raise type(interrupt)("the next run does the batch that was cut") from None
        if once:
            _tell_of_quarantine(FileQuarantine(made.home), str(made.home))


def _wait(query: IngestQuery, *, as_json: bool) -> None:
    """Wait for the end; what ended it becomes an object of the log, where everything is one."""
    try:
        query.await_termination()
    except Exception as error:
        if not as_json:
            raise
        logger.exception("%s", paragraph(error))
        raise click.exceptions.Exit(exit_code(error)) from None


def _metrics(open_things: ExitStack, port: int, host: str, store: str) -> IngestListener:
    from ..ingest.metrics import IngestMetrics, MetricsServer

    def quarantined() -> int:
        return FileQuarantine(home_of(located(store))).count()

    metrics = IngestMetrics(quarantined)
    server = open_things.enter_context(MetricsServer(metrics, port, host))
    logger.info("metrics are at %s", server.url)
    return metrics


def _tell_of_quarantine(quarantine: FileQuarantine, home: str) -> None:
    count = quarantine.count()
    if count:
        logger.warning(
            "%s in quarantine; `chunkmill quarantine list %s` says why", f"{count:,} file{'s' * (count > 1)}", home
        )


@contextmanager
def _stopped_by_signals(query: IngestQuery) -> Iterator[None]:
    """SIGTERM and Ctrl-C let the running batch end; a second one ends everything at once."""
    before: dict[signal.Signals, Any] = {}

    def stop(number: int, frame: FrameType | None) -> None:
        logger.info("stopping after the running batch; once more stops at once")
        query.stop()
        signal.signal(number, before[signal.Signals(number)])
        note_signal()
        del frame

    for kind in (signal.SIGTERM, signal.SIGINT):
        before[kind] = signal.signal(kind, stop)
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def bytes_of(text: str) -> int:
    """A number of bytes as people write it. Raises ``UsageError``.

    >>> bytes_of("2GB"), bytes_of("1.5 MiB"), bytes_of("4096")
    (2000000000, 1572864, 4096)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", text.lower())
    if found is None or (found[2] or "") not in _UNITS:
        raise UsageError(f"{text!r} is no size", hint="Write it like 500MB, 2GB or 1GiB.")
    return int(float(found[1]) * _UNITS[found[2] or ""])


def vacuum_store(store: str, keep: int, older_than: str) -> None:
    """Vacuum a store."""
    freed = RecordingStore.open(home_of(located(store))).vacuum(keep=keep, older_than_seconds=seconds_of(older_than))
    click.echo(f"{shown_size(freed)} freed", file=sys.stdout)
