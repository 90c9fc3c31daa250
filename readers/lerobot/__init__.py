"""LeRobot datasets: each episode a recording.

The names below are loaded when they are first used, so that a program that reads one format does not load the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...engine.lazy_names import lazy_names

if TYPE_CHECKING:
    from .dataset import LeRobotDataset, LeRobotEpisode, LeRobotReader, LeRobotRecording
    from .source import EpisodeSource, is_dataset

_HOMES = {
    ".dataset": "LeRobotDataset LeRobotEpisode LeRobotReader LeRobotRecording",
    ".source": "EpisodeSource is_dataset",
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
