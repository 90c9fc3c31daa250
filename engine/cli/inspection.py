"""The report of ``inspect`` for people: tables that fit the terminal, the important parts first.

On a terminal, the least important columns are left out if room lacks, and names are folded; elsewhere, every row is
whole, on one line.
"""

from __future__ import annotations

import datetime
import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple

import click
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...readers import EntitySummary, FileReport, OrderReport, StoreReport, TimelineReport
from ..chunk import TimelineKind
from ..units import counted, duration, size
from .complaints import one_line

_UNKNOWN = "?"
_PLAIN_WIDTH = 1_000_000
_LONG = 100
_MOST_STORES = 3
_ASIDE = ("/__properties", "/__warnings")
"""Entities that describe the recording rather than its content."""


class Heading(NamedTuple):
    """A column's heading and rank: if room lacks, columns of the highest rank are left out first, rank 0 never."""

    heading: str
    goes: int = 0
    is_number: bool = False


class EntityColumn(NamedTuple):
    """A column of the table of entities: its heading, and the function that makes the text of a cell."""

    heading: Heading
    text: Callable[[EntitySummary], str]


def wide_console(*, stderr: bool = False) -> Console:
    """Return a console as wide as its terminal; a file or a pipe has room for everything."""
    console = Console(highlight=False, stderr=stderr)
    return console if console.is_terminal else Console(highlight=False, stderr=stderr, width=_PLAIN_WIDTH)


