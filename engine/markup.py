"""HTML that notebooks show of an object: panels of facts, tables and bars, as text.

All text is escaped and bounded: long values and tables are visibly cut. There is no script, and nothing is fetched.
Colours are mixed with those of the notebook, so that text is legible in every theme, light or dark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from .errors import ChunkmillError

MOST_ROWS: Final = 40
"""The most rows shown of a table."""

MOST_CHARACTERS: Final = 160
"""The most characters shown of a value."""

STYLE: Final = """
.chunkmill { --line: rgba(128,128,128,.32); --panel: rgba(128,128,128,.1); --track: rgba(128,128,128,.14);
  --start: #8b98a5; --plan: #7d8b99; --read: #4878b0; --decode: #2f9e8f; --operate: #d9a036; --encode: #b5567a;
  --write: #7c62b3; --other: #a3abb3; --commit: #6e7b88; --before: #7f97b0; --after: #2f8f80; }
.chunkmill.panel { font: 13px/1.45 system-ui, sans-serif; max-width: 76rem; overflow-x: auto; }
.chunkmill.panel > b { font-size: 1.08em; overflow-wrap: anywhere; }
.chunkmill p, .chunkmill ul { margin: .1rem 0 .35rem; }
.chunkmill .soft, .chunkmill p, .chunkmill th { opacity: .72; }
.chunkmill h2 { font-size: 1.05em; font-weight: 600; margin: 1.1rem 0 .4rem; }
.chunkmill .tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .5rem;
  margin: .6rem 0; }
.chunkmill .tile { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .45rem .7rem; }
.chunkmill .tile b { display: block; font-size: 1.25em; font-variant-numeric: tabular-nums; }
.chunkmill .strip { display: flex; height: 1.5rem; border-radius: 4px; overflow: hidden; background: var(--panel); }
.chunkmill .strip i { display: block; }
.chunkmill .legend { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; margin-top: .4rem; font-size: .93em; }
.chunkmill .legend span::before { content: ""; display: inline-block; width: .75rem; height: .75rem;
  border-radius: 2px; margin-right: .4rem; background: var(--c); }
.chunkmill.chunkmill table { border-collapse: collapse; margin: .3rem 0; font-size: .95em; table-layout: auto;
  font-variant-numeric: tabular-nums; }
.chunkmill.chunkmill table.wide { width: 100%; }
.chunkmill.chunkmill th { text-align: left; font-weight: 600; }
.chunkmill.chunkmill :is(td, th) { padding: .16rem .9rem .16rem 0; border: 0; border-bottom: 1px solid var(--line);
  text-align: left; vertical-align: top; max-width: 26rem; overflow-wrap: break-word; white-space: normal; }
.chunkmill.chunkmill :is(td, th).n { text-align: right; white-space: nowrap; }
.chunkmill.chunkmill :is(td.path, .grid td) { font-family: ui-monospace, monospace; font-size: .93em; }
.chunkmill.chunkmill .grid td { white-space: nowrap; }
.chunkmill.chunkmill .grid th i { display: block; font: italic .9em ui-monospace, monospace; font-weight: 400; }
.chunkmill.chunkmill td.bar { width: 38%; min-width: 7rem; vertical-align: middle; }
.chunkmill .bar i { display: block; height: .8rem; border-radius: 2px; background: var(--after); min-width: 1px; }
.chunkmill .bar i.before { background: var(--before); }
.chunkmill .bar .track { position: relative; display: block; height: .8rem; background: var(--track);
  border-radius: 2px; }
.chunkmill .track i { position: absolute; top: 0; min-width: 2px; }
.chunkmill pre { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .7rem 1rem;
  overflow-x: auto; font: .93em/1.5 ui-monospace, monospace; margin: 0; }
.chunkmill svg.chart { display: block; width: 100%; height: auto; }
.chunkmill svg.chart text { fill: currentColor; opacity: .72; font: 11px system-ui, sans-serif; }
.chunkmill ul { padding-left: 1.2rem; }
"""
"""The style of these panels, and of a report's page, which has the class ``chunkmill``, too."""


class Html(str):
    """Text that is already HTML, and is not escaped."""

    __slots__ = ()


Cell = str | int | None
"""A cell of a table: text, a number (right-aligned, with separators), :class:`Html`, or nothing."""

_QUANTITY: Final = re.compile(r"[\d.,]+( [A-Za-z]{1,3}| min.*| h.*)?")
_JOINER: Final = "\u200d"


