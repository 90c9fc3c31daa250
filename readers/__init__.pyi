# Made of the table in __init__.py: python -m tests.run house stubs
from .formats import FORMATS as FORMATS
from .formats import Format as Format
from .formats import STORE as STORE
from .formats import all_options as all_options
from .formats import all_suffixes as all_suffixes
from .formats import checked_options as checked_options
from .formats import dataset_format as dataset_format
from .formats import detect_format as detect_format
from .formats import format_of_name as format_of_name
from .formats import inspect as inspect
from .formats import is_rrd as is_rrd
from .formats import register as register
from .formats import rrd_suffix as rrd_suffix
from .formats import stem_of as stem_of
from .formats import unregister as unregister
from .inspection import EntitySummary as EntitySummary
from .inspection import FileReport as FileReport
from .inspection import StoreReport as StoreReport
from .inspection import TimelineReport as TimelineReport
from .lerobot import LeRobotDataset as LeRobotDataset
from .lerobot import LeRobotReader as LeRobotReader
from .mcap import McapInfo as McapInfo
from .mcap import McapReader as McapReader
from .parquet import ColumnRule as ColumnRule
from .parquet import IndexColumn as IndexColumn
from .parquet import ParquetReader as ParquetReader
from .recording_file import Episode as Episode
from .recording_file import FileSource as FileSource
from .recording_file import FrameReader as FrameReader
from .recording_file import IndexedReader as IndexedReader
from .recording_file import Option as Option
from .recording_file import RecordingFile as RecordingFile
from .recording_file import StreamingReader as StreamingReader
from .recording_file import option as option
from .rrd import RrdReader as RrdReader

__all__: list[str]
