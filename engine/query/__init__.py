"""The kernel of queries: rows of segments by an index, latest-at, and which chunks they need; without Spark.

The names below are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .figures import SegmentFigures
    from .groups import GROUP_BYTES, SegmentGroup, grouped
    from .held import HeldRecording, queried_recordings
    from .layers import SegmentLayers
    from .pruning import lacking_guarantee, satisfiable, segment_guarantee, windows_of
    from .query import (
        SEGMENT_ID,
        AnswerColumns,
        ComponentFilter,
        IndexValues,
        Query,
        QuerySemantics,
        RowFilter,
        no_column,
    )
    from .rows import BATCH_BYTES, SegmentRows
    from .segment_chunks import SegmentChunks, Windows
    from .segments import PIECE_BYTES, QueriedSegment
    from .sources import LayerChunks, SegmentSource, StoreSource

_HOMES = {
    ".figures": "SegmentFigures",
    ".groups": "GROUP_BYTES SegmentGroup grouped",
    ".held": "HeldRecording queried_recordings",
    ".layers": "SegmentLayers",
    ".pruning": "lacking_guarantee satisfiable segment_guarantee windows_of",
    ".query": "AnswerColumns ComponentFilter IndexValues Query QuerySemantics RowFilter SEGMENT_ID no_column",
    ".rows": "BATCH_BYTES SegmentRows",
    ".segment_chunks": "SegmentChunks Windows",
    ".segments": "PIECE_BYTES QueriedSegment",
    ".sources": "LayerChunks SegmentSource StoreSource",
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
