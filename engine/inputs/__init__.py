"""Inputs of every format: where they are, and the streams that one becomes.

The names below are loaded when they are first used: a command line that only shows its help needs none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .comparison import Comparison, Difference, compare
    from .stores import APPLICATION_ID, FoundInput, SourceOptions, Stores, is_table, search_inputs, stores_of, verify

_HOMES = {
    ".comparison": "Comparison Difference compare",
    ".stores": "APPLICATION_ID FoundInput SourceOptions Stores is_table search_inputs stores_of verify",
}

__all__ = [
    "APPLICATION_ID",
    "Comparison",
    "Difference",
    "FoundInput",
    "SourceOptions",
    "Stores",
    "compare",
    "is_table",
    "search_inputs",
    "stores_of",
    "verify",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
