"""Runs of pipelines on either executor: stages of tasks, sinks that join their parts, and results in scratch.

The names below are loaded on first use, so that looking up an executor does not load the writers.
"""

from ..lazy_names import lazy_names

_HOMES = {
    "..storage.folder": "Folder LocalFolder replace_file sync_folder",
    ".chunk_frames": (
        "CarriedChunks check_columns check_frame chunk_frame chunks_of_frame order_key rows_frame transformed_frame"
    ),
    ".commit": "RrdCommit RunPlaces Staging abandoned_runs is_gone pid_namespace scratch_folder this_process",
    ".groups": "Group Outputs PlannedRecording STAGE_BYTES STAGE_TASKS is_of_all run_groups write_recordings",
    ".iterating": "iterated_chunks",
    ".lease": "Holder Lease lease_holder",
    ".progress_bar": "ProgressBar",
    ".reporting": "ProgressListener ProgressState Ran RunStart told",
    ".scratch": "ScratchFolder ScratchPart collect_chunks lazy_chunk spool spool_pieces",
    ".sink": (
        "Part Parts RrdParts RrdSink SHARD_BYTES Shard ShardSink Sink check_target extents_in_order finished_report "
        "inline_chunks neighbours "
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
    ".work": (
        "COLUMNS JoinedWork Note Packed PartChunk Piece Place SCHEMA Task WITHOUT_PAYLOAD Work batches_of ddl_of dealt "
        "frame_row noting_task parse_rows payload_rows"
    ),
    "pyspark.sql": "DataFrame SparkSession",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
