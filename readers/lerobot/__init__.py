"""LeRobot datasets: each episode a recording.

The names below are loaded when they are first used, so that a program that reads one format does not load the others.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dataset import LeRobotDataset, LeRobotEpisode
    from .detection import is_dataset
    from .source import EpisodeSource

_HOMES = {
    ".dataset": (
        "LeRobotDataset",
        "LeRobotEpisode",
    ),
    ".detection": ("is_dataset",),
    ".source": ("EpisodeSource",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "EpisodeSource",
    "LeRobotDataset",
    "LeRobotEpisode",
    "is_dataset",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
