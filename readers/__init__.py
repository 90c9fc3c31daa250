"""Readers: recordings as streams of chunks."""

from .lerobot import LeRobotDataset
from .mcap import McapReader
from .parquet import ColumnRule, ParquetReader
from .protocols import IndexedReader, StreamingReader
from .rrd import RrdReader

__all__ = [
    "ColumnRule",
    "IndexedReader",
    "LeRobotDataset",
    "McapReader",
    "ParquetReader",
    "RrdReader",
    "StreamingReader",
]
