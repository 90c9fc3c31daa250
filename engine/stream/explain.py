"""A plan as text."""

from __future__ import annotations

from collections.abc import Iterator

from .operators import Drop, Filter
from .plan import BranchNode, MergeNode, Node, OperatorNode, Plan, SourceNode, SplitNode, upstreams_of


def explain_plan(sink: Node, plan: Plan) -> str:
    """Sources with their splits, the operators fused into the stage, and whether payloads are decoded in it."""
    splits = [sum(1 for at, _ in plan.splits if at == i) for i in range(len(plan.sources))]
    sizes = [sum(s.size for at, s in plan.splits if at == i) for i in range(len(plan.sources))]
    lines = [f"Pipeline: {len(plan.sources)} source(s), {len(plan.splits)} split(s), 1 stage"]
    for source, count, size in zip(plan.sources, splits, sizes, strict=True):
        lines.append(f"  source {source.describe()}: {count} split(s), {size:,} bytes")
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
    if isinstance(node, OperatorNode):
        operator = node.operator
        if not isinstance(operator, (Filter, Drop)) or operator.selection.components is not None:
            yield operator.describe()
    elif isinstance(node, SplitNode) and node.selection.components is not None:
        yield _line(node)
    elif isinstance(node, BranchNode):
        pass
    for upstream in upstreams_of(node):
        yield from _touching(upstream)
