"""The report of a run as one page by itself: no script, nothing fetched."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from ..phases import PHASES
from ..units import duration, size
from .charts import bars, histogram_bars, phase_strip, timeline
from .report import RunReport

_MOST_ENTITIES: Final = 40

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5d6b7c; --line: #d8dee6; --back: #ffffff; --panel: #f5f7fa;
  --start: #b8c2cc; --plan: #7d8b99; --read: #4878b0; --decode: #2f9e8f; --operate: #d9a036; --encode: #b5567a;
  --write: #7c62b3; --other: #c3c9d0; --commit: #59636e; --before: #9fb3c8; --after: #2f7d6d; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf1; --soft: #9aa7b5; --line: #36404c; --back: #12171d;
  --panel: #1b222a; --other: #4a545f; --start: #5c6874; --commit: #93a0ad; --before: #4f6a86; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 2rem 1.5rem 4rem; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.35rem; margin: 0 0 .2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 2.4rem 0 .7rem; }
p, .soft { color: var(--soft); margin: 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .6rem; margin-top: 1.2rem; }
.tile { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .55rem .8rem; }
.tile b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.strip { display: flex; height: 1.6rem; border-radius: 4px; overflow: hidden; background: var(--panel); }
.strip i { display: block; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; margin-top: .5rem; font-size: .88rem; }
.legend span::before { content: ""; display: inline-block; width: .75rem; height: .75rem; border-radius: 2px;
  margin-right: .4rem; background: var(--c); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .9rem; }
th { text-align: left; font-weight: 600; color: var(--soft); }
td, th { padding: .18rem .6rem .18rem 0; border-bottom: 1px solid var(--line); vertical-align: middle; }
td.n, th.n { text-align: right; white-space: nowrap; }
td.path { overflow-wrap: anywhere; max-width: 24rem; font-family: ui-monospace, monospace; font-size: .84rem; }
td.bar { width: 38%; }
.bar i { display: block; height: .8rem; border-radius: 2px; background: var(--after); min-width: 1px; }
.bar i.before { background: var(--before); }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .8rem 1rem;
  overflow-x: auto; font: .84rem/1.5 ui-monospace, monospace; margin: 0; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
ul { margin: 0; padding-left: 1.2rem; }
"""


def report_page(report: RunReport) -> str:
    """A page of HTML that shows the report: figures, phases, tasks in time, entities, chunk sizes, the plan."""
    title = f"{report.destination or 'Run'}: {report.rows:,} rows in {report.chunks:,} chunks"
    colours = "".join(f".{name} {{ fill: var(--{name}); background: var(--{name}); }}\n" for name in _coloured())
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{colours}</style>\n<body>\n" + "\n".join(_body(report)) + "\n"
    )


def _coloured() -> tuple[str, ...]:
    return ("plan", "start", *PHASES, "other", "commit")


def _body(report: RunReport) -> Iterator[str]:
    yield f"<h1>{escape(report.destination or 'Run')}</h1>"
    yield f"<p>{escape(_subtitle(report))}</p>"
    yield '<div class="tiles">' + "".join(_tile(name, value) for name, value in _figures(report)) + "</div>"
    if report.warnings:
        yield _heading("Warnings")
        yield "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in report.warnings) + "</ul>"
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
    if report.plan:
        yield _heading("Plan")
        yield f"<pre>{escape(report.plan)}</pre>"


def _subtitle(report: RunReport) -> str:
    parts = [f"executor {report.executor}"] if report.executor else []
    parts.append(f"{report.splits:,} splits")
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
    shown = [(e.entity_path, e.rows, e.chunks, e.bytes) for e in report.entities[:_MOST_ENTITIES]]
    rest = report.entities[_MOST_ENTITIES:]
    if rest:
        sums = (sum(e.rows for e in rest), sum(e.chunks for e in rest), sum(e.bytes for e in rest))
        shown.append((f"{len(rest):,} more", *sums))
    return bars(shown)
