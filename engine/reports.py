"""Reports of runs: figures, times by phase, and an HTML page that shows them."""

from __future__ import annotations

import heapq
import json
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from .errors import UsageError, writing
from .markup import STYLE, bar, escaped, panel, shown, table
from .task_context import PHASES
from .units import counted, duration, rows_in_chunks, size


@dataclass(frozen=True, slots=True)
class SizeHistogram:
    """Numbers of chunks by their bytes: ``counts[n]`` counts sizes from 2^(n-1) to 2^n - 1, ``counts[0]`` those of 0.

    >>> SizeHistogram.of([0, 1, 1000, 1023, 1024]).counts
    {0: 1, 1: 1, 10: 2, 11: 1}
    """

    counts: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, sizes: Iterable[int]) -> SizeHistogram:
        """Count sizes in bytes."""
        return cls(dict(sorted(Counter(size.bit_length() for size in sizes).items())))

    @classmethod
    def sum(cls, histograms: Iterable[SizeHistogram]) -> SizeHistogram:
        """The sum of several histograms."""
        total: Counter[int] = Counter()
        for histogram in histograms:
            total.update(histogram.counts)
        return cls(dict(sorted(total.items())))

    @property
    def chunks(self) -> int:
        """Number of sizes counted."""
        return sum(self.counts.values())


REPORT_VERSION: Final = 1
"""The version of the JSON format. New fields do not change it."""


@dataclass(frozen=True, slots=True)
class TaskReport:
    """One task. ``start`` and ``seconds`` are wall time, counted from the start of the run.

    ``phases`` are seconds by phase (:data:`~chunkmill.engine.task_context.PHASES`); the rest of ``seconds`` belongs to
    no phase. ``bytes_in`` is the size of the split in its source, ``bytes_out`` that of the part, of which
    ``bytes_passed`` were copied without being decoded. ``bytes_read`` were read from files and object stores, in
    ``requests``, without bytes that are mapped into memory, or copied by the kernel. ``worker`` is the process that ran
    the task, ``host:pid``.
    """

    index: int
    label: str
    start: float
    seconds: float
    phases: Mapping[str, float]
    chunks: int
    rows: int
    bytes_in: int
    bytes_out: int
    bytes_passed: int
    worker: str
    bytes_read: int = 0
    requests: int = 0


@dataclass(frozen=True, slots=True)
class EntityReport:
    """Totals of one entity. ``bytes`` is the compressed size of its messages."""

    entity_path: str
    chunks: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, repr=False)
