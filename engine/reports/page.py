"""Reports as files: JSON, or one page by itself, which runs no script and fetches nothing."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Final

from ..errors import UsageError, writing
from ..markup import STYLE, bar, panel, shown, table
from ..task_context import PHASES
from ..units import counted, duration, size
from .report import RunReport, SizeHistogram, TaskReport


def save_report(report: RunReport, path: str | Path) -> None:
    """Write the report: as a page that shows it where the name ends with ``.html``, else as JSON (``.json``).

    Raises ``UsageError`` for another ending, ``WriteError`` where it cannot be written.
    """
    target = Path(path)
    if target.suffix == ".html":
        text = report_page(report)
    elif target.suffix == ".json":
        text = report.to_json()
    else:
        raise UsageError("a report is a .json or an .html file", path=str(path))
    with writing(str(path)):
        target.write_text(text, encoding="utf-8")


_MOST_ENTITIES: Final = 40

_STYLE: Final = """
:root { color-scheme: light dark; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 2rem 1.5rem 4rem; background: #ffffff; color: #1c2430;
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.35rem; margin: 0 0 .2rem; overflow-wrap: anywhere; }
@media (prefers-color-scheme: dark) { body { background: #12171d; color: #e6ebf1; } }
"""


def report_page(report: RunReport) -> str:
    """A page of HTML that shows the report: figures, phases, tasks in time, entities, chunk sizes, the plan."""
    title = f"{report.destination or 'Run'}: {report.rows:,} rows in {report.chunks:,} chunks"
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{shown(title)}</title>\n<style>{_STYLE}{STYLE}{_colours()}</style>\n"
        f'<body class="chunkmill">\n<h1>{escape(report.destination or "Run")}</h1>\n'
        f"<p>{escape(_subtitle(report))}</p>\n" + "\n".join(_body(report)) + "\n"
    )


def report_panel(report: RunReport) -> str:
    """The same, without the plan, as a notebook shows it."""
    charts = "\n".join(_body(replace(report, plan="")))
    return panel(report.destination or "Run", [_subtitle(report)], f"<style>{_colours()}</style>", charts)


def _colours() -> str:
    names = ("plan", "start", *PHASES, "other", "commit")
    return "".join(f".chunkmill .{name} {{ fill: var(--{name}); background: var(--{name}); }}\n" for name in names)


def _body(report: RunReport) -> Iterator[str]:
    yield '<div class="tiles">' + "".join(_tile(name, value) for name, value in _figures(report)) + "</div>"
    if report.warnings:
        yield _heading("Warnings")
        yield "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in report.warnings) + "</ul>"
    if report.phases:
        yield _heading("Where the time went")
        yield phase_strip(report.shares())
    if report.tasks:
        yield _heading(f"Tasks in time ({len(report.tasks):,})")
        yield timeline(report.tasks, report.seconds)
        yield "<p>A bar is a task, coloured by its phases' shares; a row is one that ran beside the others.</p>"
    if report.entities:
        yield _heading("Bytes by entity")
        yield _entities(report)
    if report.sizes_out.chunks or report.sizes_in.chunks:
        yield _heading("Chunk sizes, before and after")
        yield histogram_bars(report.sizes_in, report.sizes_out)
    if report.query:
        yield _heading("Query")
        rows = [(name, _metric(value)) for name, value in report.query.items()]
        yield table(("metric", "value"), rows, len(rows))
    if report.plan:
        yield _heading("Plan")
        yield f"<pre>{escape(report.plan)}</pre>"


def _metric(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _subtitle(report: RunReport) -> str:
    parts = [f"executor {report.executor}"] if report.executor else []
    parts.append(counted(report.splits, "split"))
    if len(report.tasks) > 1:
        parts.append(f"skew {report.skew:.2f} (longest task over the median one)")
    return ", ".join(parts)


def _figures(report: RunReport) -> Iterator[tuple[str, str]]:
    yield "time", duration(report.seconds)
    yield "rows", f"{report.rows:,}"
    yield "chunks", f"{report.chunks:,}"
    yield "bytes in", size(report.bytes_in)
    yield "bytes out", size(report.bytes_out)
    yield "passed through undecoded", size(report.bytes_passed)
    if report.seconds > 0:
        yield "source per second", f"{size(report.bytes_in / report.seconds)}/s"


def _tile(name: str, value: str) -> str:
    return f'<div class="tile"><b>{escape(value)}</b><span class="soft">{escape(name)}</span></div>'


def _heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def _entities(report: RunReport) -> str:
    first = [(e.entity_path, e.rows, e.chunks, e.bytes) for e in report.entities[:_MOST_ENTITIES]]
    rest = report.entities[_MOST_ENTITIES:]
    if rest:
        sums = (sum(e.rows for e in rest), sum(e.chunks for e in rest), sum(e.bytes for e in rest))
        first.append((f"{len(rest):,} more", *sums))
    return bars(first)


_WIDTH: Final = 1100
_LANE: Final = 18
_GAP: Final = 4
_MOST_LANES: Final = 64
_SMALLEST: Final = 0.75


def phase_strip(shares: Sequence[tuple[str, float]]) -> str:
    """One bar of all phases, and a legend with their seconds."""
    total = sum(seconds for _, seconds in shares) or 1.0
    parts = "".join(
        f'<i class="{name}" style="width:{100 * seconds / total:.3f}%" title="{name}: {duration(seconds)}"></i>'
        for name, seconds in shares
        if seconds > 0
    )
    legend = "".join(
        f'<span style="--c:var(--{name})">{name} {duration(seconds)} ({100 * seconds / total:.0f} %)</span>'
        for name, seconds in shares
    )
    return f'<div class="strip">{parts}</div><div class="legend">{legend}</div>'


def timeline(tasks: Sequence[TaskReport], seconds: float) -> str:
    """Tasks on an axis of time, those that overlap below each other."""
    end = max([seconds, *(t.start + t.seconds for t in tasks)]) or 1.0
    lanes = _lanes(tasks)
    used = min(_MOST_LANES, max(lanes) + 1)
    height = used * (_LANE + _GAP) + 22
    shapes = [_grid(end, height)]
    for task, lane in zip(tasks, lanes, strict=True):
        if lane < used:
            shapes.append(_task(task, lane, end))
    hidden = sum(lane >= used for lane in lanes)
    more = f"<p>{hidden:,} tasks that ran beside these are not drawn.</p>" if hidden else ""
    box = f'class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="tasks in time"'
    return f"<svg {box}>{''.join(shapes)}</svg>{more}"


def _lanes(tasks: Sequence[TaskReport]) -> list[int]:
    """The row of each task: the first that is free when it starts."""
    lanes = [0] * len(tasks)
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    count = 0
    for i in sorted(range(len(tasks)), key=lambda i: tasks[i].start):
        while busy and busy[0][0] <= tasks[i].start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, count = count, count + 1
        lanes[i] = lane
        heapq.heappush(busy, (tasks[i].start + tasks[i].seconds, lane))
    return lanes


def _task(task: TaskReport, lane: int, end: float) -> str:
    """A bar in the colours of its phases, each as wide as its share."""
    x, y = _WIDTH * task.start / end, lane * (_LANE + _GAP)
    width = max(_WIDTH * task.seconds / end, _SMALLEST)
    facts = f"{task.label}: {duration(task.seconds)}, {task.rows:,} rows, {size(task.bytes_in)} in, {task.worker}"
    shapes = [f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_LANE}" class="other"/>']
    at = x
    for name in PHASES:
        part = width * _share(task.phases, name, task.seconds)
        if part > 0:
            shapes.append(f'<rect x="{at:.2f}" y="{y}" width="{part:.2f}" height="{_LANE}" class="{name}"/>')
            at += part
    return f"<g><title>{escape(facts)}</title>{''.join(shapes)}</g>"


def _share(phases: Mapping[str, float], name: str, seconds: float) -> float:
    return min(1.0, phases.get(name, 0.0) / seconds) if seconds > 0 else 0.0


def _grid(end: float, height: int) -> str:
    lines = []
    for i in range(5):
        x = _WIDTH * i / 4
        anchor = "start" if i == 0 else "end" if i == 4 else "middle"
        lines.append(
            f'<line x1="{x}" x2="{x}" y1="0" y2="{height - 16}" stroke="var(--line)"/>'
            f'<text x="{x}" y="{height - 3}" text-anchor="{anchor}">{duration(end * i / 4)}</text>'
        )
    return "".join(lines)


def bars(rows: Sequence[tuple[str, int, int, int]]) -> str:
    """Entities with rows, chunks and bytes, the bytes as bars."""
    largest = max((row[3] for row in rows), default=0) or 1
    cells = (
        (path, count, chunks, size(num_bytes), bar(num_bytes / largest)) for path, count, chunks, num_bytes in rows
    )
    return table(("entity", "rows", "chunks", "bytes", ""), cells, len(rows), kind="wide", most=len(rows))


def histogram_bars(before: SizeHistogram, after: SizeHistogram) -> str:
    """Numbers of chunks by size, before above after in each row."""
    sizes = sorted({*before.counts, *after.counts})
    if not sizes:
        return ""
    largest = max([*before.counts.values(), *after.counts.values()])
    body = ""
    for bits in range(sizes[0], sizes[-1] + 1):
        was, now = before.counts.get(bits, 0), after.counts.get(bits, 0)
        drawn = "".join(
            f'<i{kind} style="width:{100 * count / largest:.2f}%"></i>' if count else ""
            for count, kind in ((was, ' class="before"'), (now, ""))
        )
        label = "0 B" if bits == 0 else f"below {_power(bits)}"
        body += (
            f'<tr><td>{label}</td><td class="n">{was:,}</td><td class="n">{now:,}</td><td class="bar">{drawn}</td></tr>'
        )
    head = '<tr><th>size</th><th class="n">before</th><th class="n">after</th><th></th></tr>'
    return (
        f'<table class="wide">{head}{body}</table>'
        '<div class="legend"><span style="--c:var(--before)">from the sources</span>'
        '<span style="--c:var(--after)">written</span></div>'
    )


def _power(bits: int) -> str:
    """2^bits bytes.

    >>> _power(9), _power(10), _power(21)
    ('512 B', '1 KiB', '2 MiB')
    """
    steps = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    return f"{1 << bits % 10} {steps[bits // 10]}"
