"""``chunkmill ingest``, ``compact`` and ``vacuum``: a landing folder into a store, and the store's upkeep."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import click

from ..errors import UsageError
from ..ingest import FileQuarantine, Ingest, IngestListener, IngestLog, IngestQuery, home_of, logging_to
from ..locations import located
from ..recordings import CompactionReport
from ..spark import Terminated, note_signal
from ..store import RecordingStore
from ..units import bytes_of, counted, seconds_of
from ..units import size as shown_size
from .catalogs import home_at
from .complaints import exit_code, paragraph, warnings_as_lines
from .options import chosen_executor, profile_of
from .start import choice

logger = logging.getLogger("chunkmill.cli")


def run_ingest(
    *,
    landing: str,
    into: str | None,
    dataset: str | None,
    rrds: str | None,
    once: bool,
    every: str | None,
    max_bytes: str,
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
        raise UsageError("--once and --every exclude each other")
    if into is None and rrds is None:
        raise UsageError("an ingestion needs a destination", hint="Name a store with --into, or a folder with --rrds.")
    store = _store_of(into, dataset)
    executor, why = choice(
        chosen_executor(executor, master, conf),
        [located(landing)] if once else None,
        unknown="what is to land" if not once else "what is not local",
        own_functions=options["pipeline"] is not None,
    )
    if executor == "spark":
        from ..spark import start_ahead

        start_ahead(master, conf)
    listeners: list[IngestListener] = [IngestLog(every_file=log_json)]
    with ExitStack() as open_things:
        open_things.enter_context(logging_to(as_json=log_json, level=logging.WARNING if quiet else logging.INFO))
        if why:
            logger.info("executor %s; %s", executor, why)
        if metrics_port is not None:
            listeners.insert(0, _metrics(open_things, metrics_port, metrics_host, os.fspath(store or rrds or "")))
        ingest = Ingest(
            landing,
            into=store,
            rrds=rrds,
            max_bytes_per_trigger=bytes_of(max_bytes),
            optimize=profile_of(optimize),
            executor=executor,
            master=master,
            conf=conf or None,
            listeners=listeners,
            **options,
            **reading,
        )
        query = ingest.start(once=once, every=every or "1s")
        try:
            with _stopped_by_signals(query):
                _wait(query, as_json=log_json)
        except (KeyboardInterrupt, Terminated) as interrupt:
            query.interrupt()
            raise type(interrupt)("the next run does the batch that was cut") from None
        if once:
            _tell_of_quarantine(FileQuarantine(ingest.home), str(ingest.home))


def _store_of(into: str | None, dataset: str | None) -> str | os.PathLike[str] | None:
    """The store that ``--into`` names, or the dataset of the catalog that it is then."""
    if dataset is None:
        return into
    if into is None:
        raise UsageError("--dataset names one of a catalog", hint="Name the catalog with --into.")
    from ..catalog import CatalogClient

    return CatalogClient(into).create_dataset(dataset, exist_ok=True)


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
    from ..ingest import IngestMetrics, MetricsServer

    def quarantined() -> int:
        return FileQuarantine(home_of(located(store))).count()

    metrics = IngestMetrics(quarantined)
    server = open_things.enter_context(MetricsServer(metrics, port, host))
    logger.info("metrics are at %s", server.url)
    return metrics


def _tell_of_quarantine(quarantine: FileQuarantine, home: str) -> None:
    count = quarantine.count()
    if count:
        logger.warning("%s in quarantine; `chunkmill quarantine list %s` says why", counted(count, "file"), home)


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


def vacuum_store(store: str, dataset: str | None, keep: int, older_than: str) -> None:
    """Vacuum a store."""
    freed = RecordingStore.open(home_at(store, dataset)).vacuum(keep=keep, older_than_seconds=seconds_of(older_than))
    click.echo(f"{shown_size(freed)} freed", file=sys.stdout)


def compact_recordings(
    *,
    store: str,
    dataset: str | None,
    optimize: str,
    min_shard: str,
    executor: str | None,
    master: str | None,
    conf: dict[str, str],
) -> None:
    """Compact a store, under its lease, and say what was done."""
    from .jobs import progress_bar

    executor = chosen_executor(executor, master, conf)
    home = home_at(store, dataset)
    with warnings_as_lines(home), progress_bar(f"compact {home}", quiet=False) as bar:
        report = RecordingStore.open(home).compact(
            optimize=profile_of(optimize),
            min_shard=bytes_of(min_shard),
            executor=executor,
            master=master,
            conf=conf or None,
            progress=bar or False,
        )
    for line in lines_of(report):
        click.echo(line)


def lines_of(report: CompactionReport) -> list[str]:
    """The report of a compaction as text."""
    if not report.versions:
        return [f"nothing to do: {counted(report.shards_after, 'shard')}, {shown_size(report.bytes_after)}"]
    found = [
        (
            f"{counted(report.shards_before, 'shard')} -> {report.shards_after:,}, "
            f"{counted(report.manifests_before, 'manifest')} -> {report.manifests_after:,}, "
            f"{shown_size(report.bytes_before)} -> {shown_size(report.bytes_after)}"
        ),
        (
            f"{counted(report.moved, 'recording')} rewritten, {report.laid_out:,} laid out anew, "
            f"{shown_size(report.written)} written in {report.seconds:.1f} s; version {report.versions[-1]}"
        ),
    ]
    if report.damaged:
        found.append(f"{counted(len(report.damaged), 'recording')} damaged, left alone: {', '.join(report.damaged)}")
    return found
