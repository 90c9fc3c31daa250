"""Runs of pipelines on either executor: stages of tasks, sinks and the parts they bring together, results in scratch.

The names below are loaded when they are first used, so that looking up an executor does not load the writers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..storage.folder import Folder, LocalFolder, replace_file, sync_folder
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
    from .commit import RrdCommit, RunPlaces
    from .frame_rows import (
        COLUMNS,
        SCHEMA,
        WITHOUT_PAYLOAD,
        Note,
        PartChunk,
        Place,
        batches_of,
        ddl_of,
        frame_row,
        noting_task,
        parse_rows,
        payload_rows,
    )
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
    from .reporting import ProgressListener, ProgressState, Ran, RunStart, told
    from .scratch import ScratchFolder, ScratchPart, collect_chunks, lazy_chunk, spool, spool_pieces
    from .sink import (
        SHARD_BYTES,
        Part,
        Parts,
        RrdParts,
        RrdSink,
        Shard,
        ShardSink,
        Sink,
        extents_in_order,
        inline_chunks,
        neighbours,
        run_work,
        write_rrd,
        write_rrd_shards,
        write_to,
    )
    from .spark_stage import (
        add_note,
        check_travels,
        cores_of,
        failure_from_dict,
        failure_to_dict,
        register_by_value,
        send_by_value,
        stage_of,
        told_by_partitions,
    )
    from .stage import (
        EXECUTORS,
        Body,
        Progress,
        QuarantineTable,
        RunOptions,
        Stage,
        TaskRun,
        TaskRunner,
        executor_for,
        executor_name,
        is_auto,
        progress_shown,
        query_executor,
        raise_failure,
        warn_of,
    )
    from .staging import Staging, abandoned_runs, is_gone, pid_namespace, scratch_folder, this_process
    from .work import Packed, Piece, Task, Work, dealt

_HOMES = {
    "..storage.folder": "Folder LocalFolder replace_file sync_folder",
    ".chunk_frames": (
        "CarriedChunks check_columns check_frame chunk_frame chunks_of_frame order_key rows_frame transformed_frame"
    ),
    ".commit": "RrdCommit RunPlaces",
    ".frame_rows": (
        "COLUMNS Note PartChunk Place SCHEMA WITHOUT_PAYLOAD batches_of ddl_of frame_row noting_task parse_rows "
        "payload_rows"
    ),
    ".groups": "Group Outputs PlannedRecording STAGE_BYTES STAGE_TASKS is_of_all run_groups write_recordings",
    ".iterating": "iterated_chunks",
    ".lease": "Holder Lease lease_holder",
    ".progress_bar": "ProgressBar",
    ".reporting": "ProgressListener ProgressState Ran RunStart told",
    ".scratch": "ScratchFolder ScratchPart collect_chunks lazy_chunk spool spool_pieces",
    ".sink": (
        "Part Parts RrdParts RrdSink SHARD_BYTES Shard ShardSink Sink extents_in_order inline_chunks neighbours "
        "run_work write_rrd write_rrd_shards write_to"
    ),
    ".spark_stage": (
        "add_note check_travels cores_of failure_from_dict failure_to_dict register_by_value send_by_value stage_of "
        "told_by_partitions"
    ),
    ".stage": (
        "Body EXECUTORS Progress QuarantineTable RunOptions Stage TaskRun TaskRunner executor_for executor_name "
        "is_auto progress_shown query_executor raise_failure warn_of"
    ),
    ".staging": "Staging abandoned_runs is_gone pid_namespace scratch_folder this_process",
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
