"""Landing folders into recordings, continuously and exactly once; its names are loaded when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .checkpoint import home_of
    from .files import BatchResult, FileResult, LandedFile, Outcome, file_at
    from .ingest import MAX_BYTES, MAX_FILES, Ingest
    from .landing import Landing, Lister
    from .landing_log import LandingLog
    from .monitoring import (
        IngestListener,
        IngestLog,
        IngestMetrics,
        IngestStatus,
        MetricsServer,
        Rate,
        StatusReader,
        logging_to,
    )
    from .quarantine import FileQuarantine, QuarantinedFile
    from .query import IngestQuery
    from .spark_query import LandingReader, SupportsTriggerAvailableNow

_HOMES = {
    ".checkpoint": "home_of",
    ".files": "BatchResult FileResult LandedFile Outcome file_at",
    ".ingest": "Ingest MAX_BYTES MAX_FILES",
    ".landing": "Landing Lister",
    ".landing_log": "LandingLog",
    ".monitoring": "IngestListener IngestLog IngestMetrics IngestStatus MetricsServer Rate StatusReader logging_to",
    ".quarantine": "FileQuarantine QuarantinedFile",
    ".query": "IngestQuery",
    ".spark_query": "LandingReader SupportsTriggerAvailableNow",
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
