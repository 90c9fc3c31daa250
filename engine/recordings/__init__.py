"""The files of a store of recordings: versions, tables, manifests and shards, and who writes them."""

from .compaction import CompactionReport
from .entry import RecordingEntry
from .version import RecordingsVersion
from .writer import Arrived, Commit, Source, StoreWriter

__all__ = ["Arrived", "Commit", "CompactionReport", "RecordingEntry", "RecordingsVersion", "Source", "StoreWriter"]
