"""The files of a store of recordings: versions, tables, manifests and shards, and who writes them.

The names below are loaded when they are first used: who reads an RRD needs none of them.
"""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .compaction import CompactionReport
    from .entries import RecordingEntry
    from .versions import RecordingsVersion
    from .writer import Arrived, Commit, Source, StoreWriter

_HOMES = {
    ".compaction": ("CompactionReport",),
    ".entries": ("RecordingEntry",),
    ".versions": ("RecordingsVersion",),
    ".writer": ("Arrived", "Commit", "Source", "StoreWriter"),
}

__all__ = ["Arrived", "Commit", "CompactionReport", "RecordingEntry", "RecordingsVersion", "Source", "StoreWriter"]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
