"""Stores of chunks, and how they are optimised."""

from . import video
from .chunk_store import ChunkStore
from .kept import StoreVersion
from .lazy_store import LazyStore
from .profile import OptimizationProfile

__all__ = ["ChunkStore", "LazyStore", "OptimizationProfile", "StoreVersion", "video"]
