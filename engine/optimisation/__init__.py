"""Chunks laid out as a profile asks: merged and split, columns apart by size, video by groups of pictures."""

from . import video
from .collect import WholeWork, collect_parts, is_small
from .entities import ByReference, EntityWork, FoundChunks, InFile, InStore, stored_size
from .passes import optimised
from .profile import OptimizationProfile, Settings

__all__ = [
    "ByReference",
    "EntityWork",
    "FoundChunks",
    "InFile",
    "InStore",
    "OptimizationProfile",
    "Settings",
    "WholeWork",
    "collect_parts",
    "is_small",
    "optimised",
    "stored_size",
    "video",
]
