"""``chunkmill ingest``, ``compact`` and ``vacuum``, and the display of an ingestion.

Quarantined files are listed, retried and dropped here, too.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ..errors import ReadError, UsageError
from ..ingest import (
    BatchResult,
    FileQuarantine,
    Ingest,
    IngestListener,
    IngestLog,
    IngestQuery,
    IngestStatus,
    Outcome,
    QuarantinedFile,
    Rate,
    StatusReader,
    home_of,
    logging_to,
)
from ..locations import Location, located
from ..pipelines import load_pipeline
from ..recordings import CompactionReport
from ..spark import Terminated, note_signal
from ..store import RecordingStore
from ..units import bytes_of, counted, duration, seconds_of, size, utc_time
from ..units import size as shown_size
from .catalogs import home_at, store_words
from .complaints import FAILED, complain, echo_json, exit_code, one_line, paragraph, warnings_as_lines
from .inspection import Heading, print_columns
from .options import chosen_executor, profile_of
from .start import choice

_HEADINGS = ("file", "error", "message", "at byte", "tries", "first seen")
_NUMBERS = ("at byte", "tries")
_SHORTEST = 12

PERIOD: Final = 2.0
"""Seconds between two updates of ``--watch``."""


def show_once(status: IngestStatus, store: str, *, as_json: bool) -> bool:
    """Print a status on stdout, and unreadable parts on stderr; return whether all could be read."""
    if as_json:
        click.echo(json_text(status, indent=2))
        return not status.problems
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(_table(status, store))
    else:
        for name, fact in _facts(status, store):
            click.echo(f"{name:<10}  {one_line(fact)}")
    for problem in status.problems:
        complain(problem, kind="warning")
    return not status.problems


def watch_status(reader: StatusReader, store: str, *, as_json: bool) -> None:
    """Show the status over and over until Ctrl-C: in place on a terminal, else a line each time.

    A store that cannot be read for a moment is reported, and read again.
    """
    console = Console(highlight=False)
    try:
        if as_json or not console.is_terminal:
            _watch_lines(reader, as_json=as_json)
        with Live(console=console, auto_refresh=False) as live:
            while True:
                try:
                    live.update(_table(reader.read(), store, with_problems=True), refresh=True)
                except ReadError as error:
                    live.update(Text(one_line(str(error)), style="red"), refresh=True)
                _pause()
    except KeyboardInterrupt:
        return


def _watch_lines(reader: StatusReader, *, as_json: bool) -> None:
    while True:
        try:
            status = reader.read()
            click.echo(json_text(status) if as_json else line(status))
        except ReadError as error:
            complain(str(error))
        _pause()


def _pause() -> None:
    time.sleep(PERIOD)


def json_text(status: IngestStatus, indent: int | None = None) -> str:
    """A status as a JSON object. Times are RFC 3339 in UTC, ages and lengths of time seconds."""
    data = asdict(status)
    data["at"] = _utc(status.at)
    data["rates"] = [
        {**asdict(rate), "files_per_second": rate.files_per_second, "bytes_per_second": rate.bytes_per_second}
        for rate in status.rates
    ]
    if status.last is not None:
        data["last"]["committed"] = _utc(status.last.committed)
    if status.holder is not None:
        private = ("token", "namespace", "started", "released")
        data["holder"] = {key: value for key, value in data["holder"].items() if key not in private}
        for name in ("taken", "renewed"):
            data["holder"][name] = _utc(data["holder"][name])
    return json.dumps(data, indent=indent)


def line(status: IngestStatus) -> str:
    """A status on one line."""
    words = [
        f"batch {status.last.number}, {_ago(status.at - status.last.committed)}" if status.last else "no batch yet",
        counted(sum(status.files.values()), "file"),
        counted(status.recordings, "recording"),
    ]
    if status.lag is not None:
        words.append(f"{status.lag.waiting:,} waiting for {duration(status.lag.oldest_seconds)}")
    words += [_rate(rate) for rate in status.rates[:1]]
    if status.quarantined:
        words.append(f"{status.quarantined:,} in quarantine")
    words.append("no process is writing" if status.holder is None else f"{status.holder.holder} runs")
    words += [f"problem: {problem}" for problem in status.problems]
    return one_line(f"{_utc(status.at)} {', '.join(words)}")


def _table(status: IngestStatus, store: str, *, with_problems: bool = False) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, fact in _facts(status, store):
        table.add_row(name, Text(one_line(fact)))
    for problem in status.problems if with_problems else ():
        table.add_row("problem", Text(one_line(problem), style="yellow"))
    return table


def _facts(status: IngestStatus, store: str) -> list[tuple[str, str]]:
    holds = [counted(status.recordings, "recording"), counted(status.chunks, "chunk"), counted(status.rows, "row")]
    facts = [
        ("store", f"{store}, version {status.version}" if status.version else f"{store}, nothing committed yet"),
        ("source", status.source or "not known: no checkpoint was found; give its folder with --checkpoint"),
        ("writer", str(status.holder or "nobody")),
        ("batches", _batches(status)),
        ("files", _outcomes(status.files)),
        ("holds", f"{', '.join(holds)}, {size(status.bytes)}"),
    ]
    if status.lag is not None:
        lag = status.lag
        oldest = f", the oldest for {duration(lag.oldest_seconds)}" if lag.waiting else ""
        running = f"; {counted(lag.running, 'file')} in the running batch" if lag.running else ""
        facts.append(("waiting", f"{counted(lag.waiting, 'file')}, {size(lag.waiting_bytes)}{oldest}{running}"))
    facts += [("rate", f"{_rate(rate)} over {duration(rate.window)}") for rate in dict.fromkeys(status.rates)]
    if status.quarantined is not None:
        more = f"; see chunkmill quarantine list {store}" if status.quarantined else ""
        facts.append(("quarantine", f"{counted(status.quarantined, 'file')}{more}"))
    return facts


def _batches(status: IngestStatus) -> str:
    if status.last is None:
        return f"{status.batches:,}"
    last = status.last
    return (
        f"{status.batches:,}; number {last.number}, {_ago(status.at - last.committed)}: {_outcomes(last.files)}, "
        f"{size(last.bytes)} in {duration(last.seconds)}"
    )


def _outcomes(files: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {outcome}" for outcome, count in files.items() if count) or "none"


def _rate(rate: Rate) -> str:
    """A rate in files and bytes.

    >>> _rate(Rate(60.0, 90, 1_500_000_000, 3))
    '1.50 files/s, 25.0 MB/s'
    """
    return f"{rate.files_per_second:.2f} files/s, {size(rate.bytes_per_second)}/s"


def _ago(seconds: float) -> str:
    return f"{duration(max(seconds, 0.0))} ago"


def _utc(seconds: float) -> str | None:
    try:
        return utc_time(seconds)
    except (ValueError, OverflowError, OSError):
        return None


def list_quarantined(store: Location, paths: Sequence[str], *, as_json: bool) -> None:
    """Print the files in quarantine, or those at ``paths``. Raises ``UsageError`` for one that is not in it."""
    files = FileQuarantine(home_of(store)).rows()
    if paths:
        files = _named(files, paths)
    if as_json:
        _print_json(files)
    elif not files:
        click.echo("No files in quarantine.")
    else:
        _print_table(files)
        click.echo(f"{counted(len(files), 'file')} in quarantine; --json shows full messages and hints.")


def retry_quarantined(store: Location, paths: Sequence[str], *, everything: bool, as_json: bool) -> None:
    """Ask for files to be tried again, and print what happens next."""
    quarantine = FileQuarantine(home_of(store))
    files = _acted_on(quarantine, quarantine.request_retry, store, paths, everything=everything)
    _tell(
        files,
        "will be retried by the running ingestion, or when it starts again. Files that succeed leave the quarantine.",
        as_json=as_json,
    )


def drop_quarantined(store: Location, paths: Sequence[str], *, everything: bool, as_json: bool) -> None:
    """Remove files from quarantine, and print what happens to them."""
    quarantine = FileQuarantine(home_of(store))
    files = _acted_on(quarantine, quarantine.drop, store, paths, everything=everything)
    _tell(
        files,
        "dropped from quarantine. The files are not deleted, and not retried until their content changes.",
        as_json=as_json,
    )


def _tell(files: Sequence[QuarantinedFile], what: str, *, as_json: bool) -> None:
    """Print what happens to the chosen files."""
    if as_json:
        _print_json(files)
    elif not files:
        click.echo("No files in quarantine.")
    else:
        click.echo(f"{counted(len(files), 'file')} {what}")


def _acted_on(
    quarantine: FileQuarantine,
    act: Callable[[Iterable[str]], list[str]],
    store: Location,
    paths: Sequence[str],
    *,
    everything: bool,
) -> list[QuarantinedFile]:
    """Call ``act`` with the paths of the chosen files, and return the files."""
    if bool(paths) == everything:
        raise UsageError(
            "paths and --all exclude each other" if everything else "no file is given",
            hint="Use one of them." if everything else "Give paths, or --all for all files in quarantine.",
        )
    files = quarantine.rows()
    chosen = files if everything else _named(files, paths)
    with warnings_as_lines(store):
        act([file.path for file in chosen])
    return chosen


def _named(files: Sequence[QuarantinedFile], paths: Sequence[str]) -> list[QuarantinedFile]:
    """The files at ``paths``, each spelled as in the quarantine, or relative to the current folder."""
    by_path = {file.path: file for file in files}
    chosen = {}
    for path in paths:
        spellings = (path, os.path.abspath(path), str(Path(path).resolve()))  # noqa: PTH100 (takes `..` away as text)
        file = next((by_path[spelling] for spelling in spellings if spelling in by_path), None)
        if file is None:
            raise UsageError(f"{path} is not in quarantine", hint="`chunkmill quarantine list` lists the files.")
        chosen[file.path] = file
    return list(chosen.values())


def _print_json(files: Sequence[QuarantinedFile]) -> None:
    """Print an object per line: times in ISO 8601 (UTC), ``modified_ns`` in ns since 1970, sizes, offsets in bytes."""
    for file in files:
        times = {name: getattr(file, name).isoformat() for name in ("first_seen", "last_seen")}
        click.echo(json.dumps({**asdict(file), **times}, ensure_ascii=False))


def _print_table(files: Sequence[QuarantinedFile]) -> None:
    """Print a table with lines on a terminal, and in a pipe a line for each file."""
    console = Console(highlight=False)
    cells = [_cells(file) for file in files]
    if not console.is_terminal:
        print_columns([Heading(name, is_number=name in _NUMBERS) for name in _HEADINGS], cells)
        return
    table = Table(*_HEADINGS)
    for column in table.columns[:2]:
        column.overflow = "fold"
    table.columns[2].no_wrap = True
    for column in table.columns:
        column.justify = "right" if column.header in _NUMBERS else "left"
    for row in _shortened(cells, console.width):
        table.add_row(*map(escape, row))
    console.print(table)


def _cells(file: QuarantinedFile) -> list[str]:
    return [
        one_line(file.path),
        file.code.removeprefix("chunkmill."),
        one_line(file.message),
        "" if file.offset is None else f"{file.offset:,}",
        f"{file.tries:,}",
        f"{file.first_seen:%Y-%m-%d %H:%MZ}",
    ]


def _shortened(cells: list[list[str]], width: int) -> list[list[str]]:
    """Return the rows, with messages cut to the room that a terminal of ``width`` columns leaves on one line.

    Paths are never cut; they get half of the room at most, and take as many lines as they need.
    """
    widest = [max(map(cell_len, column)) for column in zip(_HEADINGS, *cells, strict=True)]
    frame = 3 * len(widest) + 1
    room = width - frame - sum(widest) + widest[0] + widest[2]
    room = max(room - min(widest[0], room // 2), _SHORTEST)
    return [
        [*row[:2], row[2] if cell_len(row[2]) <= room else set_cell_size(row[2], room - 1) + "…", *row[3:]]
        for row in cells
    ]


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
    """Run an ingestion until its end or a signal; check all arguments before anything is created.

    With ``once``, leaves with exit code 1 if files went into quarantine.
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
            raise type(interrupt)("the next run repeats the interrupted batch") from None
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
        raise UsageError("--json needs --once", hint="Add --once, or log JSON with --log-json.")
    if into is None and rrds is None:
        raise UsageError("an ingestion needs a destination", hint="Name a store with --into, or a folder with --rrds.")
    if dataset is not None and into is None:
        raise UsageError("--dataset needs a catalog", hint="Name the catalog with --into.")


