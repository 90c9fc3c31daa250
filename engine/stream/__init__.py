"""Pipelines over chunks: the lazy stream, its operators, its plan, and the entity path expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from ..chunk import Fate, Outline
    from .content_filter import ContentFilter
    from .explain import explain_plan
    from .iterated import IteratedSource
    from .lazy_stream import LazyChunkStream, plan_outputs, plan_recording, single_tasks, sink_of, write_stores
    from .operators import as_chunk
    from .placeholder import PlaceholderSource
    from .plan import Node, OperatorNode, compile_plan, nodes_of
    from .source import Source, Split

_HOMES = {
    "..chunk": (
        "Fate",
        "Outline",
    ),
    ".content_filter": ("ContentFilter",),
    ".explain": ("explain_plan",),
    ".iterated": ("IteratedSource",),
    ".lazy_stream": (
        "LazyChunkStream",
        "plan_outputs",
        "plan_recording",
        "single_tasks",
        "sink_of",
        "write_stores",
    ),
    ".operators": ("as_chunk",),
    ".placeholder": ("PlaceholderSource",),
    ".plan": (
        "Node",
        "OperatorNode",
        "compile_plan",
        "nodes_of",
    ),
    ".source": (
        "Source",
        "Split",
    ),
}

__all__ = [
    "ContentFilter",
    "Fate",
    "IteratedSource",
    "LazyChunkStream",
    "Node",
    "OperatorNode",
    "Outline",
    "PlaceholderSource",
    "Source",
    "Split",
    "as_chunk",
    "compile_plan",
    "explain_plan",
    "nodes_of",
    "plan_outputs",
    "plan_recording",
    "single_tasks",
    "sink_of",
    "write_stores",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
