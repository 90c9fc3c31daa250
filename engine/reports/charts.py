"""The drawings of a report's page."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from ..phases import PHASES
from ..units import duration, size
from .histogram import SizeHistogram
from .report import TaskReport

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
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="tasks in time">{"".join(shapes)}</svg>{more}'


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
    body = "".join(
        f'<tr><td class="path">{escape(path)}</td><td class="n">{count:,}</td><td class="n">{chunks:,}</td>'
        f'<td class="n">{size(num_bytes)}</td>'
        f'<td class="bar"><i style="width:{100 * num_bytes / largest:.2f}%"></i></td></tr>'
        for path, count, chunks, num_bytes in rows
    )
    head = '<tr><th>entity</th><th class="n">rows</th><th class="n">chunks</th><th class="n">bytes</th><th></th></tr>'
    return f"<table>{head}{body}</table>"


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
        f"<table>{head}{body}</table>"
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