class RunReport:
    """The figures of a finished run. A notebook shows them like the page of :func:`save_report`.

    ``bytes_in`` is the size of the sources, ``bytes_out`` the size of the destination. Tasks read ``bytes_read`` bytes
    in ``requests`` requests. Bytes that are mapped into memory, or copied by the kernel, do not count.

    ``started`` is the Unix time at which the run began, ``seconds`` its length. ``phases`` has the seconds of ``plan``
    (opening and dividing sources) and ``commit`` on the driver, and of each phase of the tasks, summed over all tasks.
    ``start`` is the time from the plan to the first task; if Spark was not running, it includes the start of the
    session. ``sizes_in`` are the sizes of the chunks from the sources: in memory or, if they were not decoded, as
    stored. ``sizes_out`` are the sizes of the written chunks before compression. ``query`` has the metrics by name if
    the run was a query; durations are in seconds.
    """

    splits: int
    chunks: int
    rows: int
    bytes_in: int
    bytes_out: int
    seconds: float
    warnings: tuple[str, ...] = field(default=())
    bytes_passed: int = 0
    started: float = 0.0
    executor: str = ""
    destination: str = ""
    plan: str = ""
    phases: Mapping[str, float] = field(default_factory=dict)
    tasks: Sequence[TaskReport] = field(default=(), repr=False)
    entities: Sequence[EntityReport] = field(default=(), repr=False)
    sizes_in: SizeHistogram = field(default_factory=SizeHistogram, repr=False)
    sizes_out: SizeHistogram = field(default_factory=SizeHistogram, repr=False)
    query: Mapping[str, Any] = field(default_factory=dict, repr=False)
    bytes_read: int = 0
    requests: int = 0

    @property
    def skew(self) -> float:
        """The time of the longest task divided by that of the median task: 1 if all are equal, 0 without tasks."""
        seconds = [task.seconds for task in self.tasks]
        middle = statistics.median(seconds) if seconds else 0.0
        return max(seconds) / middle if middle > 0 else 0.0

    @classmethod
    def joined(cls, reports: Sequence[RunReport], destination: str, began: float, seconds: float) -> RunReport:
        """Combine several runs into one report, with summed figures and all tasks on one time axis.

        ``began`` is the Unix time at which the runs began, and ``seconds`` the time they took together. ``start`` is
        the time before the first task, without planning.
        """
        first = reports[0]
        entities: dict[str, list[int]] = {}
        for entity in (e for report in reports for e in report.entities):
            counts = entities.setdefault(entity.entity_path, [0, 0, 0])
            for i, n in enumerate((entity.chunks, entity.rows, entity.bytes)):
                counts[i] += n
        moved = [(task, r.started - began) for r in reports for task in r.tasks]
        names = dict.fromkeys(name for report in reports for name in report.phases)
        phases = {name: sum(r.phases.get(name, 0.0) for r in reports) for name in names}
        first_task = min((task.start + shift for task, shift in moved), default=0.0)
        planned = sum(r.phases.get("plan", 0.0) for r in reports if r.started - began < first_task)
        phases["start"] = max(0.0, first_task - planned)
        return cls(
            splits=sum(r.splits for r in reports),
            chunks=sum(r.chunks for r in reports),
            rows=sum(r.rows for r in reports),
            bytes_in=sum(r.bytes_in for r in reports),
            bytes_out=sum(r.bytes_out for r in reports),
            seconds=seconds,
            warnings=tuple(dict.fromkeys(text for r in reports for text in r.warnings)),
            bytes_passed=sum(r.bytes_passed for r in reports),
            bytes_read=sum(r.bytes_read for r in reports),
            requests=sum(r.requests for r in reports),
            started=began,
            executor=first.executor,
            destination=destination,
            plan="\n".join(r.plan for r in reports),
            phases=phases,
            tasks=[replace(t, index=i, start=t.start + shift) for i, (t, shift) in enumerate(moved)],
            entities=sorted(
                (EntityReport(path, *counts) for path, counts in entities.items()),
                key=lambda e: (-e.bytes, e.entity_path),
            ),
            sizes_in=SizeHistogram.sum(r.sizes_in for r in reports),
            sizes_out=SizeHistogram.sum(r.sizes_out for r in reports),
        )

    def __repr__(self) -> str:
        """The most important figures, in a line.

        >>> RunReport(2, 18, 3513, 782_496, 1_204_000, 1.25, destination="drive.rrd")
        RunReport(drive.rrd: 3,513 rows in 18 chunks, 782.5 kB -> 1.2 MB, 1.2 s)
        """
        into = f"{self.destination}: " if self.destination else ""
        warned = f", {counted(len(self.warnings), 'warning')}" if self.warnings else ""
        return (
            f"RunReport({into}{counted(self.rows, 'row')} in {counted(self.chunks, 'chunk')}, "
            f"{size(self.bytes_in)} -> {size(self.bytes_out)}, {duration(self.seconds)}{warned})"
        )

    def _repr_html_(self) -> str:
        return report_panel(self)

    def to_dict(self) -> dict[str, Any]:
        """All figures, as JSON data."""
        figures = asdict(self)
        for name in ("sizes_in", "sizes_out"):
            figures[name] = {str(bits): count for bits, count in figures[name]["counts"].items()}
        return {"version": REPORT_VERSION, **figures, "skew": self.skew}

    def to_json(self) -> str:
        """The report as JSON, with ``version`` 1."""
        return json.dumps(self.to_dict(), indent=1)

    @property
    def task_seconds(self) -> float:
        """Seconds of all tasks."""
        return sum(task.seconds for task in self.tasks)

    def shares(self) -> list[tuple[str, float]]:
        """The phases with their seconds, in the order of a run. ``other`` is the remaining time of the tasks."""
        order = ("plan", "start", *PHASES, "other", "commit")
        return [(name, self.phases[name]) for name in order if name in self.phases]


