"""Landing folders into recordings, continuously and exactly once; its names are loaded when they are first used."""

from ..lazy_names import lazy_names

_HOMES = {
    ".checkpoint": "home_of",
    ".files": "BatchResult FileResult LandedFile Outcome file_at",
    ".ingest": "Ingest MAX_BYTES MAX_FILES",
    ".landing": "Landing Lister",
    ".landing_log": "LandingLog",
    ".metrics": "IngestListener IngestLog IngestMetrics IngestStatus MetricsServer Rate StatusReader logging_to",
    ".quarantine": "FileQuarantine QuarantinedFile",
    ".query": "IngestQuery",
    ".spark_query": "LandingReader SupportsTriggerAvailableNow",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
