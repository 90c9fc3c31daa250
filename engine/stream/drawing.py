"""A plan as a picture: one self-contained SVG without scripts, legible on light and dark pages.

The layout has columns from left to right and few crossing arrows, after Sugiyama, Tagawa and Toda, "Methods for Visual
Understanding of Hierarchical System Structures" (1981). A box's column is its longest path from a source. Arrows over
several columns get bends. Rows are ordered by the mean position of neighbours, alternately in the previous and the next
column. Places are in pixels, y downwards.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from itertools import pairwise
from typing import Final

from ..chunk import clusters, width_of
from ..markup import panel, printable, shown, table
from ..units import counted
from .plan import BranchNode, MergeNode, Node, OperatorNode, SourceNode, SplitNode, decodes, nodes_of, upstreams_of


class Payloads(StrEnum):
    """The fate of payloads in a box."""

    DECODED = "decodes payloads"
    PASSED = "headers only"
    NONE = ""
    """No payload is concerned: the box reads, merges or writes."""


@dataclass(frozen=True, slots=True)
class Box:
    """One step of a plan: ``kind`` (``filter``, ``merge`` …) and ``detail``, its arguments."""

    kind: str
    detail: str
    payloads: Payloads = Payloads.NONE


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow between two boxes, given by number; ``label`` names the half of a split that it carries."""

    start: int
    end: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """Boxes in topological order, and the arrows between them. The last box is the sink."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def graph_of(sink: Node) -> Graph:
    """The boxes and arrows of a plan: a box for each step, and two arrows from a split for its halves."""
    nodes = [node for node in nodes_of(sink) if not isinstance(node, BranchNode)]
    at: dict[Node, int] = {node: i for i, node in enumerate(nodes)}
    arrows = [_arrow(upstream, i, at) for i, node in enumerate(nodes) for upstream in upstreams_of(node)]
    arrows.append(_arrow(sink, len(nodes), at))
    return Graph((*map(_box, nodes), Box("output", "")), tuple(arrows))


def _arrow(upstream: Node, end: int, at: dict[Node, int]) -> Arrow:
    if isinstance(upstream, BranchNode):
        return Arrow(at[upstream.split], end, "selected" if upstream.selected else "rest")
    return Arrow(at[upstream], end)


def _box(node: Node) -> Box:
    if isinstance(node, SourceNode):
        return Box("read", node.source.describe())
    if isinstance(node, MergeNode):
        return Box("merge", f"of {len(node.upstreams)}")
    payloads = Payloads.DECODED if decodes(node) else Payloads.PASSED
    if isinstance(node, SplitNode):
        return Box("split", node.selection.describe(), payloads)
    assert isinstance(node, OperatorNode)
    kind, paren, rest = node.operator.describe().partition("(")
    return Box(kind, rest.removesuffix(")") if paren else "", payloads)


_SWEEPS = 6


@dataclass(frozen=True, slots=True)
class Layers:
    """Columns of knots, from left to right, each from top to bottom.

    A knot smaller than the number of boxes is that box; other knots are bends of arrows. ``ways`` has the knots of each
    arrow, including its two boxes.
    """

    columns: tuple[tuple[int, ...], ...]
    ways: tuple[tuple[int, ...], ...]


def layers_of(graph: Graph) -> Layers:
    """Assign every box a column and a row, and every arrow its bends."""
    column = _columns(graph)
    ways: list[tuple[int, ...]] = []
    knots = list(column)
    for arrow in graph.arrows:
        bends = range(column[arrow.start] + 1, column[arrow.end])
        first = len(knots)
        knots.extend(bends)
        ways.append((arrow.start, *range(first, len(knots)), arrow.end))
    columns: list[list[int]] = [[] for _ in range(max(knots) + 1)]
    for knot in _in_order_of_ways(ways, len(knots)):
        columns[knots[knot]].append(knot)
    _untangle(columns, ways)
    return Layers(tuple(map(tuple, columns)), tuple(ways))


def _columns(graph: Graph) -> list[int]:
    """Each box's column: its longest path. A box that only unshared sources feed goes right before its consumer."""
    column = [0] * len(graph.boxes)
    for arrow in sorted(graph.arrows, key=lambda a: a.end):
        column[arrow.end] = max(column[arrow.end], column[arrow.start] + 1)
    shared = {start for start, count in Counter(arrow.start for arrow in graph.arrows).items() if count > 1}
    fixed: set[int] = set()
    for arrow in sorted(graph.arrows, key=lambda a: a.end):
        if arrow.start in fixed or arrow.start in shared:
            fixed.add(arrow.end)
    for box in reversed(range(len(graph.boxes) - 1)):
        if box not in fixed:
            column[box] = min(column[a.end] for a in graph.arrows if a.start == box) - 1
    return column


def _in_order_of_ways(ways: Sequence[tuple[int, ...]], count: int) -> list[int]:
    """Knots in the order in which the arrows pass them."""
    order = dict.fromkeys(knot for way in ways for knot in way)
    return [*order, *(knot for knot in range(count) if knot not in order)]


