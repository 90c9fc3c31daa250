"""Readers: recordings as streams of chunks.

The names below are loaded when they are first used, so that a program that reads one format does not load the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine.lazy_names import lazy_names

if TYPE_CHECKING:
    from .lerobot import LeRobotDataset
    from .mcap import McapReader
    from .parquet import ColumnRule, ParquetReader
    from .protocols import IndexedReader, StreamingReader
    from .rrd import RrdReader

_HOMES = {
    ".lerobot": ("LeRobotDataset",),
    ".mcap": ("McapReader",),
    ".parquet": (
        "ColumnRule",
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
    "IndexedReader",
    "LeRobotDataset",
    "McapReader",
    "ParquetReader",
    "RrdReader",
    "StreamingReader",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
