"""How large boxes are, and where exactly they and the arrows lie; in pixels, y downwards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...chunk.text_width import width_of
from .graph import Box, Graph
from .layers import Layers, layers_of
from .text import shortened

CHARACTER: Final = 7.3
"""Width of a character of the details' font."""

_PAD: Final = 14.0
_LINE: Final = 18.0
_PORT: Final = 18.0
_GAP_X: Final = 84.0
_GAP_Y: Final = 22.0
_BEND: Final = 14.0
_MARGIN: Final = 24.0
_SMALLEST: Final = 96.0


@dataclass(frozen=True, slots=True)
class Place:
    """A box on the page: its upper left corner, width and height."""

    x: float
    y: float
    width: float
    height: float


Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A graph on a page: a place for each box, and for each arrow the points it goes through."""

    places: tuple[Place, ...]
    lines: tuple[Points, ...]
    width: float
    height: float


def lines_of(box: Box) -> tuple[str, ...]:
    """The lines of text in a box, the first its kind."""
    return tuple(line for line in (box.kind, shortened(box.detail), str(box.payloads)) if line)


def laid_out(graph: Graph) -> Picture:
    """Places for everything: columns beside each other, each centred."""
    layers = layers_of(graph)
    count = len(graph.boxes)
    knots = sum(len(column) for column in layers.columns)
    ports = _most_arrows(graph)
    widths = [_width(box) for box in graph.boxes] + [0.0] * (knots - count)
    heights = [max(_LINE * len(lines_of(box)) + _PAD, _PORT * (ports[i] + 1)) for i, box in enumerate(graph.boxes)] + [
        _BEND
    ] * (knots - count)
    total = max(sum(heights[k] for k in c) + _GAP_Y * (len(c) - 1) for c in layers.columns)
    placed: dict[int, Place] = {}
    x = _MARGIN
    for column in layers.columns:
        wide = max(widths[k] for k in column)
        y = _MARGIN + (total - sum(heights[k] for k in column) - _GAP_Y * (len(column) - 1)) / 2
        for knot in column:
            own = widths[knot] if knot < count else wide
            placed[knot] = Place(x + (wide - own) / 2, y, own, heights[knot])
            y += heights[knot] + _GAP_Y
        x += wide + _GAP_X
    places = [placed[knot] for knot in range(knots)]
    lines = _lines(layers, places)
    return Picture(tuple(places[:count]), lines, x - _GAP_X + _MARGIN, total + 2 * _MARGIN)


def _width(box: Box) -> float:
    return max(_SMALLEST, 2 * _PAD + CHARACTER * max(width_of(line) for line in lines_of(box)))


def _most_arrows(graph: Graph) -> list[int]:
    """For each box, how many arrows touch the busier of its sides."""
    starts = [sum(a.start == i for a in graph.arrows) for i in range(len(graph.boxes))]
    ends = [sum(a.end == i for a in graph.arrows) for i in range(len(graph.boxes))]
    return [max(pair) for pair in zip(starts, ends, strict=True)]


def _lines(layers: Layers, places: Sequence[Place]) -> tuple[Points, ...]:
    """The points of each arrow: from its port on the right of a box, along its bends, to its port on the left."""
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


def _port(place: Place, arrows: Sequence[int], arrow: int) -> float:
    return place.y + place.height * (arrows.index(arrow) + 1) / (len(arrows) + 1)
