"""Lance tables. This package alone imports Lance, and only when a table is read or written.

The names below are loaded when they are first used.
"""

import os

from ..lazy_names import lazy_names

# At each commit of a column file, Lance warns that this kind of commit may change. The tested version of Lance is
# pinned, and every such commit is checked.
os.environ.setdefault("LANCE_LOG", "warn,lance_table::transaction=error")

_HOMES = {
    ".changes": (
        "IS_SET RowChanges SOURCE_ROW by_fragment change_rows row_changes row_ids rows_elsewhere source_rows "
        "tagged_versions version_holds"
    ),
    ".expressions": "TableSnapshot",
    ".file_digests": "TableVerification",
    ".fragments": "ColumnFile Fragment FragmentReader OFFSET",
    ".gate": "Gate",
    ".history": "TableHistory TableVersions",
    ".indexes": "ENTRY INSTANCE IndexTable SearchIndex TextIndex VectorIndex found_in make_index",
    ".place": "FixedTable",
    ".rows": "Batches TableRows UNNAMEABLE exact_array is_blob is_spark_frame keys_of rows_of",
    ".table": "JoinedFragments LanceTable RowSource",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
