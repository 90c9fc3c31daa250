"""The kernel of queries, without Spark: rows of segments by an index, latest-at, and the choice of needed chunks.

Each name below is loaded on first use.
"""

from ..lazy_names import lazy_names

_HOMES = {
    ".episodes": "EPISODES_HINT episodes_table in_nanoseconds segment_column",
    ".groups": "GROUP_BYTES SegmentGroup grouped",
    ".layers": "HeldRecording SegmentLayers queried_recordings",
    ".query": (
        "AnswerColumns ComponentFilter IndexValues Query QuerySemantics RowFilter SEGMENT_ID SegmentFigures no_column"
    ),
    ".rows": "BATCH_BYTES SegmentRows",
    ".segment_chunks": "SegmentChunks Windows lacking_guarantee satisfiable segment_guarantee windows_of",
    ".events": "SegmentEvents StaticValues",
    ".segments": "LayerChunks OpenSegment PIECE_BYTES QueriedSegment SegmentSource StoreSource",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
