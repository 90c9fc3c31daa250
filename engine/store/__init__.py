"""Stores of chunks, and how they are optimised."""

from .profile import OptimizationProfile

__all__ = ["OptimizationProfile"]
