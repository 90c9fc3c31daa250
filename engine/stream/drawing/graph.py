"""A plan as boxes and arrows: what is drawn, without a place yet."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..explain import decodes
from ..plan import BranchNode, MergeNode, Node, OperatorNode, SourceNode, SplitNode, nodes_of, upstreams_of


class Payloads(StrEnum):
    """What becomes of payloads in a box."""

    DECODED = "decodes payloads"
    PASSED = "headers only"
    NONE = ""
    """Nothing to say: the box reads, merges or writes."""


@dataclass(frozen=True, slots=True)
class Box:
    """One step of a plan: ``kind`` (``filter``, ``merge`` …) and ``detail``, its arguments."""

    kind: str
    detail: str
    payloads: Payloads = Payloads.NONE


@dataclass(frozen=True, slots=True)
class Arrow:
    """From one box to another, by their numbers; ``label`` says which half of a split it carries."""

    start: int
    end: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """Boxes, what feeds before what is fed, and the arrows between them. The last box is the sink."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def graph_of(sink: Node) -> Graph:
    """The boxes and arrows of a plan: each step once, the halves of a split as two arrows from it."""
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
