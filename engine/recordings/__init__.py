"""A kept store of many recordings, with versions."""

from .compaction import CompactionReport
from .entry import RecordingEntry
from .store import RecordingStore
from .version import RecordingsVersion
from .writer import Arrived, Commit, Source, StoreWriter

__all__ = [
    "Arrived",
    "Commit",
    "CompactionReport",
    "RecordingEntry",
    "RecordingStore",
    "RecordingsVersion",
    "Source",
    "StoreWriter",
]
