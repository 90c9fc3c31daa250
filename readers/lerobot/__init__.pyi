# Made of the table in __init__.py: python -m tests.run house stubs
from .dataset import LeRobotDataset as LeRobotDataset
from .dataset import LeRobotEpisode as LeRobotEpisode
from .dataset import LeRobotReader as LeRobotReader
from .recording import LeRobotRecording as LeRobotRecording
from .source import EpisodeSource as EpisodeSource
from .source import is_dataset as is_dataset

__all__: list[str]
