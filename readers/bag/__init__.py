"""ROS 1 bags: the reader, and the source that pipelines pull from.

The names below are loaded when they are first used, so that a program that needs one of them does not load the others.
"""

from ...engine.lazy_names import lazy_names

_HOMES = {
    ".reader": "BagInfo BagReader BagSource",
    ".recording": "BagRecording",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
