"""Stores of chunks: of one recording, collected or known by its manifest, and of many, kept with versions.

The names below are loaded when they are first used, so that reading an RRD does not load the stores that write.
"""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from ..optimisation import OptimizationProfile, video
    from .chunk_store import ChunkStore
    from .panels import chunks_panel
    from .recording_store import RecordingStore
    from .stored import LazyStore, StoreVersion

_HOMES = {
    "..optimisation": "OptimizationProfile video",
    ".chunk_store": "ChunkStore",
    ".panels": "chunks_panel",
    ".recording_store": "RecordingStore",
    ".stored": "LazyStore StoreVersion",
}

__all__ = ["ChunkStore", "LazyStore", "OptimizationProfile", "RecordingStore", "StoreVersion", "chunks_panel", "video"]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
