"""What Foxglove's messages mean: lenses from decoded messages to Rerun's archetypes."""

from __future__ import annotations

from .lens import DeriveLens


def foxglove_lenses(schema_name: str) -> tuple[DeriveLens, ...]:
    """The lenses for messages of a type (``foxglove.PoseInFrame``); none for types without a mapping."""
    del schema_name
    return ()
