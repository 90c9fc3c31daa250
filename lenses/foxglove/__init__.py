"""Foxglove's messages and their meaning: lenses from decoded messages to Rerun's archetypes."""

from .mappings import foxglove_lenses

__all__ = ["foxglove_lenses"]
