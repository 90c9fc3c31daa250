"""Stores of chunks: of one recording, collected or known by its manifest, and of many, kept with versions."""

from ..optimisation import OptimizationProfile, video
from .chunk_store import ChunkStore
from .recording_store import RecordingStore
from .stored import LazyStore, StoreVersion

__all__ = ["ChunkStore", "LazyStore", "OptimizationProfile", "RecordingStore", "StoreVersion", "video"]