def _untangle(columns: list[list[int]], ways: Sequence[tuple[int, ...]]) -> None:
    before: dict[int, list[int]] = defaultdict(list)
    behind: dict[int, list[int]] = defaultdict(list)
    for way in ways:
        for a, b in pairwise(way):
            before[b].append(a)
            behind[a].append(b)
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        for at in range(1, len(columns)) if forward else range(len(columns) - 2, -1, -1):
            neighbours = before if forward else behind
            beside = columns[at - 1] if forward else columns[at + 1]
            row = {knot: (i + 0.5) / len(beside) for i, knot in enumerate(beside)}
            own = {knot: (i + 0.5) / len(columns[at]) for i, knot in enumerate(columns[at])}
            columns[at].sort(key=lambda knot: _mean([row[n] for n in neighbours[knot]], own[knot]))


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


CHARACTER: Final = 7.3
"""Width of a character of the details' font."""

_PAD: Final = 14.0
_LINE: Final = 18.0
_PORT: Final = 18.0
_GAP_X: Final = 84.0
_GAP_Y: Final = 22.0
_BEND: Final = 14.0
_MARGIN: Final = 24.0
_NARROWEST: Final = 96.0


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A box on the page: its upper left corner, width and height."""

    x: float
    y: float
    width: float
    height: float


Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A graph on a page: the place of each box, and the points of each arrow."""

    places: tuple[Rectangle, ...]
    lines: tuple[Points, ...]
    width: float
    height: float


def lines_of(box: Box) -> tuple[str, ...]:
    """The lines of text in a box; the first is its kind."""
    return tuple(line for line in (box.kind, shortened(box.detail), str(box.payloads)) if line)


def picture_of(graph: Graph) -> Picture:
    """Place everything: columns side by side, each centred."""
    layers = layers_of(graph)
    count = len(graph.boxes)
    knots = sum(len(column) for column in layers.columns)
    ports = _most_arrows(graph)
    widths = [_width(box) for box in graph.boxes] + [0.0] * (knots - count)
    heights = [max(_LINE * len(lines_of(box)) + _PAD, _PORT * (ports[i] + 1)) for i, box in enumerate(graph.boxes)] + [
        _BEND
    ] * (knots - count)
    total = max(sum(heights[k] for k in c) + _GAP_Y * (len(c) - 1) for c in layers.columns)
    placed: dict[int, Rectangle] = {}
    x = _MARGIN
    for column in layers.columns:
        wide = max(widths[k] for k in column)
        y = _MARGIN + (total - sum(heights[k] for k in column) - _GAP_Y * (len(column) - 1)) / 2
        for knot in column:
            own = widths[knot] if knot < count else wide
            placed[knot] = Rectangle(x + (wide - own) / 2, y, own, heights[knot])
            y += heights[knot] + _GAP_Y
        x += wide + _GAP_X
    places = [placed[knot] for knot in range(knots)]
    lines = _lines(layers, places)
    return Picture(tuple(places[:count]), lines, x - _GAP_X + _MARGIN, total + 2 * _MARGIN)


def _width(box: Box) -> float:
    return max(_NARROWEST, 2 * _PAD + CHARACTER * max(width_of(line) for line in lines_of(box)))


def _most_arrows(graph: Graph) -> list[int]:
    """For each box, the number of arrows on its busier side."""
    starts = [sum(a.start == i for a in graph.arrows) for i in range(len(graph.boxes))]
    ends = [sum(a.end == i for a in graph.arrows) for i in range(len(graph.boxes))]
    return [max(pair) for pair in zip(starts, ends, strict=True)]


def _lines(layers: Layers, places: Sequence[Rectangle]) -> tuple[Points, ...]:
    """The points of each arrow: from a port on its first box's right, along bends, to one on its last box's left."""
    leaving: dict[int, list[int]] = defaultdict(list)
    entering: dict[int, list[int]] = defaultdict(list)
    for i, way in enumerate(layers.ways):
        leaving[way[0]].append(i)
        entering[way[-1]].append(i)
    for arrows in leaving.values():
        arrows.sort(key=lambda i: places[layers.ways[i][1]].y)
    for arrows in entering.values():
        arrows.sort(key=lambda i: places[layers.ways[i][-2]].y)
    drawn = []
    for i, way in enumerate(layers.ways):
        first, last = places[way[0]], places[way[-1]]
        points = [(first.x + first.width, _port(first, leaving[way[0]], i))]
        for knot in way[1:-1]:
            bend = places[knot]
            points += [(bend.x, bend.y + bend.height / 2), (bend.x + bend.width, bend.y + bend.height / 2)]
        points.append((last.x, _port(last, entering[way[-1]], i)))
        drawn.append(tuple(points))
    return tuple(drawn)


def _port(place: Rectangle, arrows: Sequence[int], arrow: int) -> float:
    return place.y + place.height * (arrows.index(arrow) + 1) / (len(arrows) + 1)


_MOST_COLUMNS: Final = 40


