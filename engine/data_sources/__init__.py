"""Spark's data sources: recordings as DataFrames, landing folders as streams, and sinks for chunk rows.

The names below are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .reading import value_frame
    from .sources import data_source_of, get_session, register

_HOMES = {".sources": "data_source_of get_session register", ".reading": "value_frame"}

__all__ = ["data_source_of", "get_session", "register", "value_frame"]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
