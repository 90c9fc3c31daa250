"""Parquet files: the reader, its rules for columns, and the source that pipelines pull from.

The names below are loaded when they are first used, so that a program that needs one of them does not load the others.
"""

from ...engine.lazy_names import lazy_names

_HOMES = {
    ".file": "ParquetFile open_file read_columns",
    ".layout": "one_each row_numbers timeline",
    ".options": "ColumnRule IndexColumn",
    ".reader": "ColumnInfo ParquetInfo ParquetReader",
    ".recording": "ParquetRecording",
    ".source": "CHUNK_BYTES ParquetSource ParquetSplit series_chunk",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
