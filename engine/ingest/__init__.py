"""Landing folders into recordings, continuously and exactly once; its names are loaded when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .checkpoint import home_of
    from .events import IngestListener, IngestLog, logging_to
    from .files import BatchResult, FileResult, LandedFile, Outcome, file_at
    from .ingest import MAX_BYTES, MAX_FILES, Ingest
    from .landing import Landing, Lister
    from .landing_log import LandingLog
    from .metrics import IngestMetrics, MetricsServer
    from .quarantine import FileQuarantine, QuarantinedFile
    from .query import IngestQuery
    from .spark_query import LandingReader, SupportsTriggerAvailableNow
    from .status import IngestStatus, Rate, StatusReader

_HOMES = {
    ".checkpoint": "home_of",
    ".events": "IngestListener IngestLog logging_to",
    ".files": "BatchResult FileResult LandedFile Outcome file_at",
    ".ingest": "Ingest MAX_BYTES MAX_FILES",
    ".landing": "Landing Lister",
    ".landing_log": "LandingLog",
    ".metrics": "IngestMetrics MetricsServer",
    ".quarantine": "FileQuarantine QuarantinedFile",
    ".query": "IngestQuery",
    ".spark_query": "LandingReader SupportsTriggerAvailableNow",
    ".status": "IngestStatus Rate StatusReader",
}

__all__ = [
    "BatchResult",
    "FileQuarantine",
    "FileResult",
    "Ingest",
    "IngestListener",
    "IngestLog",
    "IngestMetrics",
    "IngestQuery",
    "IngestStatus",
    "LandedFile",
    "Landing",
    "LandingLog",
    "LandingReader",
    "Lister",
    "MAX_BYTES",
    "MAX_FILES",
    "MetricsServer",
    "Outcome",
    "QuarantinedFile",
    "Rate",
    "StatusReader",
    "SupportsTriggerAvailableNow",
    "file_at",
    "home_of",
    "logging_to",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
