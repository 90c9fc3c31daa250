"""Stores of chunks: of one recording, collected or known by its manifest, and of many, kept with versions."""

from ..optimisation import OptimizationProfile, video
from .chunk_store import ChunkStore
from .kept import StoreVersion
from .lazy_store import LazyStore
from .recording_store import RecordingStore

__all__ = ["ChunkStore", "LazyStore", "OptimizationProfile", "RecordingStore", "StoreVersion", "video"]
