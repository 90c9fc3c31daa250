"""The report on an export, and its page: figures, a row for each episode, staleness over time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from ..errors import UsageError, writing
from ..markup import Html, escaped, panel, shown, table
from ..reports import page
from ..units import counted, duration
from .lerobot_episodes import EpisodeAccount

_MOST_EPISODES: Final = 200
_MOST_PLOTS: Final = 50
_MOST_PLOTS_OF_PANELS: Final = 8
_WIDTH: Final = 1100
_HEIGHT: Final = 130
_LEFT: Final = 70
_BELOW: Final = 18
_COLOURS: Final = ("read", "operate", "encode", "decode", "write", "start")


@dataclass(frozen=True, slots=True, repr=False)
class ExportReport:
    """The result of an export: a report on each episode of this run, and the counts of the whole dataset.

    ``skipped`` lists the recordings that were already in the dataset, from the same source and with the same
    specification. ``removed`` lists those that were removed from it, because their source store no longer has them. A
    notebook shows the reports.
    """

    destination: str
    accounts: tuple[EpisodeAccount, ...]
    episodes: int
    frames: int
    skipped: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """The figures in a line.

        >>> ExportReport("training", (), 12, 3600, skipped=("drive-1", "drive-2"))
        ExportReport(training: 12 episodes, 3,600 frames in the dataset, 2 recordings already in it)
        """
        return f"ExportReport({self.destination}: {_subtitle(self)})"

    def _repr_html_(self) -> str:
        body = "\n".join(_body(self, _MOST_PLOTS_OF_PANELS)) if self.accounts else ""
        return panel(self.destination, [_subtitle(self)], body)


def check_account(path: str | os.PathLike[str]) -> Path:
    """Return the path for an export's report. Raises ``UsageError`` if it does not end with ``.html`` or ``.json``."""
    if Path(path).suffix not in (".html", ".json"):
        raise UsageError(
            "a report must be a .json or an .html file", path=str(path), hint="Choose one of these suffixes."
        )
    return Path(path)


def save_account(report: ExportReport, path: str | os.PathLike[str]) -> None:
    """Write the report on an export: as an HTML page if the name ends with ``.html``, else as JSON (``.json``).

    Raises ``UsageError`` for another suffix, and ``WriteError`` if it cannot be written.
    """
    target = check_account(path)
    text = account_page(report) if target.suffix == ".html" else json.dumps(asdict(report), indent=2)
    with writing(str(path)):
        target.write_text(text, encoding="utf-8")


def account_page(report: ExportReport) -> str:
    """Return the report as a page of HTML."""
    return page(report.destination, _subtitle(report), "\n".join(_body(report, _MOST_PLOTS)))


def _subtitle(report: ExportReport) -> str:
    skipped = f", {counted(len(report.skipped), 'recording')} already in it" if report.skipped else ""
    removed = f", {counted(len(report.removed), 'recording')} removed" if report.removed else ""
    return f"{counted(report.episodes, 'episode')}, {counted(report.frames, 'frame')} in the dataset{skipped}{removed}"


def _body(report: ExportReport, most_plots: int) -> Iterator[str]:
    accounts = report.accounts
    yield "<h2>Episodes of this run</h2>"
    head = ("recording", "start", "wanted", "written", "dropped", "re-encoded", "not written, because")
    rows = (
        (a.recording, f"{a.start / 1e9:.3f} s", a.wanted, a.written, a.dropped, a.reencoded, a.reason or "")
        for a in accounts
    )
    yield table(head, rows, len(accounts), kind="wide", most=_MOST_EPISODES)
    yield "<h2>Features</h2>"
    yield _features(accounts)
    yield "<h2>Staleness over time</h2>"
    yield "<p>The largest distance in time from a frame to its sample, in each hundredth of an episode.</p>"
    for account in islice(accounts, most_plots):
        title = f"{account.recording}, from {account.start / 1e9:.3f} s"
        yield f"<p>{shown(title)}</p>{staleness_chart(account)}"
    if len(accounts) > most_plots:
        yield f"<p>… and {len(accounts) - most_plots:,} more</p>"


def _features(accounts: Sequence[EpisodeAccount]) -> str:
    """Return a row for each feature, over all episodes."""
    names = dict.fromkeys(name for account in accounts for name in account.features)
    rows = []
    for name in names:
        facts = [account.features[name] for account in accounts if name in account.features]
        counts = [sum(getattr(fact, key) for fact in facts) for key in ("exact", "interpolated", "held", "missing")]
        stalest = max((fact.staleness for fact in facts), default=0)
        rows.append((name, *counts, f"{stalest / 1e6:,.1f} ms"))
    head = ("feature", "exact", "interpolated", "held", "missing", "stalest")
    return table(head, rows, len(rows), kind="wide", most=_MOST_EPISODES)


def staleness_chart(account: EpisodeAccount) -> Html:
    """Return a line for each feature: its staleness in milliseconds over the time of the episode."""
    most = max((max(values, default=0) for values in account.staleness.values()), default=0) or 1
    height = _HEIGHT + _BELOW
    shapes, legend = [_axes(most, (account.end - account.start) / 1e9)], ""
    for number, (name, values) in enumerate(account.staleness.items()):
        colour = f"var(--{_COLOURS[number % len(_COLOURS)]})"
        step = (_WIDTH - _LEFT) / max(len(values), 1)
        points = []
        for place, value in enumerate(values):  # a part has one value, so the line is a stair
            y = 4 + (_HEIGHT - 8) * (1 - value / most)
            points += [f"{_LEFT + place * step:.1f},{y:.1f}", f"{_LEFT + (place + 1) * step:.1f},{y:.1f}"]
        line = f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        largest = f"{name}: up to {max(values, default=0) / 1e6:,.1f} ms"
        shapes.append(f"<g><title>{escaped(largest)}</title>{line}</g>")
        legend += f'<span style="--c:{colour}">{shown(largest)}</span>'
    box = f'class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="staleness over time"'
    return Html(f'<svg {box}>{"".join(shapes)}</svg><div class="legend">{legend}</div>')


def _axes(most: int, seconds: float) -> str:
    lines = []
    for share in (0.0, 0.5, 1.0):
        y = 4 + (_HEIGHT - 8) * (1 - share)
        lines.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y}" y2="{y}" stroke="var(--line)"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{share * most / 1e6:,.1f} ms</text>'
        )
    for place in range(5):
        anchor = "start" if place == 0 else "end" if place == 4 else "middle"
        x = _LEFT + (_WIDTH - _LEFT) * place / 4
        text = duration(seconds * place / 4)
        lines.append(f'<text x="{x}" y="{_HEIGHT + _BELOW - 4}" text-anchor="{anchor}">{text}</text>')
    return "".join(lines)
