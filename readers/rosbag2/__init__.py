"""rosbag2: a folder of SQLite databases or MCAPs is one recording, as is a single database.

The names below are loaded when they are first used, so that a program that reads one format does not load the others.
"""

from ...engine.lazy_names import lazy_names

_HOMES = {
    ".reader": "Rosbag2Reader Rosbag2Source",
    ".recording": "Rosbag2Recording",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