def _checked(
    make: Callable[..., Ingest], into: str | None, dataset: str | None
) -> Callable[[], str | os.PathLike[str] | None]:
    """Return a function that returns the store, and creates it if it is a missing dataset.

    ``make`` makes the ingestion into a store; this checks all arguments before the dataset is created.
    """
    if into is None or dataset is None:
        make(into=into).check()
        return lambda: into
    from ..catalog import CatalogClient

    client = CatalogClient(into)
    if dataset in client.dataset_names():
        existing = client.get_dataset(dataset)
        make(into=existing).check()
        return lambda: existing
    make(into=located(into) / "datasets" / "new").check()
    return lambda: client.create_dataset(dataset, exist_ok=True)


class _Summary(IngestListener):
    """The outcomes of the files of a run. :attr:`home` is the ingestion's target, once it has begun."""

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
        """The summary as JSON data; ``bytes`` is the size of the written chunks."""
        names = ("recordings", "chunks", "rows", "bytes")
        files = {outcome.value: self._outcomes[outcome] for outcome in Outcome}
        return {**self._facts, "files": files, **{name: self._sums[name] for name in names}, "failed": self.failed}


def _end(summary: _Summary, quarantine: FileQuarantine, place: str, *, as_json: bool) -> None:
    """Report the outcome of the files; exit with code 1 if some went into quarantine.

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
    """Wait for the end; write its reason as an object of the log if the log is JSON."""
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
    """Let the running batch end at SIGTERM or Ctrl-C; a second signal ends everything at once."""
    before: dict[signal.Signals, Any] = {}

    def stop(number: int, frame: FrameType | None) -> None:
        logger.info("stopping after the running batch; a second signal stops at once")
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
    """Compact a store, under its lease, and report the result."""
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
    lines = [
        (
            f"{counted(report.shards_before, 'shard')} -> {report.shards_after:,}, "
            f"{counted(report.manifests_before, 'manifest')} -> {report.manifests_after:,}, "
            f"{shown_size(report.bytes_before)} -> {shown_size(report.bytes_after)}"
        ),
        (
            f"{counted(report.moved, 'recording')} rewritten, {report.laid_out:,} with a new layout, "
            f"{shown_size(report.written)} written in {report.seconds:.1f} s; version {report.versions[-1]}"
        ),
    ]
    if report.damaged:
        lines.append(f"{counted(len(report.damaged), 'recording')} damaged and unchanged: {', '.join(report.damaged)}")
    return lines
