"""Readers: recordings as streams of chunks."""

from .mcap import McapReader
from .parquet import ColumnRule, ParquetReader
from .protocols import IndexedReader, StreamingReader
from .rrd import RrdReader

__all__ = ["ColumnRule", "IndexedReader", "McapReader", "ParquetReader", "RrdReader", "StreamingReader"]