def save_report(report: RunReport, path: str | Path) -> None:
    """Write the report: as an HTML page if the name ends with ``.html``, else as JSON (``.json``).

    Raises ``UsageError`` for another suffix, and ``WriteError`` if it cannot be written.
    """
    target = Path(path)
    if target.suffix == ".html":
        text = report_page(report)
    elif target.suffix == ".json":
        text = report.to_json()
    else:
        raise UsageError("a report must be a .json or an .html file", path=str(path))
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
    title = f"{report.destination or 'Run'}: {rows_in_chunks(report.rows, report.chunks)}"
    return page(report.destination or "Run", _subtitle(report), "\n".join(_body(report)), title=title)


def page(heading: str, subtitle: str, body: str, *, title: str = "") -> str:
    """Return a page of HTML, whose ``body`` is HTML already."""
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{shown(title or heading)}</title>\n<style>{_STYLE}{STYLE}{_colours()}</style>\n"
        f'<body class="chunkmill">\n<h1>{escaped(heading)}</h1>\n<p>{escaped(subtitle)}</p>\n{body}\n'
    )


def report_panel(report: RunReport) -> str:
    """Return the report for a notebook: the page's content, without the plan."""
    charts = "\n".join(_body(replace(report, plan="")))
    return panel(report.destination or "Run", [_subtitle(report)], f"<style>{_colours()}</style>", charts)


def _colours() -> str:
    names = ("plan", "start", *PHASES, "other", "commit")
    return "".join(f".chunkmill .{name} {{ fill: var(--{name}); background: var(--{name}); }}\n" for name in names)


def _body(report: RunReport) -> Iterator[str]:
    yield '<div class="tiles">' + "".join(_tile(name, value) for name, value in _figures(report)) + "</div>"
    if report.warnings:
        yield _heading("Warnings")
        yield "<ul>" + "".join(f"<li>{escaped(text)}</li>" for text in report.warnings) + "</ul>"
    if report.phases:
        yield _heading("Where the time went")
        yield phase_strip(report.shares())
    if report.tasks:
        yield _heading(f"Tasks in time ({len(report.tasks):,})")
        yield timeline(report.tasks, report.seconds)
        yield "<p>A bar is a task, coloured by its phases. Tasks in different rows ran at the same time.</p>"
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
        yield f"<pre>{escaped(report.plan)}</pre>"


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
    if report.requests:
        yield "read by tasks", f"{size(report.bytes_read)} in {counted(report.requests, 'request')}"
    if report.seconds > 0:
        yield "source per second", f"{size(report.bytes_in / report.seconds)}/s"


def _tile(name: str, value: str) -> str:
    return f'<div class="tile"><b>{escaped(value)}</b><span class="soft">{escaped(name)}</span></div>'


def _heading(text: str) -> str:
    return f"<h2>{escaped(text)}</h2>"


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
    """Tasks on an axis of time; overlapping ones are below each other."""
    end = max([seconds, *(t.start + t.seconds for t in tasks)]) or 1.0
    lanes = _lanes(tasks)
    used = min(_MOST_LANES, max(lanes) + 1)
    height = used * (_LANE + _GAP) + 22
    shapes = [_grid(end, height)]
    for task, lane in zip(tasks, lanes, strict=True):
        if lane < used:
            shapes.append(_task(task, lane, end))
    hidden = sum(lane >= used for lane in lanes)
    more = f"<p>{hidden:,} simultaneous tasks are not drawn.</p>" if hidden else ""
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
    return f"<g><title>{escaped(facts)}</title>{''.join(shapes)}</g>"


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
