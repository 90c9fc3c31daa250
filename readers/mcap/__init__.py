"""MCAP files: the reader, and the source that pipelines pull from.

The names below are loaded when they are first used, so that a program that needs one of them does not load the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...engine.lazy_names import lazy_names

if TYPE_CHECKING:
    from .info import ChannelInfo, ChannelTiming, McapInfo
    from .reader import McapReader, McapSource
    from .recovery import McapRecoveryReport
    from .section import McapSplit

_HOMES = {
    ".info": (
        "ChannelInfo",
        "ChannelTiming",
        "McapInfo",
    ),
    ".reader": (
        "McapReader",
        "McapSource",
    ),
    ".recovery": ("McapRecoveryReport",),
    ".section": ("McapSplit",),
}

__all__ = [
    "ChannelInfo",
    "ChannelTiming",
    "McapInfo",
    "McapReader",
    "McapRecoveryReport",
    "McapSource",
    "McapSplit",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
