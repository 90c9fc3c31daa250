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
    from .changes import IS_SET, SOURCE_ROW, RowChanges, by_fragment, change_rows, row_changes, source_rows
    from .expressions import TableSnapshot
    from .file_digests import TableVerification
    from .fragments import OFFSET, ColumnFile, Fragment, FragmentReader
    from .gate import Gate
    from .indexes import ENTRY, INSTANCE, IndexTable, SearchIndex, TextIndex, VectorIndex, found_in, make_index
    from .place import FixedTable
    from .rows import UNNAMEABLE, Batches, TableRows, exact_array, is_blob, is_spark_frame, keys_of, rows_of
    from .table import JoinedFragments, LanceTable, RowSource

_HOMES = {
    ".changes": "IS_SET RowChanges SOURCE_ROW by_fragment change_rows row_changes source_rows",
    ".expressions": "TableSnapshot",
    ".file_digests": "TableVerification",
    ".fragments": "ColumnFile Fragment FragmentReader OFFSET",
    ".gate": "Gate",
    ".indexes": "ENTRY INSTANCE IndexTable SearchIndex TextIndex VectorIndex found_in make_index",
    ".place": "FixedTable",
    ".rows": "Batches TableRows UNNAMEABLE exact_array is_blob is_spark_frame keys_of rows_of",
    ".table": "JoinedFragments LanceTable RowSource",
}

__all__ = [
    "Batches",
    "ColumnFile",
    "ENTRY",
    "FixedTable",
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
    "TableRows",
    "TableSnapshot",
    "TableVerification",
    "TextIndex",
    "UNNAMEABLE",
    "VectorIndex",
    "by_fragment",
    "change_rows",
    "exact_array",
    "found_in",
    "is_blob",
    "is_spark_frame",
    "keys_of",
    "make_index",
    "row_changes",
    "rows_of",
    "source_rows",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
