"""The display of query rows and of runs."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice
from typing import Final, NamedTuple

import click
import pyarrow as pa
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..chunk import json_of
from ..frames import QueryMetrics
from ..query import SEGMENT_ID
from ..reports import RunReport
from ..units import counted, duration, part_of_size, rows_in_chunks, size
from .complaints import complain, echo_json, one_line
from .inspection import Heading, print_columns, print_line, wide_console
from .query_output import AnswerRows

_WIDEST: Final = 32
"""The largest width of a column of values, in terminal cells."""
_NARROWEST: Final = 12
_MOST_VALUES: Final = 8
"""The most values shown of a list."""
_GAP: Final = 2
_CHANNELS: Final = ("rerun.archetypes.McapChannel", "rerun.archetypes.McapSchema")
_SEGMENTS: Final = 20
"""The most segments that an explanation lists."""
_MOST_TEXT: Final = 200
"""The most characters of a value in a pipe."""


def show_rows(answer: AnswerRows, most: int) -> int:
    """Print the first ``most`` rows, and on stderr a note on the rest; return the number of printed rows."""
    rows = first_rows(answer.batches(), most + 1)
    names = _ordered(answer)
    if answer.columns.unmatched:
        complain(f"--contents: {answer.columns.unmatched}", kind="warning")
    shown = names if answer.options.columns else _without_channels(answer, names)
    table = pa.Table.from_batches(rows, answer.schema).select(shown)
    hints = "--limit shows more, -o writes all", "--columns chooses"
    print_table(table, most, hints, index=answer.options.index)
    if len(shown) < len(names):
        left_out, verb = counted(len(names) - len(shown), "column"), "is" if len(names) - len(shown) == 1 else "are"
        print_line(f"{left_out} about channels {verb} left out; --columns selects columns", err=True)
    return min(len(table), most)


def print_table(table: pa.Table, most: int, hints: tuple[str, str], *, index: str | None = None) -> None:
    """Print ``most`` rows of a table, with uncut values of ``index``, and on stderr a note on the rest.

    ``hints`` say how to see more rows, and other columns.
    """
    shown = table[:most]
    if not len(shown):
        click.echo("no rows", err=True)
        return
    left_out = _print(shown, index)
    notes = []
    if len(table) > most:
        notes.append(f"the first {counted(most, 'row')}: {hints[0]}")
    if left_out:
        notes.append(f"{counted(left_out, 'column')} did not fit: {hints[1]}")
    for note in notes:
        click.echo(note, err=True)


def _ordered(answer: AnswerRows) -> list[str]:
    """The columns: static ones, with the same value in every row, come after the others, and other indexes last."""
    static = {column.name for column in answer.columns.components if column.is_static}
    others = {column.name for column in answer.columns.indexes} - {answer.options.index}
    names = [name for name in answer.names if name != SEGMENT_ID or len(answer.segments) > 1]
    return sorted(names, key=lambda name: 2 * (name in others) + (name in static))


def _without_channels(answer: AnswerRows, names: list[str]) -> list[str]:
    """Leave out the columns of an MCAP's channels, which every entity has, unless there are no other columns."""
    about = {column.name for column in answer.columns.components if column.archetype in _CHANNELS}
    components = {column.name for column in answer.columns.components}
    return names if not (components & set(names)) - about else [name for name in names if name not in about]


def first_rows(batches: Iterable[pa.RecordBatch], most: int) -> list[pa.RecordBatch]:
    """The batches of the first ``most`` rows; reads no others."""
    first: list[pa.RecordBatch] = []
    left = most
    for batch in batches if most else ():
        first.append(batch[:left])
        left -= len(first[-1])
        if not left:
            break
    return first


