"""Search in components of a dataset: for words, and for the nearest vectors.

Each name below is loaded on first use.
"""

from ...lazy_names import lazy_names

_HOMES = {
    ".curation": "DatasetCuration label_schema segments_in",
    ".finding": "ValueSearch",
    ".indexes": "SearchIndexes",
    ".searching": (
        "AnyComponentColumn DatasetSearch IndexConfig IndexProperties IndexingResult VectorDistanceMetric "
        "VectorDistanceMetricLike"
    ),
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
