"""Chunk layouts by profile: chunks merged and split, columns separated by size, video in groups of pictures."""

from . import video
from .collect import ChunkReferences, EntityWork, chunks_by_task, collect_parts, run_laid_out, stored_size
from .passes import optimised
from .profile import OptimizationProfile, Settings

__all__ = [
    "ChunkReferences",
    "EntityWork",
    "OptimizationProfile",
    "Settings",
    "chunks_by_task",
    "collect_parts",
    "optimised",
    "run_laid_out",
    "stored_size",
    "video",
]
