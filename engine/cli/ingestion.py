"""``chunkmill ingest``, ``compact`` and ``vacuum``: a landing folder into a store, and the store's upkeep."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType
from typing import Any

import click

from ..errors import UsageError
from ..ingest import BatchResult, FileQuarantine, Ingest, IngestListener, IngestLog, IngestQuery, Outcome, logging_to
from ..locations import located
from ..pipelines import load_pipeline
from ..recordings import CompactionReport
from ..spark import Terminated, note_signal
from ..store import RecordingStore
from ..units import bytes_of, counted, seconds_of
from ..units import size as shown_size
from .catalogs import home_at, store_words
from .complaints import FAILED, echo_json, exit_code, paragraph, warnings_as_lines
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
    pipeline: str | None,
    metrics_port: int | None,
    metrics_host: str,
    as_json: bool,
    log_json: bool,
    quiet: bool,
    executor: str | None,
    master: str | None,
    conf: dict[str, str],
    **options: Any,
) -> None:
    """Run an ingestion until it has ended, or a signal says so; all arguments are checked before anything is made.

    With ``once``, leaves with exit code 1 where files went into quarantine.
    """
    _check(once=once, every=every, into=into, dataset=dataset, rrds=rrds, as_json=as_json)
    executor, why = choice(
        chosen_executor(executor, master, conf),
        [located(landing)] if once else None,
        unknown="what is to land" if not once else "what is not local",
        own_functions=pipeline is not None,
    )
    if executor == "spark":
        from ..spark import start_ahead

        start_ahead(master, conf)
    summary = _Summary()
    listeners: list[IngestListener] = [IngestLog(every_file=log_json), summary]
    make = partial(
        Ingest,
        landing,
        rrds=rrds,
        pipeline=None if pipeline is None else load_pipeline(pipeline),
        max_bytes_per_trigger=bytes_of(max_bytes),
        optimize=profile_of(optimize),
        executor=executor,
        master=master,
        conf=conf or None,
        listeners=listeners,
        **options,
        **reading,
    )
    with ExitStack() as open_things:
        open_things.enter_context(logging_to(as_json=log_json, level=logging.WARNING if quiet else logging.INFO))
        if why:
            logger.info("executor %s; %s", executor, why)
        create = _checked(make, into, dataset)
        if metrics_port is not None:
            listeners.insert(0, _metrics(open_things, metrics_port, metrics_host, summary))
        ingest = make(into=create(), listeners=listeners)
        query = ingest.start(once=once, every=every or "1s")
        try:
            with _stopped_by_signals(query):
                _wait(query, as_json=log_json)
        except (KeyboardInterrupt, Terminated) as interrupt:
            query.interrupt()
            raise type(interrupt)("the next run does the batch that was cut") from None
        if once:
            place = store_words(into or rrds or "", dataset)
            _end(summary, FileQuarantine(ingest.home), place, as_json=as_json)


def _check(
    *, once: bool, every: str | None, into: str | None, dataset: str | None, rrds: str | None, as_json: bool
) -> None:
    """Raise ``UsageError`` for options that do not go together."""
    if once and every is not None:
        raise UsageError("--once and --every exclude each other")
    if as_json and not once:
        raise UsageError("--json is about an ingestion that ends", hint="Add --once; or log JSON with --log-json.")
    if into is None and rrds is None:
        raise UsageError("an ingestion needs a destination", hint="Name a store with --into, or a folder with --rrds.")
    if dataset is not None and into is None:
        raise UsageError("--dataset names one of a catalog", hint="Name the catalog with --into.")


def _checked(
    make: Callable[..., Ingest], into: str | None, dataset: str | None
) -> Callable[[], str | os.PathLike[str] | None]:
    """Return a function that gives the store, and creates it where it is a dataset that is not there yet.

    ``make`` makes the ingestion into a store, which shows before that whether all arguments are right.
    """
    if into is None or dataset is None:
        make(into=into).check()
        return lambda: into
    from ..catalog import CatalogClient

    client = CatalogClient(into)
    if dataset in client.dataset_names():
        there = client.get_dataset(dataset)
        make(into=there).check()
        return lambda: there
    make(into=located(into) / "datasets" / "new").check()
    return lambda: client.create_dataset(dataset, exist_ok=True)


class _Summary(IngestListener):
    """The outcomes of the files of a run. :attr:`home` is where it ingests into, once it has begun."""

    def __init__(self) -> None:
        self.home: str | None = None
        self._facts: dict[str, Any] = {"batches": 0}
        self._sums: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()
        self.failed: list[dict[str, Any]] = []

    def started(self, query_id: str, source: str, home: str) -> None:
        """See :class:`IngestListener`."""
        self.home = home
        self._facts = {"source": source, "store": home, "query_id": query_id, **self._facts}

    def batch_done(self, result: BatchResult) -> None:
        """See :class:`IngestListener`."""
        self._facts["batches"] += 1
        self._facts["version"] = result.version
        for file in result.files:
            self._outcomes[file.outcome] += 1
            self._sums.update(recordings=len(file.recordings), chunks=file.chunks, rows=file.rows)
            self._sums["bytes"] += file.bytes_out
            if file.outcome is Outcome.QUARANTINED:
                self.failed.append({"path": file.file.path, "error": file.error})

    def looked(self, ready: int, waiting: int, oldest_seconds: float) -> None:
        """Do nothing."""

    def batch_began(self, number: int, files: int, size: int) -> None:
        """Do nothing."""

    def batch_failed(self, number: int, error: Exception) -> None:
        """Do nothing."""

    def stopped(self, reason: str) -> None:
        """Do nothing."""

    def to_dict(self) -> dict[str, Any]:
        """It as JSON data; ``bytes`` are those of chunks as they are written."""
        names = ("recordings", "chunks", "rows", "bytes")
        files = {outcome.value: self._outcomes[outcome] for outcome in Outcome}
        return {**self._facts, "files": files, **{name: self._sums[name] for name in names}, "failed": self.failed}


def _end(summary: _Summary, quarantine: FileQuarantine, place: str, *, as_json: bool) -> None:
    """Say what became of the files; leaves with exit code 1 where some went into quarantine.

    ``place``: the words by which other commands find the store.
    """
    count = quarantine.count()
    if as_json:
        echo_json({**summary.to_dict(), "in_quarantine": count})
    if count:
        logger.warning("%s in quarantine; `chunkmill quarantine list %s` says why", counted(count, "file"), place)
    if summary.failed:
        raise click.exceptions.Exit(FAILED)


def _wait(query: IngestQuery, *, as_json: bool) -> None:
    """Wait for the end; what ended it becomes an object of the log, where everything is one."""
    try:
        query.await_termination()
    except Exception as error:
        if not as_json:
            raise
        logger.exception("%s", paragraph(error))
        raise click.exceptions.Exit(exit_code(error)) from None


def _metrics(open_things: ExitStack, port: int, host: str, summary: _Summary) -> IngestListener:
    from ..ingest import IngestMetrics, MetricsServer

    def quarantined() -> int:
        return 0 if summary.home is None else FileQuarantine(located(summary.home)).count()

    metrics = IngestMetrics(quarantined)
    server = open_things.enter_context(MetricsServer(metrics, port, host))
    logger.info("metrics are at %s", server.url)
    return metrics


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
