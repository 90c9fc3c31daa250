"""Readers: recordings as streams of chunks.

The names below are loaded when they are first used, so that a program that reads one format does not load the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine.lazy_names import lazy_names

if TYPE_CHECKING:
    from .lerobot import LeRobotDataset, LeRobotReader
    from .mcap import McapInfo, McapReader
    from .parquet import ColumnRule, IndexColumn, ParquetReader
    from .protocols import IndexedReader, StreamingReader
    from .rrd import RrdReader

_HOMES = {
    ".lerobot": (
        "LeRobotDataset",
        "LeRobotReader",
    ),
    ".mcap": (
        "McapInfo",
        "McapReader",
    ),
    ".parquet": (
        "ColumnRule",
        "IndexColumn",
        "ParquetReader",
    ),
    ".protocols": (
        "IndexedReader",
        "StreamingReader",
    ),
    ".rrd": ("RrdReader",),
}

__all__ = [
    "ColumnRule",
    "IndexColumn",
    "IndexedReader",
    "LeRobotDataset",
    "LeRobotReader",
    "McapInfo",
    "McapReader",
    "ParquetReader",
    "RrdReader",
    "StreamingReader",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
