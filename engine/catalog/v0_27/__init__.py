"""The catalog by the names of Rerun 0.27: a face over that of today, with the parameters and return types of then.

The names below are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy_names import lazy_names

if TYPE_CHECKING:
    from ...errors import AlreadyExistsError, NotFoundError
    from ..deprecated import TableInsertMode
    from ..entries import EntryId, EntryKind
    from ..row_view import IndexValuesLike, ViewContentsLike
    from ..search import VectorDistanceMetric, VectorDistanceMetricLike
    from .client import CatalogClient
    from .dataset import DatasetEntry
    from .entries import Entry, TableEntry
    from .providers import DataFusionTable
    from .query_view import DataframeQueryView
    from .tasks import Task, Tasks

_HOMES = {
    "...errors": "AlreadyExistsError NotFoundError",
    "..deprecated": "TableInsertMode",
    "..entries": "EntryId EntryKind",
    "..search": "VectorDistanceMetric VectorDistanceMetricLike",
    ".client": "CatalogClient",
    ".dataset": "DatasetEntry",
    ".entries": "Entry TableEntry",
    ".providers": "DataFusionTable",
    "..row_view": "IndexValuesLike ViewContentsLike",
    ".query_view": "DataframeQueryView",
    ".tasks": "Task Tasks",
}

__all__ = [
    "AlreadyExistsError",
    "CatalogClient",
    "DataFusionTable",
    "DataframeQueryView",
    "DatasetEntry",
    "Entry",
    "EntryId",
    "EntryKind",
    "IndexValuesLike",
    "NotFoundError",
    "TableEntry",
    "TableInsertMode",
    "Task",
    "Tasks",
    "VectorDistanceMetric",
    "VectorDistanceMetricLike",
    "ViewContentsLike",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
