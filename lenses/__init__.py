"""Lenses: columns that selectors make from other columns."""

from . import archetypes
from .lens import TIMELINE_TYPES, DeriveLens, Lens, LensOutput, MutateLens, OutputMode
from .lens_set import ContentPredicate, LensSet, OnError, Quarantine, apply_lenses, apply_selector
from .selector import UNITS, Selector, unit_factor

__all__ = [
    "ContentPredicate",
    "DeriveLens",
    "Lens",
    "LensOutput",
    "LensSet",
    "MutateLens",
    "OnError",
    "OutputMode",
    "Quarantine",
    "Selector",
    "TIMELINE_TYPES",
    "UNITS",
    "apply_lenses",
    "apply_selector",
    "archetypes",
    "unit_factor",
]