def _print(rows: pa.Table, index: str | None) -> int:
    """Print rows; return how many columns did not fit."""
    console = wide_console()
    is_plain = not console.is_terminal
    most = _MOST_TEXT if is_plain else max(_NARROWEST, min(_WIDEST, console.width // 3))
    shown: list[_Column] = []
    room = console.width
    for name in rows.column_names:
        cells = [one_line(text_of(value)) for value in rows[name]]
        if name != index:
            cells = [_cut(cell, most) for cell in cells]
        needed, heading = max(map(cell_len, cells)), cell_len(name)
        least = max(needed, heading if is_plain else min(heading, _NARROWEST))
        if not shown or least <= room:
            shown.append(_Column(name, cells, least, max(needed, min(heading, most))))
            room -= least + _GAP
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for column in shown:
        wider = max(min(column.best - column.width, room + _GAP), 0)
        room -= wider
        is_number = pa.types.is_integer(rows[column.name].type)
        table.add_column(
            escape(column.name),
            justify="right" if is_number else "left",
            overflow="fold",
            width=column.width + wider,
        )
    for row in zip(*(column.cells for column in shown), strict=True):
        table.add_row(*map(escape, row))
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        click.echo(line.rstrip())
    return len(rows.column_names) - len(shown)


class _Column(NamedTuple):
    """A column of a table: its cells, its least width, and the width for its whole heading."""

    name: str
    cells: list[str]
    width: int
    best: int


def _cut(text: str, most: int) -> str:
    return text if cell_len(text) <= most else set_cell_size(text, most - 1).rstrip() + "…"


def text_of(value: pa.Scalar) -> str:
    """A value in few words: empty for null, and the bare value for a list of one.

    >>> [text_of(value) for value in pa.array([[1.5], [], None, [1, 2]])]
    ['1.5', '[]', '', '[1, 2]']
    """
    if not value.is_valid:
        return ""
    if _is_list(value.type) and len(value.values) == 1:
        return _text(value.values[0])
    return _text(value)


def print_objects(batches: Iterable[pa.RecordBatch]) -> None:
    """Print each row as a JSON object on a line, by :func:`~chunkmill.engine.chunk.json_of`."""
    for batch in batches:
        for row in range(len(batch)):
            echo_json({name: json_of(batch.column(at)[row]) for at, name in enumerate(batch.schema.names)})


def _text(value: pa.Scalar) -> str:
    kind = value.type
    if not value.is_valid:
        return "null"
    if _is_list(kind):
        parts = [_text(item) for item in islice(value.values, _MOST_VALUES)]
        more = len(value.values) - len(parts)
        return f"[{', '.join(parts)}{f', … {more:,} more' if more else ''}]"
    if pa.types.is_struct(kind):
        return f"{{{', '.join(f'{name}: {_text(item)}' for name, item in value.items())}}}"
    if pa.types.is_timestamp(kind):
        return _time(value.cast(pa.timestamp("ns", kind.tz)).value)
    if pa.types.is_duration(kind):
        return f"{value.cast(pa.duration('ns')).value / 1e9:.6f} s"
    if pa.types.is_floating(kind):
        return f"{value.as_py():.6g}"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return f"{counted(len(value.as_py()), 'byte')}"
    return str(value.as_py())


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _time(nanoseconds: int) -> str:
    """A time for people; one outside the calendar stays a number."""
    try:
        instant = datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{nanoseconds} ns"
    digits = f"{nanoseconds % 1_000_000_000:09d}".removesuffix("000")
    return f"{instant:%Y-%m-%d %H:%M:%S}.{digits}"


def show_plan(answer: AnswerRows) -> None:
    """Print which segments, chunks and bytes would be read."""
    explanation = answer.explanation()
    of_chunks, of_bytes = sum(s.of_chunks for s in explanation.segments), sum(s.of_bytes for s in explanation.segments)
    chunks, num_bytes = sum(s.chunks for s in explanation.segments), sum(s.num_bytes for s in explanation.segments)
    click.echo(
        f"reads {len(explanation.segments):,} of {counted(len(answer.segments), 'segment')}, {chunks:,} of "
        f"{counted(of_chunks, 'chunk')}, {part_of_size(num_bytes, of_bytes)}"
    )
    if explanation.filter is not None:
        click.echo(f"by the filter {one_line(explanation.filter)}")
    if not explanation.segments:
        return
    click.echo()
    rows = [
        (s.segment_id, f"{s.chunks:,} of {s.of_chunks:,}", part_of_size(s.num_bytes, s.of_bytes))
        for s in explanation.segments[:_SEGMENTS]
    ]
    print_columns([Heading("segment"), Heading("chunks", 0, is_number=True), Heading("bytes", 0, is_number=True)], rows)
    if len(explanation.segments) > _SEGMENTS:
        click.echo(f"and {len(explanation.segments) - _SEGMENTS:,} more segments")


def query_report(
    metrics: QueryMetrics | None, began: float, output: str | None, rows: int, num_bytes: int
) -> RunReport:
    """The report of a query that began at a Unix time and wrote or showed so many rows."""
    return RunReport(
        splits=0 if metrics is None else metrics.query_segments,
        chunks=0 if metrics is None else metrics.query_chunks,
        rows=rows,
        bytes_in=0 if metrics is None else metrics.fetch_bytes,
        bytes_out=num_bytes,
        seconds=time.time() - began,
        started=began,
        destination=output or "",
        query={} if metrics is None else metrics.to_dict(),
    )


def show_stats(metrics: QueryMetrics | None) -> None:
    """Print the cost of a query on stderr."""
    if metrics is None:
        click.echo("nothing was read", err=True)
        return
    click.echo(
        f"{counted(metrics.query_segments, 'segment')}, {counted(metrics.query_chunks, 'chunk')} of "
        f"{size(metrics.query_bytes)} needed; {size(metrics.fetch_bytes)} read by "
        f"{counted(metrics.fetch_requests, 'request')}",
        err=True,
    )
    first = metrics.time_to_first_chunk
    delay = "" if first is None else f", first rows after {duration(first.total_seconds())}"
    click.echo(f"{duration(metrics.total_duration.total_seconds())}{delay}", err=True)


_MEANINGS = {
    "plan": "sources opened and divided",
    "start": "until the first task began",
    "read": "read from the source, decompressed and checked",
    "decode": "decoded into columns",
    "operate": "filters, lenses, functions",
    "encode": "encoded and compressed",
    "write": "written to parts, and synced",
    "other": "the rest of the tasks",
    "commit": "parts joined and committed",
}


def print_stats(report: RunReport, chosen: str = "") -> None:
    """Print the report on stderr; ``chosen``: why ``auto`` chose the executor."""
    console = Console(stderr=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("phase")
    table.add_column("seconds", justify="right")
    table.add_column("", justify="right")
    table.add_column("")
    total = sum(seconds for _, seconds in report.shares()) or 1.0
    for name, seconds in report.shares():
        table.add_row(name, f"{seconds:.3f}", f"{100 * seconds / total:.0f} %", _MEANINGS[name])
    console.print(table)
    for line in [*_lines(report), *([f"executor {report.executor}; {chosen}"] if chosen else [])]:
        console.print(line, highlight=False, soft_wrap=True)


def _lines(report: RunReport) -> list[str]:
    """Figures below the table.

    >>> for line in _lines(RunReport(2, 18, 3513, 782_496, 1_204_000, 1.25, bytes_passed=700_000)):
    ...     print(line)
    2 tasks in 1.2 s, together 0.00 s; the longest took 0.0 times the median
    782.5 kB -> 1.2 MB, 700.0 kB of it passed through undecoded; 3,513 rows in 18 chunks
    """
    tasks = (
        f"{report.splits:,} tasks in {duration(report.seconds)}, together {duration(report.task_seconds)}; "
        f"the longest took {report.skew:.1f} times the median"
    )
    data = (
        f"{size(report.bytes_in)} -> {size(report.bytes_out)}, {size(report.bytes_passed)} of it passed "
        f"through undecoded; {rows_in_chunks(report.rows, report.chunks)}"
    )
    read = f"tasks read {size(report.bytes_read)} in {counted(report.requests, 'request')}"
    return [tasks, data, *([read] if report.requests else [])]
