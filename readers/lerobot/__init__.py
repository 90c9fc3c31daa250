"""LeRobot datasets: each episode a recording."""

from .dataset import LeRobotDataset, LeRobotEpisode, is_dataset
from .source import EpisodeSource

__all__ = ["EpisodeSource", "LeRobotDataset", "LeRobotEpisode", "is_dataset"]
