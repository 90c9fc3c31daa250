"""The catalog: a lake of recordings by names. Entries, datasets of segments, and a server of them for a while.

The names below are loaded when they are first used: who reads an RRD needs no DataFusion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from ..chunk import (
        ComponentColumnDescriptor,
        ComponentColumnSelector,
        IndexColumnDescriptor,
        IndexColumnSelector,
        Schema,
    )
    from ..errors import AlreadyExistsError, NotFoundError
    from ..recordings import is_catalog
    from ..stream import ContentFilter
    from .blueprints import Recording
    from .client import CatalogClient, Queried, VersionInfo, chosen_segments, one_dataset, queried_at
    from .dataset import DatasetEntry, DatasetView
    from .deprecated import TableInsertMode
    from .entries import EntryId, EntryKind
    from .entry_log import Entry
    from .layers import OnDuplicateSegmentLayer
    from .maintenance import CatalogFault
    from .registration import RegistrationHandle, RegistrationResult, SegmentRegistrationResult
    from .row_view import IndexValuesLike
    from .search import IndexConfig, IndexingResult, IndexProperties, VectorDistanceMetric, VectorDistanceMetricLike
    from .server import Server
    from .table import TableEntry

_HOMES = {
    "..chunk": "ComponentColumnDescriptor ComponentColumnSelector IndexColumnDescriptor IndexColumnSelector Schema",
    "..errors": "AlreadyExistsError NotFoundError",
    "..recordings": "is_catalog",
    "..stream": "ContentFilter",
    ".blueprints": "Recording",
    ".client": "CatalogClient Queried VersionInfo chosen_segments one_dataset queried_at",
    ".dataset": "DatasetEntry DatasetView",
    ".deprecated": "TableInsertMode",
    ".entries": "EntryId EntryKind",
    ".entry_log": "Entry",
    ".layers": "OnDuplicateSegmentLayer",
    ".maintenance": "CatalogFault",
    ".registration": "RegistrationHandle RegistrationResult SegmentRegistrationResult",
    ".row_view": "IndexValuesLike",
    ".search": "IndexConfig IndexProperties IndexingResult VectorDistanceMetric VectorDistanceMetricLike",
    ".server": "Server",
    ".table": "TableEntry",
}

__all__ = [
    "AlreadyExistsError",
    "CatalogClient",
    "CatalogFault",
    "ComponentColumnDescriptor",
    "ComponentColumnSelector",
    "ContentFilter",
    "DatasetEntry",
    "DatasetView",
    "Entry",
    "EntryId",
    "EntryKind",
    "IndexColumnDescriptor",
    "IndexColumnSelector",
    "IndexConfig",
    "IndexProperties",
    "IndexValuesLike",
    "IndexingResult",
    "NotFoundError",
    "OnDuplicateSegmentLayer",
    "Queried",
    "Recording",
    "RegistrationHandle",
    "RegistrationResult",
    "Schema",
    "SegmentRegistrationResult",
    "Server",
    "TableEntry",
    "TableInsertMode",
    "VectorDistanceMetric",
    "VectorDistanceMetricLike",
    "VersionInfo",
    "chosen_segments",
    "is_catalog",
    "one_dataset",
    "queried_at",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
