"""The core of chunkmill: chunks, streams over them, stores of them, and how they run on Spark.

The names below are loaded on first use, so that a program that needs little starts quickly.
"""

from .lazy_names import lazy_names, name_terminals

_HOMES = {
    ".catalog": (
        "BearerTokenObjectStoreAuth CatalogClient CatalogContext CatalogFault CopyReport DatasetEntry DatasetInfo "
        "DatasetSelection DatasetView Entry EntryId EntryKind ForgetReport Layer LayerInfo ObjectStoreAuth "
        "OnDuplicateSegmentLayer Recording RegistrationHandle RegistrationOperation RegistrationResult RemainingItem "
        "RemovedItem Segment SegmentRegistrationResult ServedDataset Server TableEntry TableInsertMode TimelineInfo "
        "UnregistrationHandle VersionInfo"
    ),
    ".chunk": (
        "AUTO_INDEX Chunk ChunkHeader ComponentColumn ComponentColumnDescriptor ComponentColumnSelector "
        "ComponentDescriptor ComponentHeader ComponentRange IndexColumnDescriptor IndexColumnSelector Schema "
        "TimeColumn TimelineHeader TimelineKind"
    ),
    ".data_sources": "get_session register",
    ".doctor": "Diagnosis Finding diagnose",
    ".errors": (
        "AlreadyExistsError ChunkmillError CommitUnknownError FaultyDataError ForeignFileError FunctionResultError "
        "JobFailedError LensError MissingExtraError NoSpaceError NotFoundError PinnedViewError PipelineError "
        "ReadError ReadWarning RegistrationError ResourcesUnavailableError SameRecordingError SchemaConflictError "
        "SelectorError SelectorSyntaxError SessionError SessionStartError SkipThresholdExceededError "
        "SourceMissingError UnfitRowsError UnmatchedWarning UnreachableError UnsupportedCallError UnsupportedError "
        "UsageError WriteError error_from_dict writing"
    ),
    ".execution": "Part Parts ProgressListener Ran Sink Staging TaskRun Work replace_file",
    ".frames": "MetricsCollector QueryMetrics query_metrics",
    ".ingest": (
        "BatchResult FileResult Ingest IngestListener IngestLog IngestMetrics IngestQuery LandedFile MetricsServer "
        "Outcome"
    ),
    ".inputs": "Comparison Difference compare verify",
    ".pipelines": "Pipeline load_pipeline",
    ".query": "QuerySemantics",
    ".recordings": "CompactionReport RecordingEntry RecordingsVersion",
    ".reports": "RunReport save_report",
    ".rrd": "RecoveryReport StoreEntry Verification",
    ".spark": "stop_session",
    ".store": "ChunkStore LazyStore OptimizationProfile RecordingStore StoreVersion",
    ".stream": "ContentFilter Frames LazyChunkStream Source Split write_stores",
    ".tables": (
        "CleanupStats Columns Fail RefreshJobResult RefreshPlan Retry Skip Table TableConnection TableQuery "
        "TableReference UDF UnpackedUDF connect connect_async fail_fast guarded_compute retry_all retry_transient "
        "skip_on_error udf"
    ),
    ".viewer": "ViewerClient send_chunks",
    ".writers": (
        "ExportReport ExportSpec ExportedRecording draft_spec push_lerobot write_lerobot write_mcap write_parquet"
    ),
    "": "errors limits video",
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
