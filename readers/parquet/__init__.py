"""Parquet files: the reader, its rules for columns, and the source that pipelines pull from.

The names below are loaded when they are first used, so that a program that needs one of them does not load the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...engine.lazy_names import lazy_names

if TYPE_CHECKING:
    from .batches import CHUNK_BYTES, series_chunk
    from .columns import one_each
    from .file import ParquetFile
    from .options import ColumnRule, IndexColumn
    from .pages import open_file, read_columns
    from .reader import ColumnInfo, ParquetInfo, ParquetReader
    from .recording import ParquetRecording
    from .source import ParquetSource, ParquetSplit

_HOMES = {
    ".batches": "CHUNK_BYTES series_chunk",
    ".columns": "one_each",
    ".file": "ParquetFile",
    ".options": "ColumnRule IndexColumn",
    ".pages": "open_file read_columns",
    ".reader": "ColumnInfo ParquetInfo ParquetReader",
    ".recording": "ParquetRecording",
    ".source": "ParquetSource ParquetSplit",
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
