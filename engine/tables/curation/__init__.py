"""Curation of a table's rows: near-duplicates by their vectors, and samples.

The names below are loaded when they are first used.
"""

from ...lazy_names import lazy_names

_HOMES = {
    ".duplicates": "Vectors near_duplicates",
    ".sampling": "Sampler TableCuration",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
