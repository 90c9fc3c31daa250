"""Chunks laid out as a profile asks: merged and split, columns apart by size, video by groups of pictures."""

from . import video
from .collect import ChunkReferences, EntityWork, WholeWork, collect_parts, is_small, stored_size
from .passes import optimised
from .profile import OptimizationProfile, Settings

__all__ = [
    "ChunkReferences",
    "EntityWork",
    "OptimizationProfile",
    "Settings",
    "WholeWork",
    "collect_parts",
    "is_small",
    "optimised",
    "stored_size",
    "video",
]
