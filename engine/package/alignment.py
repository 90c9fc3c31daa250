"""Samples aligned to frames of a fixed rate: the rules of exports, as functions of times."""

from .engine.writers import EXACT, HELD, INTERPOLATED, MISSING, Aligned, Alignment, Outside, Rule, align, frame_times

__all__ = [
    "Aligned",
    "Alignment",
    "EXACT",
    "HELD",
    "INTERPOLATED",
    "MISSING",
    "Outside",
    "Rule",
    "align",
    "frame_times",
]
