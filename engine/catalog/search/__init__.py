"""Search in components of a dataset: for words, and for the nearest vectors.

The names below are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy_names import lazy_names

if TYPE_CHECKING:
    from .indexes import SearchIndexes
    from .metrics import (
        AnyComponentColumn,
        IndexConfig,
        IndexingResult,
        IndexProperties,
        VectorDistanceMetric,
        VectorDistanceMetricLike,
    )
    from .searching import DatasetSearch

_HOMES = {
    ".indexes": "SearchIndexes",
    ".metrics": "AnyComponentColumn IndexConfig IndexProperties IndexingResult VectorDistanceMetric "
    "VectorDistanceMetricLike",
    ".searching": "DatasetSearch",
}

__all__ = [
    "AnyComponentColumn",
    "DatasetSearch",
    "IndexConfig",
    "IndexProperties",
    "IndexingResult",
    "SearchIndexes",
    "VectorDistanceMetric",
    "VectorDistanceMetricLike",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
