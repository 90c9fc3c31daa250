"""Lance tables. This package alone imports Lance, and only when a table is read or written.

The names below are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .index_table import ENTRY, INSTANCE, IndexTable, SearchIndex, TextIndex, VectorIndex, found_in
    from .snapshot import TableSnapshot
    from .table import LanceTable
    from .user_table import RowSource, UserTable, keys_of

_HOMES = {
    ".index_table": "ENTRY INSTANCE IndexTable SearchIndex TextIndex VectorIndex found_in",
    ".snapshot": "TableSnapshot",
    ".table": "LanceTable",
    ".user_table": "RowSource UserTable keys_of",
}

__all__ = [
    "ENTRY",
    "INSTANCE",
    "IndexTable",
    "LanceTable",
    "RowSource",
    "SearchIndex",
    "TableSnapshot",
    "TextIndex",
    "UserTable",
    "VectorIndex",
    "found_in",
    "keys_of",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