def print_columns(columns: Sequence[Heading], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on stdout without its empty columns; the first shown column may be folded."""
    console = wide_console()
    widths = [max((cell_len(row[at]) for row in rows), default=0) for at in range(len(columns))]
    shown = [at for at, width in enumerate(widths) if width]
    while sum(max(widths[at], cell_len(columns[at].heading)) + 2 for at in shown) - 2 > console.width:
        last = max(shown, key=lambda at: columns[at].goes)
        if not columns[last].goes:
            break
        shown.remove(last)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, at in enumerate(shown):
        justify, fold = "right" if columns[at].is_number else "left", place == 0 or not columns[at].is_number
        table.add_column(columns[at].heading, justify=justify, overflow="fold", no_wrap=not fold)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(escape(one_line(row[at])) for at in shown))
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        click.echo(line.rstrip())


def show_report(report: FileReport, *, as_json: bool = False, everything: bool = False) -> None:
    """Print the report on stdout, as JSON or as tables: a line on the file, then tables for each store.

    ``everything``: also static entities, those about the recording, channels, components, chunks and blueprints.
    """
    if as_json:
        click.echo(report.to_json())
        return
    click.echo(
        one_line(", ".join([f"{report.path}: {report.format.upper()}", size(report.num_bytes), *_facts(report)]))
    )
    if report.columns:
        click.echo()
        _print_columns_of(report)
    if report.notes:
        click.echo()
        print_columns([Heading("key"), Heading("value")], [(key, _short(value)) for key, value in report.notes.items()])
    recordings = [store for store in report.stores if store.kind == "recording"]
    if len(recordings) > _MOST_STORES and not everything:
        _print_recordings(report)
    else:
        for store in report.stores:
            _print_store(store, everything=everything or not recordings)
    if report.orders is not None:
        _print_orders(report.orders)


def _print_orders(orders: Sequence[OrderReport]) -> None:
    """Print a line for each entity whose rows are not in the order of their times."""
    click.echo()
    if not orders:
        click.echo("all rows are in the order of their times")
        return
    rows = []
    for order in orders:
        texts = [f"{counted(count, 'late row')} on {line}" for line, count in order.late_rows.items()]
        texts += [f"{counted(count, 'late chunk')} on {line}" for line, count in order.late_chunks.items()]
        texts += [f"{one} and {other} disagree" for one, other in order.disagreeing or ()]
        rows.append((order.path, ", ".join(texts) or "too many rows to compare"))
    print_columns([Heading("entity"), Heading("order")], rows)


def print_files(reports: Sequence[FileReport]) -> None:
    """Print a row for each of several files, and their sum."""
    rows = []
    for report in reports:
        recordings = [store for store in report.stores if store.kind == "recording"]
        counts = [s.rows for s in recordings] if recordings else [_facts_rows(report)]
        known_counts = [count for count in counts if count is not None]
        row_text = f"{sum(known_counts):,}" if len(known_counts) == len(counts) else _UNKNOWN
        start, length = start_and_length(recordings[0].timelines if len(recordings) == 1 else ())
        rows.append((report.path, report.format, row_text, length, start, size(report.num_bytes)))
    headings = [
        Heading("file"),
        Heading("format", 2),
        Heading("rows", is_number=True),
        Heading("length", 1, is_number=True),
    ]
    print_columns([*headings, Heading("start", 3), Heading("bytes", is_number=True)], rows)
    click.echo(f"\n{counted(len(rows), 'file')}, {size(sum(report.num_bytes for report in reports))}")


def _facts_rows(report: FileReport) -> int | None:
    """The rows of a table, or the frames of a dataset, by its facts."""
    value = report.facts.get("rows", report.facts.get("frames"))
    return value if isinstance(value, int) else None


def print_line(text: str, *, err: bool = False) -> None:
    """Print a text, with ``err`` on stderr; on a terminal, break lines between words."""
    console = Console(stderr=err)
    click.echo(textwrap.fill(one_line(text), console.width) if console.is_terminal else one_line(text), err=err)


def _short(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}… ({len(text):,})"


def _facts(report: FileReport) -> list[str]:
    """The facts of the format, without missing ones."""
    return [
        name
        if value is True
        else f"{name.replace('_', ' ')} {value:,}"
        if isinstance(value, int)
        else f"{name.replace('_', ' ')} {value:.2f}"
        if isinstance(value, float)
        else f"{name.replace('_', ' ')} {value}"
        for name, value in report.facts.items()
        if value
    ]


def _heading(store: StoreReport) -> str:
    words = [store.kind]
    if store.recording_id is not None:
        words.append(f"{store.recording_id!r} of application {store.application_id!r}")
    counts = [counted(len(store.entities), "topic" if _has_topics(store) else "entity").replace("entitys", "entities")]
    counts += [counted(store.rows, "row")] if store.rows is not None else []
    counts += [counted(store.chunks, "chunk")] if store.chunks is not None else []
    counts += [size(store.num_bytes)] if store.num_bytes is not None else []
    return f"{' '.join(words)}: {', '.join(counts)}"


def _has_topics(store: StoreReport) -> bool:
    return any(e.schema is not None or e.encoding is not None for e in store.entities)


def _print_columns_of(report: FileReport) -> None:
    """The columns of a table."""
    has_values = any(c.values is not None for c in report.columns)
    headings = [Heading("column"), Heading("type")]
    if has_values:
        headings += [Heading("values", 2, is_number=True), Heading("bytes", is_number=True)]
        headings += [Heading("uncompressed", 3, is_number=True), Heading("encodings", 4)]
    rows = []
    for c in report.columns:
        cells = [f"{c.name} (index?)" if c.is_index else c.name]
        cells.append(c.type if c.nullable is not False else f"{c.type}, required")
        if has_values:
            cells += [f"{c.values or 0:,}", size(c.num_bytes or 0), size(c.uncompressed_bytes or 0)]
            cells.append(", ".join([*c.encodings, *c.compression]))
        rows.append(cells)
    print_columns(headings, rows)


def _print_recordings(report: FileReport) -> None:
    """Print one row per recording, if there are many."""
    rows = []
    for store in report.stores:
        if store.kind == "recording":
            start, length = start_and_length(store.timelines)
            entities = f"{len(store.entities):,}"
            rows.append((store.recording_id or _UNKNOWN, _number(store.rows), length, start, entities, _size(store)))
    click.echo()
    headings = [Heading("recording"), Heading("rows", 0, is_number=True), Heading("length", 1, is_number=True)]
    headings += [Heading("start", 3), Heading("entities", 2, is_number=True), Heading("bytes", 0, is_number=True)]
    print_columns(headings, rows)
    click.echo(f"\n{counted(len(rows), 'recording')}; --all shows the entities of each")


def _number(value: int | None) -> str:
    return _UNKNOWN if value is None else f"{value:,}"


def _size(store: StoreReport | EntitySummary) -> str:
    return _UNKNOWN if store.num_bytes is None else size(store.num_bytes)


def start_and_length(timelines: Sequence[TimelineReport]) -> tuple[str, str]:
    """The start and length of one of the timelines with rows, of wall-clock times if there is one."""
    with_rows = [line for line in timelines if line.start is not None]
    order = [TimelineKind.TIMESTAMP, TimelineKind.DURATION, TimelineKind.SEQUENCE]
    line = min(with_rows, key=lambda line: order.index(line.kind), default=None)
    return ("", "") if line is None else (_tick(line, line.start), _length(line))


def _print_store(store: StoreReport, *, everything: bool) -> None:
    click.echo()
    print_line(_heading(store))
    if store.kind == "blueprint" and not everything:
        return
    shown = [e for e in store.entities if everything or not (e.is_static or e.path.startswith(_ASIDE))]
    if shown:
        _print_entities(shown, _has_topics(store), everything=everything)
    left_out = len(store.entities) - len(shown)
    if left_out:
        is_one = left_out == 1
        verbs = ("is", "describes", "it") if is_one else ("are", "describe", "them")
        subject = f"{left_out:,} more {'entity' if is_one else 'entities'}"
        print_line(f"{subject} {verbs[0]} static or {verbs[1]} the recording; --all shows {verbs[2]}")
    if store.timelines:
        click.echo()
        _print_timelines(store, everything=everything)


def _print_entities(entities: Sequence[EntitySummary], topics: bool, *, everything: bool) -> None:
    columns = [
        EntityColumn(Heading("rows", is_number=True), lambda e: _number(e.rows)),
        EntityColumn(Heading("rate", 0, is_number=True), lambda e: "" if e.rate is None else f"{e.rate:.4g} Hz"),
        EntityColumn(Heading("gap", 0, is_number=True), _gap),
        EntityColumn(Heading("bytes", 0, is_number=True), lambda e: "" if e.num_bytes is None else size(e.num_bytes)),
    ]
    if topics:
        columns.append(EntityColumn(Heading("schema", 0 if everything else 1), lambda e: e.schema or _UNKNOWN))
    if everything:
        columns.append(
            EntityColumn(Heading("chunks", 0, is_number=True), lambda e: "" if e.chunks is None else f"{e.chunks:,}")
        )
        columns.append(EntityColumn(Heading("encoding"), lambda e: e.encoding or ""))
        columns.append(EntityColumn(Heading("components"), lambda e: ", ".join(e.components)))
    headings = [Heading("topic" if topics else "entity"), *(column.heading for column in columns)]
    rows = [
        [f"{e.path} (static)" if e.is_static else e.path, *(column.text(e) for column in columns)] for e in entities
    ]
    print_columns(headings, rows)


def _gap(entity: EntitySummary) -> str:
    """The largest gap, or its lower bound."""
    if entity.largest_gap is not None:
        return duration(entity.largest_gap / 1e9)
    return "" if entity.gap_at_least is None else f"≥ {duration(entity.gap_at_least / 1e9)}"


def _print_timelines(store: StoreReport, *, everything: bool) -> None:
    headings = [Heading("timeline"), Heading("type", 2), Heading("start"), Heading("end", 1)]
    rows = []
    for line in store.timelines:
        start, end = _tick(line, line.start), _tick(line, line.end)
        if not everything and line.kind is TimelineKind.TIMESTAMP and start[:11] == end[:11]:
            end = end[11:]
        rows.append((line.name, line.kind.value, start, end, _length(line)))
    print_columns([*headings, Heading("length", is_number=True)], rows)


def _length(line: TimelineReport) -> str:
    if line.start is None or line.end is None:
        return _UNKNOWN
    span = line.end - line.start
    return f"{span:,}" if line.kind is TimelineKind.SEQUENCE else duration(span / 1e9)


def _tick(line: TimelineReport, value: int | None) -> str:
    """A tick for people; a time outside the calendar stays a number of nanoseconds."""
    if value is None:
        return "-"
    if line.kind is TimelineKind.SEQUENCE:
        return f"{value:,}"
    if line.kind is TimelineKind.DURATION:
        return f"{value / 1e9:.6f} s"
    try:
        instant = datetime.datetime.fromtimestamp(value // 1_000_000_000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{value:,} ns"
    return f"{instant:%Y-%m-%d %H:%M:%S}.{value % 1_000_000_000 // 1000:06d}Z"
