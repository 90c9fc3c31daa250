"""Pipelines over chunks: the lazy stream, its operators, its plan, and the entity path expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from ..chunk import ChunkKind, Fate
    from .drawing import draw_plan
    from .frames import FrameChoices, FrameRequest, Frames, tick_of
    from .lazy_stream import (
        ChunkStore,
        Kept,
        LazyChunkStream,
        LazyStore,
        StoredChunks,
        StoreVersion,
        by_chunk_id,
        framed,
        plan_outputs,
        plan_recording,
        single_tasks,
        sink_of,
        task_plan,
        value_columns,
        value_schema,
        write_stores,
    )
    from .operators import Content, ContentFilter, Operator, as_chunk
    from .plan import Node, OperatorNode, Plan, compile_plan, explain_plan, nodes_of
    from .source import IteratedSource, PlaceholderSource, Source, SourceLike, Split

_HOMES = {
    "..chunk": "ChunkKind Fate",
    ".drawing": "draw_plan",
    ".frames": "FrameChoices FrameRequest Frames tick_of",
    ".lazy_stream": (
        "ChunkStore Kept LazyChunkStream LazyStore StoreVersion StoredChunks by_chunk_id framed plan_outputs "
        "plan_recording single_tasks sink_of task_plan value_columns value_schema write_stores"
    ),
    ".operators": "Content ContentFilter Operator as_chunk",
    ".plan": "Node OperatorNode Plan compile_plan explain_plan nodes_of",
    ".source": "IteratedSource PlaceholderSource Source SourceLike Split",
}

__all__ = [
    "ChunkKind",
    "ChunkStore",
    "Content",
    "ContentFilter",
    "Fate",
    "FrameChoices",
    "FrameRequest",
    "Frames",
    "IteratedSource",
    "Kept",
    "LazyChunkStream",
    "LazyStore",
    "Node",
    "Operator",
    "OperatorNode",
    "PlaceholderSource",
    "Plan",
    "Source",
    "SourceLike",
    "Split",
    "StoreVersion",
    "StoredChunks",
    "as_chunk",
    "by_chunk_id",
    "compile_plan",
    "draw_plan",
    "explain_plan",
    "framed",
    "nodes_of",
    "plan_outputs",
    "plan_recording",
    "single_tasks",
    "sink_of",
    "task_plan",
    "tick_of",
    "value_columns",
    "value_schema",
    "write_stores",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
