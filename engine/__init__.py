"""The core of chunkmill: chunks, streams over them, stores of them, and how they run on Spark.

The names below are loaded when they are first used, so that a program that needs little starts quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy_names import lazy_names, name_terminals

if TYPE_CHECKING:
    from .catalog import CatalogClient, DatasetEntry, Entry, EntryId, EntryKind, Server, TableEntry
    from .chunk import (
        AUTO_INDEX,
        Chunk,
        ComponentColumn,
        ComponentColumnDescriptor,
        ComponentColumnSelector,
        ComponentDescriptor,
        IndexColumnDescriptor,
        IndexColumnSelector,
        Schema,
        TimeColumn,
    )
    from .data_sources import get_session, register
    from .errors import (
        AlreadyExistsError,
        ChunkmillError,
        NotFoundError,
        PipelineError,
        ReadError,
        ReadWarning,
        SessionError,
        UsageError,
        WriteError,
    )
    from .frames import MetricsCollector, QueryMetrics, query_metrics
    from .ingest import Ingest, IngestQuery
    from .inputs import Comparison, Difference, compare, verify
    from .pipelines import Pipeline, load_pipeline
    from .reports import RunReport, save_report
    from .rrd import StoreEntry, Verification
    from .spark import stop_session
    from .store import ChunkStore, LazyStore, OptimizationProfile, RecordingStore, StoreVersion, video
    from .stream import ContentFilter, LazyChunkStream, write_stores
    from .tables import (
        UDF,
        Columns,
        Fail,
        Retry,
        Skip,
        UnpackedUDF,
        fail_fast,
        retry_all,
        retry_transient,
        skip_on_error,
        udf,
    )
    from .viewer import ViewerClient, send_chunks

_HOMES = {
    ".catalog": "CatalogClient DatasetEntry Entry EntryId EntryKind Server TableEntry",
    ".chunk": (
        "AUTO_INDEX Chunk ComponentColumn ComponentColumnDescriptor ComponentColumnSelector "
        "ComponentDescriptor IndexColumnDescriptor IndexColumnSelector Schema TimeColumn"
    ),
    ".data_sources": "get_session register",
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
    ".store": "ChunkStore LazyStore OptimizationProfile RecordingStore StoreVersion video",
    ".stream": "ContentFilter LazyChunkStream write_stores",
    ".tables": ("Columns Fail Retry Skip UDF UnpackedUDF fail_fast retry_all retry_transient skip_on_error udf"),
    ".viewer": "ViewerClient send_chunks",
}

__all__ = [
    "AUTO_INDEX",
    "AlreadyExistsError",
    "CatalogClient",
    "Chunk",
    "ChunkStore",
    "ChunkmillError",
    "Columns",
    "Comparison",
    "ComponentColumn",
    "ComponentColumnDescriptor",
    "ComponentColumnSelector",
    "ComponentDescriptor",
    "ContentFilter",
    "DatasetEntry",
    "Difference",
    "Entry",
    "EntryId",
    "EntryKind",
    "Fail",
    "IndexColumnDescriptor",
    "IndexColumnSelector",
    "Ingest",
    "IngestQuery",
    "LazyChunkStream",
    "LazyStore",
    "MetricsCollector",
    "NotFoundError",
    "OptimizationProfile",
    "Pipeline",
    "PipelineError",
    "QueryMetrics",
    "ReadError",
    "ReadWarning",
    "RecordingStore",
    "Retry",
    "RunReport",
    "Schema",
    "Server",
    "SessionError",
    "Skip",
    "StoreEntry",
    "StoreVersion",
    "TableEntry",
    "TimeColumn",
    "UDF",
    "UnpackedUDF",
    "UsageError",
    "Verification",
    "ViewerClient",
    "WriteError",
    "compare",
    "fail_fast",
    "get_session",
    "load_pipeline",
    "query_metrics",
    "register",
    "retry_all",
    "retry_transient",
    "save_report",
    "send_chunks",
    "skip_on_error",
    "stop_session",
    "udf",
    "verify",
    "video",
    "write_stores",
]

name_terminals(
    __name__,
    {".data_sources": "get_session value_frame", ".store": "chunks_panel collect_plan open_recording read_rows"},
)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
