"""The core of chunkmill: chunks, streams over them, stores of them, and how they run on Spark.

The names below are loaded on first use, so that a program that needs little starts quickly.
"""

from .lazy_names import lazy_names, name_terminals

_HOMES = {
    ".catalog": "CatalogClient DatasetEntry Entry EntryId EntryKind ServedDataset Server TableEntry",
    ".chunk": (
        "AUTO_INDEX Chunk ComponentColumn ComponentColumnDescriptor ComponentColumnSelector "
        "ComponentDescriptor IndexColumnDescriptor IndexColumnSelector Schema TimeColumn"
    ),
    ".data_sources": "get_session register",
    ".doctor": "Diagnosis Finding diagnose",
    ".errors": (
        "AlreadyExistsError ChunkmillError NotFoundError PipelineError ReadError ReadWarning SessionError "
        "UsageError WriteError"
    ),
    ".frames": "MetricsCollector QueryMetrics query_metrics",
    ".inputs": "Comparison Difference compare verify",
    ".spark": "stop_session",
    ".ingest": "Ingest IngestQuery",
    ".pipelines": "Pipeline load_pipeline",
    ".reports": "RunReport save_report",
    ".rrd": "StoreEntry Verification",
    ".store": "ChunkStore LazyStore OptimizationProfile RecordingStore StoreVersion",
    ".stream": "ContentFilter LazyChunkStream write_stores",
    ".tables": ("Columns Fail Retry Skip UDF UnpackedUDF fail_fast retry_all retry_transient skip_on_error udf"),
    ".viewer": "ViewerClient send_chunks",
    ".writers": "ExportReport ExportSpec ExportedRecording draft_spec push_lerobot write_lerobot write_parquet",
    "": "video",
}

name_terminals(
    __name__,
    {
        ".data_sources": "get_session value_frame",
        ".store": "chunks_panel collect_plan open_recording read_rows segment_of",
        ".writers": "write_lerobot write_mcap write_parquet_recording write_recording",
    },
)

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