def shortened(text: str, most: int = _MOST_COLUMNS) -> str:
    """``text`` on one line of at most ``most`` columns; the middle of a longer text is omitted.

    >>> shortened("content='/nissan/gps/**'"), shortened("a" * 9 + "b" * 9, 9)
    ("content='/nissan/gps/**'", 'aaaa…bbbb')
    """
    text = printable(" ".join(text.split()))
    if width_of(text) <= most:
        return text
    parts = list(clusters(text))
    half = (most - 1) // 2
    return f"{''.join(_fitting(parts, half))}…{''.join(reversed(_fitting(parts[::-1], half)))}"


def _fitting(parts: list[str], columns: int) -> list[str]:
    taken: list[str] = []
    for part in parts:
        columns -= width_of(part)
        if columns < 0:
            break
        taken.append(part)
    return taken


_STYLE: Final = """
.cm-plan { color: #1c2430; --back: #ffffff }
.cm-plan .back { fill: var(--back) } .cm-plan text { fill: currentColor; font: 13px system-ui, sans-serif }
.cm-plan .kind { font-weight: 600 } .cm-plan :is(.detail, .soft) { font: 12px ui-monospace, monospace }
.cm-plan .soft { fill-opacity: .7 }
.cm-plan .box { fill: rgba(128,140,155,.1); stroke: #8794a3; stroke-width: 1.2 }
.cm-plan .decodes .box { fill: rgba(217,160,54,.18); stroke: #c98f2b }
.cm-plan .passes .box { fill: rgba(47,143,128,.14); stroke: #34998a }
.cm-plan .way + text { paint-order: stroke; stroke: var(--back); stroke-width: 4 }
.cm-plan .way { fill: none; stroke: #8794a3; stroke-width: 1.5 } .cm-plan .tip { fill: #8794a3 }
"""
_DARK: Final = "@media (prefers-color-scheme: dark) { .cm-plan { color: #e6ebf1; --back: #12171d } }\n"
_INHERITED: Final = ".cm-plan { color: inherit; --back: transparent; max-width: 100%; height: auto }\n"
_CLASS: Final = {Payloads.DECODED: "step decodes", Payloads.PASSED: "step passes", Payloads.NONE: "step"}
_TIP: Final = 7.0
_SMALL: Final = 6.6
"""Width of a character of an arrow's label."""


def draw_plan(sink: Node, title: str, *, inherits: bool = False) -> str:
    """Draw the plan of ``sink`` as SVG text: sources on the left, the output on the right.

    Each step is drawn once. Tooltips have the full text of shortened labels. With ``inherits``, the drawing has the
    colours of its page.
    """
    return draw_graph(graph_of(sink), title, inherits=inherits)


def draw_graph(graph: Graph, title: str, *, inherits: bool = False) -> str:
    """Boxes and arrows as the text of an SVG, from left to right."""
    picture = picture_of(graph)
    width, height = max(picture.width, 320.0), picture.height
    shapes = [_way(arrow, points) for arrow, points in zip(graph.arrows, picture.lines, strict=True)]
    shapes += [_step(box, place) for box, place in zip(graph.boxes, picture.places, strict=True)]
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.1f} {height:.1f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="cm-plan" {size} role="img">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}{_INHERITED if inherits else _DARK}</style>\n"
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
    """A curve that leaves and enters boxes horizontally, and is straight at its bends."""
    (x, y), *rest = points
    path = [f"M{x:.1f},{y:.1f}"]
    for i, (nx, ny) in enumerate(rest):
        if i % 2:
            path.append(f"L{nx:.1f},{ny:.1f}")
        else:
            half = (x + nx) / 2
            path.append(f"C{half:.1f},{y:.1f} {half:.1f},{ny:.1f} {nx:.1f},{ny:.1f}")
        x, y = nx, ny
    tip = f'<path class="tip" d="M{x:.1f},{y:.1f} l{-_TIP},{-_TIP / 2} v{_TIP} Z"/>'
    drawn = f'<path class="way" d="{" ".join(path)}"/>'
    if arrow.label:
        x, y = points[0]
        drawn += f'<text class="soft" x="{x + _SMALL:.1f}" y="{y - 4:.1f}">{_text(arrow.label)}</text>'
    return f"<g>{drawn}{tip}</g>"


_MOST_STEPS: Final = 60


def stream_panel(sink: Node, *, is_consumed: bool = False) -> str:
    """A stream's plan for notebooks: as a drawing, or as lines of text if it has very many steps."""
    nodes = [node for node in nodes_of(sink) if not isinstance(node, BranchNode)]
    sources = [node.source.describe() for node in nodes if isinstance(node, SourceNode)]
    facts = [counted(len(sources), "source"), counted(len(nodes) - len(sources), "step")]
    if is_consumed:
        facts.append("consumed: use the stream that was made from it")
    steps = ((box.kind, shown(box.detail)) for box in map(_box, nodes))
    drawn = len(nodes) <= _MOST_STEPS
    body = draw_plan(sink, "Plan", inherits=True) if drawn else table(["step", ""], steps, len(nodes), kind="grid")
    return panel("LazyChunkStream", facts, body)


def _text(text: str) -> str:
    return escape(printable(text), quote=False)
