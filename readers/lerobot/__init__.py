"""LeRobot datasets: each episode a recording.

The names below are loaded when they are first used, so that a program that reads one format does not load the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...engine.lazy_names import lazy_names

if TYPE_CHECKING:
    from .dataset import LeRobotDataset, LeRobotEpisode, LeRobotReader
    from .metadata import is_dataset
    from .recording import LeRobotRecording
    from .source import EpisodeSource

_HOMES = {
    ".dataset": "LeRobotDataset LeRobotEpisode LeRobotReader",
    ".metadata": "is_dataset",
    ".recording": "LeRobotRecording",
    ".source": "EpisodeSource",
}

__all__ = [
    "EpisodeSource",
    "LeRobotDataset",
    "LeRobotEpisode",
    "LeRobotReader",
    "LeRobotRecording",
    "is_dataset",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
