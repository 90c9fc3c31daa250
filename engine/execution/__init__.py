"""Runs of pipelines on either executor: stages of tasks, sinks and the parts they bring together, results in scratch.

The names below are loaded when they are first used, so that looking up an executor does not load the writers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..folders import Folder, LocalFolder, replace_file, sync_folder
    from .chunk_frames import (
        CarriedChunks,
        check_columns,
        check_frame,
        chunk_frame,
        chunks_of_frame,
        order_key,
        rows_frame,
        transformed_frame,
    )
    from .chunk_rows import SCHEMA, Note, PartChunk, parse_rows
    from .commit import RrdCommit, RunPlaces
    from .executors import EXECUTORS, executor_for, executor_name, is_auto, query_executor
    from .frame_rows import COLUMNS, WITHOUT_PAYLOAD, Place, batches_of, ddl_of, frame_row, noting_task, payload_rows
    from .groups import (
        STAGE_BYTES,
        STAGE_TASKS,
        Group,
        Outputs,
        PlannedRecording,
        is_of_all,
        run_groups,
        write_recordings,
    )
    from .iterating import iterated_chunks
    from .lease import Holder, Lease, lease_holder
    from .progress_bar import ProgressBar
    from .quarantine import QuarantineTable
    from .reporting import ProgressListener, ProgressState, Ran, RunStart, told
    from .rrd_sink import RrdParts, RrdSink, write_rrd
    from .scratch import ScratchFolder, ScratchPart, collect_chunks, lazy_chunk, spool, spool_pieces
    from .shards import SHARD_BYTES, Shard, ShardSink, extents_in_order, neighbours, write_rrd_shards
    from .sink import Part, Parts, Sink, inline_chunks, run_work, write_to
    from .spark_stage import cores_of, stage_of, told_by_partitions
    from .stage import Body, Progress, RunOptions, Stage, TaskRun, TaskRunner, progress_shown, raise_failure, warn_of
    from .staging import Staging, abandoned_runs, is_gone, pid_namespace, scratch_folder, this_process
    from .transport import (
        add_note,
        check_travels,
        failure_from_dict,
        failure_to_dict,
        register_by_value,
        send_by_value,
    )
    from .work import Packed, Piece, Task, Work, dealt

_HOMES = {
    ".chunk_frames": (
        "CarriedChunks check_columns check_frame chunk_frame chunks_of_frame order_key rows_frame transformed_frame"
    ),
    ".chunk_rows": "Note PartChunk SCHEMA parse_rows",
    ".commit": "RrdCommit RunPlaces",
    "..folders": "Folder LocalFolder replace_file sync_folder",
    ".frame_rows": "COLUMNS Place WITHOUT_PAYLOAD batches_of ddl_of frame_row noting_task payload_rows",
    ".groups": "Group Outputs PlannedRecording STAGE_BYTES STAGE_TASKS is_of_all run_groups write_recordings",
    ".iterating": "iterated_chunks",
    ".lease": "Holder Lease lease_holder",
    ".quarantine": "QuarantineTable",
    ".progress_bar": "ProgressBar",
    ".reporting": "ProgressListener ProgressState Ran RunStart told",
    ".rrd_sink": "RrdParts RrdSink write_rrd",
    ".scratch": "ScratchFolder ScratchPart collect_chunks lazy_chunk spool spool_pieces",
    ".shards": "SHARD_BYTES Shard ShardSink extents_in_order neighbours write_rrd_shards",
    ".sink": "Part Parts Sink inline_chunks run_work write_to",
    ".executors": "EXECUTORS executor_for executor_name is_auto query_executor",
    ".spark_stage": "cores_of stage_of told_by_partitions",
    ".stage": "Body Progress RunOptions Stage TaskRun TaskRunner progress_shown raise_failure warn_of",
    ".staging": "Staging abandoned_runs is_gone pid_namespace scratch_folder this_process",
    ".transport": "add_note check_travels failure_from_dict failure_to_dict register_by_value send_by_value",
    ".work": "Packed Piece Task Work dealt",
    "pyspark.sql": "DataFrame SparkSession",
}

__all__ = [
    "Body",
    "COLUMNS",
    "CarriedChunks",
    "DataFrame",
    "EXECUTORS",
    "Folder",
    "Group",
    "Holder",
    "Lease",
    "LocalFolder",
    "Note",
    "Outputs",
    "Packed",
    "Part",
    "PartChunk",
    "Parts",
    "Piece",
    "Place",
    "PlannedRecording",
    "Progress",
    "ProgressBar",
    "ProgressListener",
    "ProgressState",
    "QuarantineTable",
    "Ran",
    "RrdCommit",
    "RrdParts",
    "RrdSink",
    "RunOptions",
    "RunPlaces",
    "RunStart",
    "SCHEMA",
    "SHARD_BYTES",
    "STAGE_BYTES",
    "STAGE_TASKS",
    "ScratchFolder",
    "ScratchPart",
    "Shard",
    "ShardSink",
    "Sink",
    "SparkSession",
    "Stage",
    "Staging",
    "Task",
    "TaskRun",
    "TaskRunner",
    "WITHOUT_PAYLOAD",
    "Work",
    "abandoned_runs",
    "add_note",
    "batches_of",
    "check_columns",
    "check_frame",
    "check_travels",
    "chunk_frame",
    "chunks_of_frame",
    "collect_chunks",
    "cores_of",
    "ddl_of",
    "dealt",
    "executor_for",
    "executor_name",
    "extents_in_order",
    "failure_from_dict",
    "failure_to_dict",
    "frame_row",
    "inline_chunks",
    "is_auto",
    "is_gone",
    "is_of_all",
    "iterated_chunks",
    "lazy_chunk",
    "lease_holder",
    "neighbours",
    "noting_task",
    "order_key",
    "parse_rows",
    "payload_rows",
    "pid_namespace",
    "progress_shown",
    "query_executor",
    "raise_failure",
    "register_by_value",
    "replace_file",
    "rows_frame",
    "run_groups",
    "run_work",
    "scratch_folder",
    "send_by_value",
    "spool",
    "spool_pieces",
    "stage_of",
    "sync_folder",
    "this_process",
    "told",
    "told_by_partitions",
    "transformed_frame",
    "warn_of",
    "write_recordings",
    "write_rrd",
    "write_rrd_shards",
    "write_to",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
