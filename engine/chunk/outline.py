"""The fate of a chunk in a step, as far as it can be said without looking into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Outline:
    """As much of a chunk as selecting whole chunks needs; ``components`` None where they are not known."""

    entity_path: str
    is_static: bool
    timeline_names: Sequence[str]
    components: frozenset[str] | None = None


class Fate(Enum):
    """The outcome of a step for a chunk."""

    LEFT_OUT = 0
    PASSED_ON = 1
    """It comes out as it came in."""

    LOOKED_INTO = 2
    """Only the chunk itself can tell."""
