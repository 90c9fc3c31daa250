"""Lance tables. This package alone imports Lance, and only when a table is read or written.

The names below are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .table import LanceTable

_HOMES = {".table": "LanceTable"}

__all__ = ["LanceTable"]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
