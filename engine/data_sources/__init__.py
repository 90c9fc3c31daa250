"""Spark's data sources: recordings as DataFrames, landing folders as streams, and sinks for chunk rows.

The names below are loaded when they are first used.
"""

from ..lazy_names import lazy_names

_HOMES = {
    ".reading": "value_frame",
    ".sources": "data_source_of get_session register",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
