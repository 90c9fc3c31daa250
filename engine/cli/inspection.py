"""The report of ``inspect`` as tables for people."""

from __future__ import annotations

import datetime
from collections.abc import Callable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...readers import FileReport, StoreReport, TimelineReport
from ..chunk import TimelineKind
from ..units import duration, size

_UNKNOWN = "?"
_PLAIN_WIDTH = 160
_LONG = 100
_NUMBERS: dict[str, tuple[str, Callable[[float], str]]] = {
    "rows": ("rows", "{:,}".format),
    "chunks": ("chunks", "{:,}".format),
    "num_bytes": ("bytes", size),
    "rate": ("rate", "{:.4g} Hz".format),
    "largest_gap": ("largest gap", lambda gap: duration(gap / 1e9)),
}
"""What is told of an entity in numbers: the heading, and how one is written."""


def print_tables(report: FileReport) -> None:
    """Print the report on stdout: a line on the file, then a heading and two tables for each store."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PLAIN_WIDTH)
    head = [f"{report.path}: {report.format.upper()}", size(report.num_bytes)]
    console.print(escape(", ".join([*head, *_facts(report)])))
    if report.columns:
        console.print()
        console.print(_columns(report))
    if report.notes:
        console.print(_notes(report))
    for store in report.stores:
        console.print()
        console.print(escape(_heading(store)), style="bold")
        if store.timelines:
            console.print(_timelines(store))
        if store.entities:
            console.print(_entities(store))


def _facts(report: FileReport) -> list[str]:
    """The facts that the format adds, without those that are not there."""
    return [
        name
        if value is True
        else f"{name.replace('_', ' ')} {value:,}"
        if isinstance(value, int)
        else f"{name.replace('_', ' ')} {value:.2f}"
        if isinstance(value, float)
        else f"{name} {value}"
        for name, value in report.facts.items()
        if value
    ]


def _heading(store: StoreReport) -> str:
    words = [store.kind]
    if store.recording_id is not None:
        words.append(f"{store.recording_id!r} of application {store.application_id!r}")
    counts = [f"{len(store.entities):,} entities"]
    counts += [f"{store.rows:,} rows"] if store.rows is not None else []
    counts += [f"{store.chunks:,} chunks"] if store.chunks is not None else []
    counts += [size(store.num_bytes)] if store.num_bytes is not None else []
    return f"{' '.join(words)}: {', '.join(counts)}"


def _columns(report: FileReport) -> Table:
    table = Table("column", "type")
    known = [c for c in report.columns if c.values is not None]
    if known:
        table.add_column("encodings")
        for name in ("values", "bytes", "uncompressed"):
            table.add_column(name, justify="right")
    for column in table.columns[:3]:
        column.overflow = "fold"
    for c in report.columns:
        name = f"{c.name} (index?)" if c.is_index else c.name
        cells = [name, c.type if c.nullable is not False else f"{c.type}, required"]
        if known:
            cells.append(", ".join([*c.encodings, *c.compression]))
            cells += [f"{c.values or 0:,}", size(c.num_bytes or 0), size(c.uncompressed_bytes or 0)]
        table.add_row(*map(escape, cells))
    return table


def _notes(report: FileReport) -> Table:
    table = Table("key", "value")
    table.columns[1].overflow = "fold"
    for key, value in report.notes.items():
        table.add_row(escape(key), escape(value if len(value) <= _LONG else f"{value[:_LONG]}… ({len(value):,})"))
    return table


def _timelines(store: StoreReport) -> Table:
    table = Table("timeline", "type", "start", "end", "length")
    for line in store.timelines:
        length = _UNKNOWN
        if line.start is not None and line.end is not None:
            span = line.end - line.start
            length = f"{span:,}" if line.kind is TimelineKind.SEQUENCE else duration(span / 1e9)
        table.add_row(escape(line.name), line.kind.value, _tick(line, line.start), _tick(line, line.end), length)
    return table


def _tick(line: TimelineReport, value: int | None) -> str:
    """A tick as people read it; a time that no calendar holds stays a number of nanoseconds."""
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


def _entities(store: StoreReport) -> Table:
    topics = any(e.schema is not None or e.encoding is not None for e in store.entities)
    what = "schema" if topics else "components"
    table = Table("topic" if topics else "entity", what)
    for column in table.columns:
        column.overflow = "fold"
    numbers = [name for name in _NUMBERS if any(getattr(e, name) is not None for e in store.entities)]
    for name in numbers:
        table.add_column(_NUMBERS[name][0], justify="right")
    for entity in store.entities:
        described = f"{entity.schema or _UNKNOWN} ({entity.encoding})" if topics else ", ".join(entity.components)
        path = f"{entity.path} (static)" if entity.is_static else entity.path
        values = [(getattr(entity, name), _NUMBERS[name][1]) for name in numbers]
        shown = [_UNKNOWN if value is None else text(value) for value, text in values]
        table.add_row(escape(path), escape(described), *shown)
    return table
