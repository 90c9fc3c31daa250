"""Where boxes go: in columns from left to right, ordered so that few arrows cross.

After Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System Structures" (1981): columns by
the longest way from a source, arrows over several columns cut by bends, and rows ordered by the mean of their
neighbours in the column before, and in the one behind, in turn.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .graph import Graph

_SWEEPS = 6


@dataclass(frozen=True, slots=True)
class Layers:
    """Columns of knots, from left to right and in each from top to bottom.

    A knot below the number of boxes is that box, one above a bend of an arrow. ``ways`` has the knots that each arrow
    goes through, its two boxes included.
    """

    columns: tuple[tuple[int, ...], ...]
    ways: tuple[tuple[int, ...], ...]


def layers_of(graph: Graph) -> Layers:
    """Give every box a column and a row, and every arrow its bends."""
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
    """The longest way to each box; what nothing but sources of its own feeds stands right before what it feeds."""
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
    """Knots as the ways that enter a box, in order, come by them."""
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
