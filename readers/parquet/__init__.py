"""Parquet files: the reader, its rules for columns, and the source that pipelines pull from.

The names below are loaded when they are first used, so that a program that needs one of them does not load the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...engine.lazy_names import lazy_names

if TYPE_CHECKING:
    from .file import ParquetFile, open_file, read_columns
    from .layout import one_each
    from .options import ColumnRule, IndexColumn
    from .reader import ColumnInfo, ParquetInfo, ParquetReader, ParquetRecording
    from .source import CHUNK_BYTES, ParquetSource, ParquetSplit, series_chunk

_HOMES = {
    ".file": "ParquetFile open_file read_columns",
    ".layout": "one_each",
    ".options": "ColumnRule IndexColumn",
    ".reader": "ColumnInfo ParquetInfo ParquetReader ParquetRecording",
    ".source": "CHUNK_BYTES ParquetSource ParquetSplit series_chunk",
}

__all__ = [
    "CHUNK_BYTES",
    "ColumnInfo",
    "ColumnRule",
    "IndexColumn",
    "ParquetFile",
    "ParquetInfo",
    "ParquetReader",
    "ParquetRecording",
    "ParquetSource",
    "ParquetSplit",
    "one_each",
    "open_file",
    "read_columns",
    "series_chunk",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
