# Made of the table in __init__.py: python -m tests.run house stubs
from . import engine as engine
from . import lenses as lenses
from . import readers as readers
from .engine import *
from .lenses import DeriveLens as DeriveLens
from .lenses import Lens as Lens
from .lenses import MutateLens as MutateLens
from .lenses import OnError as OnError
from .lenses import OutputMode as OutputMode
from .lenses import Quarantine as Quarantine
from .lenses import Selector as Selector
from .readers import BagReader as BagReader
from .readers import ColumnRule as ColumnRule
from .readers import IndexColumn as IndexColumn
from .readers import LeRobotDataset as LeRobotDataset
from .readers import LeRobotReader as LeRobotReader
from .readers import McapInfo as McapInfo
from .readers import McapReader as McapReader
from .readers import Mp4Reader as Mp4Reader
from .readers import Mp4TranscodeOptions as Mp4TranscodeOptions
from .readers import ParquetReader as ParquetReader
from .readers import Rosbag2Reader as Rosbag2Reader
from .readers import RrdReader as RrdReader

__version__: str
__all__: list[str]
