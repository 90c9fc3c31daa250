"""Stores of chunks, and how they are optimised."""

from ..stream.extensions import register
from .chunk_store import ChunkStore, collect
from .kept import StoreVersion
from .lazy_store import LazyStore
from .profile import OptimizationProfile

register("collect", collect)

__all__ = ["ChunkStore", "LazyStore", "OptimizationProfile", "StoreVersion"]
