"""The status of an ingestion as a table, as a line, and as JSON."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..errors import ReadError
from ..ingest import IngestStatus, Rate, StatusReader
from ..units import duration, size
from .complaints import complain, one_line

PERIOD: Final = 2.0
"""Seconds between two looks of ``--watch``."""


def show_once(status: IngestStatus, store: str, *, as_json: bool) -> bool:
    """Print a status on stdout, and on stderr what could not be read; whether all could."""
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

    A store that cannot be read for a moment is told of, and looked at again.
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
        _count(sum(status.files.values()), "file"),
        _count(status.recordings, "recording"),
    ]
    if status.lag is not None:
        words.append(f"{status.lag.waiting:,} waiting for {duration(status.lag.oldest_seconds)}")
    words += [_rate(rate) for rate in status.rates[:1]]
    if status.quarantined:
        words.append(f"{status.quarantined:,} in quarantine")
    words.append("nobody writes" if status.holder is None else f"{status.holder.holder} runs")
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
    holds = [_count(status.recordings, "recording"), _count(status.chunks, "chunk"), _count(status.rows, "row")]
    facts = [
        ("store", f"{store}, version {status.version}" if status.version else f"{store}, nothing committed yet"),
        ("source", status.source or "not known: no checkpoint was found; --checkpoint names it"),
        ("writer", str(status.holder or "nobody")),
        ("batches", _batches(status)),
        ("files", _outcomes(status.files)),
        ("holds", f"{', '.join(holds)}, {size(status.bytes)}"),
    ]
    if status.lag is not None:
        lag = status.lag
        oldest = f", the oldest for {duration(lag.oldest_seconds)}" if lag.waiting else ""
        running = f"; {_count(lag.running, 'file')} in the running batch" if lag.running else ""
        facts.append(("waiting", f"{_count(lag.waiting, 'file')}, {size(lag.waiting_bytes)}{oldest}{running}"))
    facts += [("rate", f"{_rate(rate)} over {duration(rate.window)}") for rate in status.rates]
    if status.quarantined is not None:
        more = f"; see chunkmill quarantine list {shlex.quote(store)}" if status.quarantined else ""
        facts.append(("quarantine", f"{_count(status.quarantined, 'file')}{more}"))
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


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _rate(rate: Rate) -> str:
    """A rate in files and bytes.

    >>> _rate(Rate(60.0, 90, 1_500_000_000, 3))
    '1.50 files/s, 25.0 MB/s'
    """
    return f"{rate.files_per_second:.2f} files/s, {size(rate.bytes_per_second)}/s"


def _ago(seconds: float) -> str:
    return f"{duration(max(seconds, 0.0))} ago"


def _utc(seconds: float) -> Any:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None
