"""Lance tables. This package alone imports Lance, and only when a table is read or written.

The names below are loaded when they are first used.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

# Lance says at each commit of a column's file that this kind of commit may change; the version that it is tried with is
# pinned, and what is committed is checked.
os.environ.setdefault("LANCE_LOG", "warn,lance_table::transaction=error")

if TYPE_CHECKING:
    from .blob_columns import is_blob
    from .changed_rows import RowChanges, by_fragment, row_changes
    from .computed_table import ComputedTable
    from .file_digests import TableVerification
    from .fragments import OFFSET, ColumnFile, Fragment, FragmentReader
    from .gate import Gate
    from .index_table import ENTRY, INSTANCE, IndexTable, SearchIndex, TextIndex, VectorIndex, found_in
    from .new_columns import UNNAMEABLE, keys_of
    from .searched_table import SearchedTable
    from .snapshot import TableSnapshot
    from .table import LanceTable
    from .table_rows import Batches, TableRows, exact_array, is_spark_frame, rows_of
    from .user_table import JoinedFragments, RowSource, UserTable
    from .view_table import IS_SET, SOURCE_ROW, ViewTable

_HOMES = {
    ".blob_columns": "is_blob",
    ".computed_table": "ComputedTable",
    ".file_digests": "TableVerification",
    ".fragments": "ColumnFile Fragment FragmentReader OFFSET",
    ".gate": "Gate",
    ".index_table": "ENTRY INSTANCE IndexTable SearchIndex TextIndex VectorIndex found_in",
    ".changed_rows": "RowChanges by_fragment row_changes",
    ".new_columns": "UNNAMEABLE keys_of",
    ".searched_table": "SearchedTable",
    ".snapshot": "TableSnapshot",
    ".table": "LanceTable",
    ".table_rows": "Batches TableRows exact_array is_spark_frame rows_of",
    ".user_table": "JoinedFragments RowSource UserTable",
    ".view_table": "IS_SET SOURCE_ROW ViewTable",
}

__all__ = [
    "Batches",
    "ColumnFile",
    "ComputedTable",
    "ENTRY",
    "Fragment",
    "FragmentReader",
    "Gate",
    "INSTANCE",
    "IS_SET",
    "IndexTable",
    "JoinedFragments",
    "LanceTable",
    "OFFSET",
    "RowChanges",
    "RowSource",
    "SOURCE_ROW",
    "SearchIndex",
    "SearchedTable",
    "TableRows",
    "TableSnapshot",
    "TableVerification",
    "TextIndex",
    "UNNAMEABLE",
    "UserTable",
    "VectorIndex",
    "ViewTable",
    "by_fragment",
    "exact_array",
    "found_in",
    "is_blob",
    "is_spark_frame",
    "keys_of",
    "row_changes",
    "rows_of",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
