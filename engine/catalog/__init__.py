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
    from .client import CatalogClient, VersionInfo
    from .dataset import DatasetEntry, DatasetView
    from .deprecated import TableInsertMode
    from .entries import EntryId, EntryKind
    from .entry_log import Entry
    from .maintenance import CatalogFault
    from .queried import Queried, chosen_segments, one_dataset, queried_at
    from .recording import Recording
    from .registration_handle import RegistrationHandle, RegistrationResult, SegmentRegistrationResult
    from .requests import OnDuplicateSegmentLayer
    from .row_view import IndexValuesLike
    from .search import IndexConfig, IndexingResult, IndexProperties, VectorDistanceMetric, VectorDistanceMetricLike
    from .server import Server
    from .table_entry import TableEntry

_HOMES = {
    "..chunk": ("ComponentColumnDescriptor ComponentColumnSelector IndexColumnDescriptor IndexColumnSelector Schema"),
    "..errors": "AlreadyExistsError NotFoundError",
    "..recordings": "is_catalog",
    "..stream": "ContentFilter",
    ".client": "CatalogClient VersionInfo",
    ".dataset": "DatasetEntry DatasetView",
    ".deprecated": "TableInsertMode",
    ".entries": "EntryId EntryKind",
    ".entry_log": "Entry",
    ".maintenance": "CatalogFault",
    ".queried": "Queried chosen_segments one_dataset queried_at",
    ".recording": "Recording",
    ".registration_handle": "RegistrationHandle RegistrationResult SegmentRegistrationResult",
    ".requests": "OnDuplicateSegmentLayer",
    ".row_view": "IndexValuesLike",
    ".search": "IndexConfig IndexProperties IndexingResult VectorDistanceMetric VectorDistanceMetricLike",
    ".server": "Server",
    ".table_entry": "TableEntry",
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
