"""The catalog, a lake of named recordings: its entries, its datasets of segments, and a temporary server.

Each name below is loaded on first use, so that reading an RRD does not need DataFusion.
"""

from ..lazy_names import lazy_names

_HOMES = {
    "..chunk": "ComponentColumnDescriptor ComponentColumnSelector IndexColumnDescriptor IndexColumnSelector Schema",
    "..errors": "AlreadyExistsError NotFoundError",
    "..recordings": "is_catalog",
    "..stream": "ContentFilter",
    ".blueprints": "Recording",
    ".client": "BearerTokenObjectStoreAuth CatalogClient ObjectStoreAuth Queried VersionInfo one_dataset queried_at",
    ".copying": "CopyReport",
    ".dataset": "DatasetEntry DatasetSelection DatasetView",
    ".deprecated": "TableInsertMode",
    ".entries": "EntryId EntryKind",
    ".entry_log": "Entry",
    ".forget": "ForgetReport RemainingItem RemovedItem",
    ".layers": "OnDuplicateSegmentLayer requests_below requests_of",
    ".maintenance": "CatalogFault",
    ".registration": (
        "RegistrationHandle RegistrationOperation RegistrationResult SegmentRegistrationResult UnregistrationHandle"
    ),
    ".row_view": "IndexValuesLike",
    ".sql": "CatalogContext",
    ".search": "IndexConfig IndexProperties IndexingResult VectorDistanceMetric VectorDistanceMetricLike",
    ".segments": "DatasetInfo Layer LayerInfo Segment TimelineInfo chosen_segments",
    ".server": "ServedDataset Server",
    ".table": "TableTasks TableEntry",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