def printable(text: str) -> str:
    """``text`` with invisible characters, and those that XML does not allow, replaced."""
    return "".join(c if c.isprintable() or c == _JOINER else "\ufffd" for c in text)


def escaped(text: str) -> str:
    """Return a text with HTML's special characters escaped."""
    from html import escape  # takes two milliseconds, and workers and commands do not need it

    return escape(text)


def shown(text: str, most: int = MOST_CHARACTERS) -> Html:
    """A text as HTML, on one line, cut to at most ``most`` characters.

    >>> shown("<b>&"), shown("aaaa bbbb", 5)
    ('&lt;b&gt;&amp;', 'aaaa…')
    """
    line = " ".join(text[: 4 * most].split())
    return Html(escaped(printable(line if len(line) <= most else line[: most - 1] + "…")))


def panel(title: str, facts: Iterable[str] = (), *body: str) -> str:
    """A panel: its ``title``, a line of ``facts``, and below it the ``body``, which is HTML already."""
    line = shown(", ".join(fact for fact in facts if fact), 1000)
    below = f"<p>{line}</p>" if line else ""
    top = f"<b>{shown(title)}</b>" if title else ""
    return f'<div class="chunkmill panel"><style>{STYLE}</style>\n{top}{below}\n' + "".join(body) + "</div>"


def panel_or_error(title: str, draw: Callable[[], str]) -> str:
    """Return the drawing of an object by ``draw``; if its file cannot be read, a panel with the error."""
    try:
        return draw()
    except ChunkmillError as error:
        return panel(title, [str(error)])


def table(
    head: Sequence[str | Html],
    rows: Iterable[Sequence[Cell]],
    count: int,
    *,
    kind: str = "",
    most: int = MOST_ROWS,
) -> str:
    """Return a table of the first ``most`` of ``rows``, out of ``count``; a line below it says how many are left out.

    Nothing is drawn of a table without rows. ``kind`` is its class in :data:`STYLE`.
    """
    if not count:
        return ""
    body = list(islice(rows, most))
    numeric = [bool(body) and all(map(_is_number, column)) for column in zip(*body, strict=True)] or [False] * len(head)
    top = "".join(f"<th{_class('n' if n else '')}>{_cell(name)}</th>" for name, n in zip(head, numeric, strict=True))
    lines = (
        "<tr>"
        + "".join(f"<td{_class(_kind(c, n))}>{_cell(c)}</td>" for c, n in zip(row, numeric, strict=True))
        + "</tr>"
        for row in body
    )
    left = count - len(body)
    more = f"<p>… and {left:,} more</p>" if left > 0 else ""
    return f"<table{_class(kind)}><tr>{top}</tr>{''.join(lines)}</table>{more}\n"


def _is_number(cell: Cell) -> bool:
    return cell is None or isinstance(cell, int) or _QUANTITY.fullmatch(cell) is not None


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _kind(cell: Cell, numeric: bool) -> str:
    if numeric:
        return "n"
    if isinstance(cell, Html):
        return "bar" if cell.startswith("<") else ""
    return "path" if isinstance(cell, str) and cell.startswith("/") else ""


def _cell(cell: Cell) -> str:
    if isinstance(cell, Html):
        return cell
    return "" if cell is None else f"{cell:,}" if isinstance(cell, int) else shown(cell)


def bar(part: float, tip: str = "") -> Html:
    """Return a bar as long as the ``part`` (0 to 1) of the longest."""
    return Html(f'<i style="width:{100 * min(max(part, 0.0), 1.0):.2f}%"{_tip(tip)}></i>')


def track(spans: Iterable[tuple[float, float]], tip: str = "") -> Html:
    """Bars on one line: each from a start to an end, both from 0 to 1. Bars that nearly touch are joined.

    >>> track([(0, 0.25), (0.251, 0.5), (0.9, 1)]).count("<i ")
    2
    """
    joined: list[list[float]] = []
    for start, end in sorted(spans):
        if joined and start - joined[-1][1] < _NARROWEST:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    drawn = "".join(f'<i style="left:{100 * a:.2f}%;width:{100 * (b - a):.2f}%"></i>' for a, b in joined)
    return Html(f'<span class="track"{_tip(tip)}>{drawn}</span>')


_NARROWEST: Final = 1 / 250
"""The smallest gap that is drawn, as a share of the line."""


def _tip(text: str) -> str:
    return f' title="{shown(text)}"' if text else ""
