"""Inputs of every format: finding them, and opening the streams of each.

The names below are loaded when they are first used: a command line that only shows its help needs none of them.
"""

from ..lazy_names import lazy_names

_HOMES = {
    ".comparison": "Comparison Difference compare",
    ".stores": "APPLICATION_ID FoundInput SourceOptions Stores is_table search_inputs stores_of verify",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
