"""Readers: recordings as streams of chunks.

The names below are loaded when they are first used, so that a program that reads one format does not load the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine.lazy_names import lazy_names

if TYPE_CHECKING:
    from .formats import (
        FORMATS,
        STORE,
        Format,
        all_options,
        all_suffixes,
        checked_options,
        dataset_format,
        detect_format,
        format_of_name,
        inspect,
        is_rrd,
        register,
        rrd_suffix,
        stem_of,
        unregister,
    )
    from .inspection import EntitySummary, FileReport, StoreReport, TimelineReport
    from .lerobot import LeRobotDataset, LeRobotReader
    from .mcap import McapInfo, McapReader
    from .parquet import ColumnRule, IndexColumn, ParquetReader
    from .recording_file import (
        Episode,
        FileSource,
        FrameReader,
        IndexedReader,
        Option,
        RecordingFile,
        StreamingReader,
        option,
    )
    from .rrd import RrdReader

_HOMES = {
    ".formats": "FORMATS Format STORE all_options all_suffixes checked_options dataset_format "
    "detect_format format_of_name inspect is_rrd register rrd_suffix stem_of unregister",
    ".inspection": "EntitySummary FileReport StoreReport TimelineReport",
    ".lerobot": "LeRobotDataset LeRobotReader",
    ".mcap": "McapInfo McapReader",
    ".parquet": "ColumnRule IndexColumn ParquetReader",
    ".recording_file": "Episode FileSource FrameReader IndexedReader Option RecordingFile StreamingReader option",
    ".rrd": "RrdReader",
}

__all__ = [
    "ColumnRule",
    "EntitySummary",
    "Episode",
    "FORMATS",
    "FileReport",
    "FileSource",
    "Format",
    "FrameReader",
    "IndexColumn",
    "IndexedReader",
    "LeRobotDataset",
    "LeRobotReader",
    "McapInfo",
    "McapReader",
    "Option",
    "ParquetReader",
    "RecordingFile",
    "RrdReader",
    "STORE",
    "StoreReport",
    "StreamingReader",
    "TimelineReport",
    "all_options",
    "all_suffixes",
    "checked_options",
    "dataset_format",
    "detect_format",
    "format_of_name",
    "inspect",
    "is_rrd",
    "option",
    "register",
    "rrd_suffix",
    "stem_of",
    "unregister",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
