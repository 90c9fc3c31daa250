# Made of the table in __init__.py: python -m tests.run house stubs
from .changes import IS_SET as IS_SET
from .changes import RowChanges as RowChanges
from .changes import SOURCE_ROW as SOURCE_ROW
from .changes import by_fragment as by_fragment
from .changes import change_rows as change_rows
from .changes import row_changes as row_changes
from .changes import source_rows as source_rows
from .expressions import TableSnapshot as TableSnapshot
from .file_digests import TableVerification as TableVerification
from .fragments import ColumnFile as ColumnFile
from .fragments import Fragment as Fragment
from .fragments import FragmentReader as FragmentReader
from .fragments import OFFSET as OFFSET
from .gate import Gate as Gate
from .indexes import ENTRY as ENTRY
from .indexes import INSTANCE as INSTANCE
from .indexes import IndexTable as IndexTable
from .indexes import SearchIndex as SearchIndex
from .indexes import TextIndex as TextIndex
from .indexes import VectorIndex as VectorIndex
from .indexes import found_in as found_in
from .indexes import make_index as make_index
from .place import FixedTable as FixedTable
from .rows import Batches as Batches
from .rows import TableRows as TableRows
from .rows import UNNAMEABLE as UNNAMEABLE
from .rows import exact_array as exact_array
from .rows import is_blob as is_blob
from .rows import is_spark_frame as is_spark_frame
from .rows import keys_of as keys_of
from .rows import rows_of as rows_of
from .table import JoinedFragments as JoinedFragments
from .table import LanceTable as LanceTable
from .table import RowSource as RowSource

__all__: list[str]
