"""Parquet files: the reader, its rules for columns, and the source that pipelines pull from."""

from .column_rule import ColumnRule
from .info import ColumnInfo, ParquetInfo
from .options import IndexColumn
from .plan import ParquetSplit
from .reader import ParquetReader
from .source import ParquetSource

__all__ = ["ColumnInfo", "ColumnRule", "IndexColumn", "ParquetInfo", "ParquetReader", "ParquetSource", "ParquetSplit"]
