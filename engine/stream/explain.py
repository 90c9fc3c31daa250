"""A plan as text."""

from __future__ import annotations

from collections.abc import Iterator

from .operators import Drop, Filter
from .placeholder import PlaceholderSource
from .plan import MergeNode, Node, OperatorNode, Plan, SourceNode, SplitNode, nodes_of, upstreams_of


def explain_plan(sink: Node, plan: Plan) -> str:
    """Sources with their splits, the operators fused into the stage, and whether payloads are decoded in it."""
    splits = [sum(1 for at, _ in plan.splits if at == i) for i in range(len(plan.sources))]
    sizes = [sum(s.size for at, s in plan.splits if at == i) for i in range(len(plan.sources))]
    lines = [f"Pipeline: {len(plan.sources)} source(s), {len(plan.splits)} split(s), 1 stage"]
    for source, count, size in zip(plan.sources, splits, sizes, strict=True):
        found = "not named yet" if isinstance(source, PlaceholderSource) else f"{count} split(s), {size:,} bytes"
        lines.append(f"  source {source.describe()}: {found}")
    lines.append("  stage (mapInArrow: split number in, chunk rows out)")
    lines += [f"    {line}" for line in _tree(sink, 0)]
    lines.append(f"  payloads: {_decoding(sink)}")
    return "\n".join(lines)


def _tree(node: Node, depth: int) -> Iterator[str]:
    """The sink first, what feeds it below, deeper."""
    yield "  " * depth + _line(node)
    for upstream in upstreams_of(node):
        yield from _tree(upstream, depth + 1)


def _line(node: Node) -> str:
    if isinstance(node, SourceNode):
        return f"read {node.source.describe()}"
    if isinstance(node, OperatorNode):
        return node.operator.describe()
    if isinstance(node, MergeNode):
        return f"merge of {len(node.upstreams)}"
    if isinstance(node, SplitNode):
        return f"split({node.selection.describe()})"
    return "branch: selected" if node.selected else "branch: rest"


def _decoding(sink: Node) -> str:
    touching = sorted(set(_touching(sink)))
    if not touching:
        return "passed through undecoded wherever the source keeps them encoded"
    return "decoded by " + "; ".join(touching)


def _touching(node: Node) -> Iterator[str]:
    """The operators that look into payloads."""
    return (_line(one) for one in nodes_of(node) if decodes(one))


def decodes(node: Node) -> bool:
    """Whether a node looks into payloads, or only at headers."""
    if isinstance(node, OperatorNode):
        operator = node.operator
        return not isinstance(operator, (Filter, Drop)) or operator.selection.components is not None
    return isinstance(node, SplitNode) and node.selection.components is not None
