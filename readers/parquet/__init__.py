"""Parquet files: the reader, its rules for columns, and the source that pipelines pull from.

The names below are loaded when they are first used, so that a program that needs one of them does not load the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...engine.lazy_names import lazy_names

if TYPE_CHECKING:
    from .info import ColumnInfo, ParquetInfo
    from .options import IndexColumn
    from .reader import ParquetReader
    from .rules import ColumnRule
    from .source import ParquetSource, ParquetSplit

_HOMES = {
    ".rules": ("ColumnRule",),
    ".info": (
        "ColumnInfo",
        "ParquetInfo",
    ),
    ".options": ("IndexColumn",),
    ".reader": ("ParquetReader",),
    ".source": (
        "ParquetSource",
        "ParquetSplit",
    ),
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
