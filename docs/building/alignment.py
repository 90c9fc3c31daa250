"""The pictures of ``docs/alignment.md``: made-up samples, aligned by the same functions as those of an export."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from chunkmill.alignment import HELD, INTERPOLATED, MISSING, Alignment, Outside, Rule, align, frame_times

_STYLE = """<style>
.cm-align { color: #1c2430; --back: #ffffff }
.cm-align .back { fill: var(--back) }
.cm-align text { fill: currentColor; font: 13px system-ui, sans-serif }
.cm-align .soft { fill-opacity: .7; font-size: 12px }
.cm-align .line { stroke: #8794a3; stroke-width: 1 } .cm-align .way { stroke: #34998a; stroke-width: 2; fill: none }
.cm-align .sample { fill: #c98f2b } .cm-align .frame { fill: #34998a }
.cm-align .held { fill: var(--back); stroke: #34998a; stroke-width: 2 }
.cm-align .missing { stroke: #c0453c; stroke-width: 2.5; fill: none }
.cm-align .band { fill: rgba(52,153,138,.16) }
@media (prefers-color-scheme: dark) { .cm-align { color: #e6ebf1; --back: #12171d } }
</style>"""
_MS = 1_000_000
_SAMPLES = np.array([0, 38, 75, 112, 255, 290, 330]) * _MS
_FRAMES = frame_times(10 * _MS, 320 * _MS, 30)
_LEFT, _ROW, _WIDTH = 190, 74, 910


def rules(_: Path) -> str:
    """How each rule takes values of the same samples."""
    rows = [(rule.value, Alignment(rule)) for rule in (Rule.LATEST, Rule.NEAREST, Rule.LINEAR)]
    return _drawn("Samples above, frames below; a line goes from each frame to the samples it takes", rows)


def tolerance(_: Path) -> str:
    """What becomes of frames in a gap, by ``outside``."""
    rows = [
        (each.value, Alignment(Rule.NEAREST, 25 * _MS, each))
        for each in (Outside.HOLD, Outside.DROP_FRAME, Outside.DROP_EPISODE)
    ]
    return _drawn("Frames with no sample within the tolerance: held, dropped, or the whole episode dropped", rows)


def episode(_: Path) -> str:
    """The frames that an episode wants, and those that it can have."""
    tracks = {"camera": np.arange(60, 330, 33) * _MS, "joint states": np.arange(0, 262, 20) * _MS}
    first, last = max(t[0] for t in tracks.values()), min(t[-1] for t in tracks.values())
    lines = _head("The time of an episode, and the part of it in which every feature has samples", 134)
    for number, (name, times) in enumerate(tracks.items()):
        y = 24 + 30 * number
        lines.append(f'<text x="10" y="{y + 4}">{name}</text><path class="line" d="M{_LEFT - 10},{y} H{_WIDTH - 10}"/>')
        lines += [f'<circle class="sample" cx="{_x(t):.1f}" cy="{y}" r="4"/>' for t in times]
    width = _x(last) - _x(first)
    lines.append(f'<rect class="band" x="{_x(first):.1f}" y="10" width="{width:.1f}" height="84"/>')
    lines.append(f'<text x="10" y="88">frames</text><path class="line" d="M{_LEFT - 10},84 H{_WIDTH - 10}"/>')
    lines += [_frame(_x(t)) if first <= t <= last else _gone(_x(t), 84) for t in frame_times(20 * _MS, 320 * _MS, 30)]
    lines.append(
        '<text class="soft" x="10" y="126">filled: written; cross: dropped; band: every feature has samples</text>'
    )
    return "\n".join([*lines, "</svg>"]) + "\n"


def _frame(x: float) -> str:
    return f'<circle class="frame" cx="{x:.1f}" cy="84" r="5"/>'


def _gone(x: float, y: int) -> str:
    return f'<path class="missing" d="M{x - 4:.1f},{y - 4} l8,8 m0,-8 l-8,8"/>'


def _head(title: str, height: int) -> list[str]:
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="cm-align" {size} role="img">',
        f"<title>{title}</title>",
        _STYLE,
        '<rect class="back" width="100%" height="100%"/>',
    ]


def _drawn(title: str, rows: list[tuple[str, Alignment]]) -> str:
    height = 34 + _ROW * len(rows)
    lines = _head(title, height)
    for number, (name, alignment) in enumerate(rows):
        lines += _row(name, alignment, 26 + _ROW * number)
    legend = "filled: taken or interpolated; open: held; cross: no value; band: within the tolerance of a sample"
    lines.append(f'<text class="soft" x="10" y="{height - 8}">{legend}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _row(name: str, alignment: Alignment, top: int) -> list[str]:
    low = top + 34
    aligned = align(_SAMPLES, _FRAMES, alignment)
    lines = [f'<text x="10" y="{top + 22}">{name}</text>']
    if alignment.tolerance is not None:
        width = 2 * alignment.tolerance / _MS * 2
        lines += [
            f'<rect class="band" x="{_x(t) - width / 2:.1f}" y="{top}" width="{width:.1f}" height="34"/>'
            for t in _SAMPLES
        ]
    lines += [f'<path class="line" d="M{_LEFT - 10},{y} H{_WIDTH - 10}"/>' for y in (top, low)]
    for at, frame in enumerate(_FRAMES):
        outcome, x = aligned.outcome[at], _x(frame)
        is_gone = outcome == MISSING or (
            alignment.outside is Outside.DROP_EPISODE and (aligned.outcome == MISSING).any()
        )
        sources = (aligned.first[at], aligned.second[at]) if outcome == INTERPOLATED else (aligned.first[at],)
        if is_gone:
            lines.append(_gone(x, low))
            continue
        lines += [f'<path class="way" d="M{_x(_SAMPLES[s]):.1f},{top} L{x:.1f},{low}"/>' for s in sources]
        kind = "held" if outcome == HELD else "frame"
        lines.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{low}" r="5"/>')
    return lines + [f'<circle class="sample" cx="{_x(t):.1f}" cy="{top}" r="5"/>' for t in _SAMPLES]


def _x(time: int) -> float:
    return _LEFT + time / _MS * 2
