"""Pipelines over chunks: the lazy stream, its operators, its plan, and the entity path expressions."""

from ..lazy_names import lazy_names

_HOMES = {
    "..chunk": "ChunkKind Fate",
    ".drawing": "draw_plan",
    ".frames": "FrameChoices FrameRequest Frames tick_of",
    ".kept": "Kept StoreVersion",
    ".lazy_stream": (
        "ChunkStore LazyChunkStream LazyStore StoredChunks by_chunk_id framed other_sources plan_outputs "
        "plan_recording single_tasks sink_of task_plan value_columns value_schema write_stores"
    ),
    ".operators": "Content ContentFilter Operator as_chunk",
    ".plan": (
        "CopiedRecords MOST_PLANNED Node OperatorNode Plan PlannedInTasks compile_plan copied_records executor_of "
        "explain_plan known_entities nodes_of source_records warn_of_nothing"
    ),
    ".records": (
        "Extra ExtraPlace MESSAGE_HEAD RecordChannel RecordFacts RecordOutline RecordSchema RecordSource RecordUnit "
        "Records CompressedChunk"
    ),
    ".source": "IteratedSource PlaceholderSource Source SourceLike Split",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
