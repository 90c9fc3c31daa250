# Made of the table in __init__.py: python -m tests.run house stubs
from .file import ParquetFile as ParquetFile
from .file import open_file as open_file
from .file import read_columns as read_columns
from .layout import one_each as one_each
from .layout import row_numbers as row_numbers
from .layout import timeline as timeline
from .options import ColumnRule as ColumnRule
from .options import IndexColumn as IndexColumn
from .reader import ColumnInfo as ColumnInfo
from .reader import ParquetInfo as ParquetInfo
from .reader import ParquetReader as ParquetReader
from .recording import ParquetRecording as ParquetRecording
from .source import CHUNK_BYTES as CHUNK_BYTES
from .source import ParquetSource as ParquetSource
from .source import ParquetSplit as ParquetSplit
from .source import series_chunk as series_chunk

__all__: list[str]
