"""The report of a run of ``lake_hour.py``: a page of HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

WIDTH, HEIGHT, LEFT, FOOT = 760, 130, 60, 18
STYLE: Final = """
body { margin: 0 auto; max-width: 56rem; padding: 2rem 1rem; background: #fff; color: #1c2430;
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem } h2 { font-size: 1rem; margin: 1.6rem 0 .3rem }
table { border-collapse: collapse } td, th { padding: .15rem .9rem .15rem 0; text-align: right }
td:first-child, th:first-child { text-align: left }
svg { display: block; width: 100% } text { font: 11px system-ui; fill: #5b6675 }
.line { fill: none; stroke: #2368a0; stroke-width: 1.5 } .kill { stroke: #c2402a; stroke-dasharray: 2 3 }
.axis { stroke: #ccd3db } .wrong { color: #b3261e }
"""


def page(run: Mapping[str, Any]) -> str:
    """The page: what went wrong, figures, rates of each process, versions and memory in time, and the kills."""
    wrong: list[str] = run["wrong"]
    title = f"A lake for {run['seconds'] / 60:.0f} minutes: {run['drives']:,} recordings, {len(run['kills'])} kills"
    end, kills = run["seconds"], [at for at, _ in run["kills"]]
    parts = [
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">',
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n<h1>{escape(title)}</h1>",
        "<p>Nothing is wrong.</p>" if not wrong else "".join(f'<p class="wrong">{escape(text)}</p>' for text in wrong),
        _table(("process", "times", "of", "refused", "restarts", "seconds, half of them within"), run["roles"]),
        f"<p>Executor {escape(run['executor'])}. A red line is a kill.</p>",
    ]
    for name, series in run["series"].items():
        parts += [f"<h2>{escape(name)}</h2>", chart(series, end, kills)]
    parts += ["<h2>Kills</h2>", _table(("second", "process"), [(f"{at:.0f}", name) for at, name in run["kills"]])]
    return "\n".join(parts) + "\n"


def chart(series: Sequence[tuple[float, float]], end: float, kills: Sequence[float]) -> str:
    """A line of values in time."""
    top = max((value for _, value in series), default=1.0) or 1.0

    def x(at: float) -> float:
        return LEFT + (WIDTH - LEFT) * at / max(end, 1e-9)

    def y(value: float) -> float:
        return (HEIGHT - FOOT) * (1 - value / top) + 2

    points = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in series)
    lines = "".join(f'<line class="kill" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="2" y2="{y(0):.1f}"/>' for at in kills)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH}" y1="{y(0):.1f}" y2="{y(0):.1f}"/>{lines}'
        f'<polyline class="line" points="{points}"/>'
        f'<text x="{LEFT - 6}" y="12" text-anchor="end">{top:,.0f}</text>'
        f'<text x="{LEFT - 6}" y="{y(0):.1f}" text-anchor="end">0</text>'
        f'<text x="{LEFT}" y="{HEIGHT - 3}">0 s</text>'
        f'<text x="{WIDTH}" y="{HEIGHT - 3}" text-anchor="end">{end:,.0f} s</text></svg>'
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    cells = ["<tr>" + "".join(f"<th>{escape(name)}</th>" for name in head) + "</tr>"]
    cells += ["<tr>" + "".join(f"<td>{escape(str(value))}</td>" for value in row) + "</tr>" for row in rows]
    return f"<table>{''.join(cells)}</table>"
