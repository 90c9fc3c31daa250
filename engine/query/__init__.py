"""The kernel of queries: rows of segments by an index, latest-at, and which chunks they need; without Spark.

The names below are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .groups import GROUP_BYTES, SegmentGroup, grouped
    from .layers import HeldRecording, SegmentLayers, queried_recordings
    from .query import (
        SEGMENT_ID,
        AnswerColumns,
        ComponentFilter,
        IndexValues,
        Query,
        QuerySemantics,
        RowFilter,
        SegmentFigures,
        no_column,
    )
    from .rows import BATCH_BYTES, SegmentRows
    from .segment_chunks import SegmentChunks, Windows, lacking_guarantee, satisfiable, segment_guarantee, windows_of
    from .segments import PIECE_BYTES, LayerChunks, QueriedSegment, SegmentSource, StoreSource

_HOMES = {
    ".groups": "GROUP_BYTES SegmentGroup grouped",
    ".layers": "HeldRecording SegmentLayers queried_recordings",
    ".query": (
        "AnswerColumns ComponentFilter IndexValues Query QuerySemantics RowFilter SEGMENT_ID SegmentFigures no_column"
    ),
    ".rows": "BATCH_BYTES SegmentRows",
    ".segment_chunks": "SegmentChunks Windows lacking_guarantee satisfiable segment_guarantee windows_of",
    ".segments": "LayerChunks PIECE_BYTES QueriedSegment SegmentSource StoreSource",
}

__all__ = [
    "AnswerColumns",
    "BATCH_BYTES",
    "ComponentFilter",
    "GROUP_BYTES",
    "HeldRecording",
    "IndexValues",
    "LayerChunks",
    "PIECE_BYTES",
    "QueriedSegment",
    "Query",
    "QuerySemantics",
    "RowFilter",
    "SEGMENT_ID",
    "SegmentChunks",
    "SegmentFigures",
    "SegmentGroup",
    "SegmentLayers",
    "SegmentRows",
    "SegmentSource",
    "StoreSource",
    "Windows",
    "grouped",
    "lacking_guarantee",
    "no_column",
    "queried_recordings",
    "satisfiable",
    "segment_guarantee",
    "windows_of",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
