"""Parquet files: the reader, its rules for columns, and the source that pipelines pull from.

The names below are loaded when they are first used, so that a program that needs one of them does not load the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...engine.lazy_names import lazy_names

if TYPE_CHECKING:
    from .column_rule import ColumnRule
    from .info import ColumnInfo, ParquetInfo
    from .options import IndexColumn
    from .plan import ParquetSplit
    from .reader import ParquetReader
    from .source import ParquetSource

_HOMES = {
    ".column_rule": ("ColumnRule",),
    ".info": (
        "ColumnInfo",
        "ParquetInfo",
    ),
    ".options": ("IndexColumn",),
    ".plan": ("ParquetSplit",),
    ".reader": ("ParquetReader",),
    ".source": ("ParquetSource",),
}

__all__ = [
    "ColumnInfo",
    "ColumnRule",
    "IndexColumn",
    "ParquetInfo",
    "ParquetReader",
    "ParquetSource",
    "ParquetSplit",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
