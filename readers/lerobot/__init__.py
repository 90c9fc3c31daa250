"""LeRobot datasets: each episode a recording.

The names below are loaded when they are first used, so that a program that reads one format does not load the others.
"""

from ...engine.lazy_names import lazy_names

_HOMES = {
    ".dataset": "LeRobotDataset LeRobotEpisode LeRobotReader",
    ".recording": "LeRobotRecording",
    ".source": "EpisodeSource is_dataset",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
