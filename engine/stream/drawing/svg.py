"""A plan as a picture: one SVG by itself, no script, nothing fetched, legible on light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from ..plan import Node
from .plan_layout import Arrow, Box, Payloads, Points, Rectangle, graph_of, lines_of, picture_of, printable

_STYLE: Final = """
.back { fill: #ffffff } text { fill: #1c2430; font: 13px system-ui, sans-serif } .soft { fill: #5d6b7c }
.kind { font-weight: 600 } .detail, .soft { font: 12px ui-monospace, monospace }
.box { fill: #f5f7fa; stroke: #8794a3; stroke-width: 1.2 }
.decodes .box { fill: #fbf0d9; stroke: #b9801f } .passes .box { fill: #e3f3f0; stroke: #2f8f80 }
.way + text { paint-order: stroke; stroke: #ffffff; stroke-width: 4 }
.way { fill: none; stroke: #8794a3; stroke-width: 1.5 } .tip { fill: #8794a3 }
@media (prefers-color-scheme: dark) { .back { fill: #12171d } text { fill: #e6ebf1 } .soft { fill: #9aa7b5 }
.way + text { stroke: #12171d }
.box { fill: #1b222a } .decodes .box { fill: #3a2d12; stroke: #d9a036 }
.passes .box { fill: #12302c; stroke: #3aa997 } }
"""
_CLASS: Final = {Payloads.DECODED: "step decodes", Payloads.PASSED: "step passes", Payloads.NONE: "step"}
_TIP: Final = 7.0
_SMALL: Final = 6.6
"""Width of a character of an arrow's label."""


def draw_plan(sink: Node, title: str) -> str:
    """The plan behind ``sink`` as the text of an SVG: sources on the left, the output on the right.

    A step stands there once, however many ways lead through it. Long labels are shortened, and whole in a tooltip.
    """
    graph = graph_of(sink)
    picture = picture_of(graph)
    width, height = max(picture.width, 320.0), picture.height
    shapes = [_way(arrow, points) for arrow, points in zip(graph.arrows, picture.lines, strict=True)]
    shapes += [_step(box, place) for box, place in zip(graph.boxes, picture.places, strict=True)]
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.1f} {height:.1f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n"
        f'<defs><marker id="tip" markerUnits="userSpaceOnUse" markerWidth="{_TIP}" markerHeight="{_TIP}" refX="{_TIP}" '
        f'refY="{_TIP / 2}" orient="auto"><path class="tip" d="M0,0 L{_TIP},{_TIP / 2} L0,{_TIP} Z"/></marker></defs>\n'
        f'<rect class="back" width="100%" height="100%"/>\n' + "\n".join(shapes) + "\n</svg>\n"
    )


def _step(box: Box, place: Rectangle) -> str:
    middle = place.x + place.width / 2
    shown = lines_of(box)
    top = place.y + (place.height - 18 * len(shown)) / 2 + 13
    lines = (
        f'<text class="{kind}" x="{middle:.1f}" y="{top + 18 * i:.1f}" text-anchor="middle">{_text(line)}</text>'
        for i, (line, kind) in enumerate(zip(shown, _classes(box), strict=True))
    )
    whole = f"{box.kind}({box.detail})" if box.detail else box.kind
    return (
        f'<g class="{_CLASS[box.payloads]}"><title>{_text(whole)}</title><rect class="box" x="{place.x:.1f}" '
        f'y="{place.y:.1f}" width="{place.width:.1f}" height="{place.height:.1f}" rx="7"/>{"".join(lines)}</g>'
    )


def _classes(box: Box) -> Iterator[str]:
    yield "kind"
    if box.detail:
        yield "detail"
    if box.payloads:
        yield "soft"


def _way(arrow: Arrow, points: Points) -> str:
    """A curve that leaves and enters boxes level, and runs straight below those it passes."""
    (x, y), *rest = points
    path = [f"M{x:.1f},{y:.1f}"]
    for i, (nx, ny) in enumerate(rest):
        if i % 2:
            path.append(f"L{nx:.1f},{ny:.1f}")
        else:
            half = (x + nx) / 2
            path.append(f"C{half:.1f},{y:.1f} {half:.1f},{ny:.1f} {nx:.1f},{ny:.1f}")
        x, y = nx, ny
    drawn = f'<path class="way" d="{" ".join(path)}" marker-end="url(#tip)"/>'
    if arrow.label:
        x, y = points[0]
        drawn += f'<text class="soft" x="{x + _SMALL:.1f}" y="{y - 4:.1f}">{_text(arrow.label)}</text>'
    return f"<g>{drawn}</g>"


def _text(text: str) -> str:
    return escape(printable(text), quote=False)
