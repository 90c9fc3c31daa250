"""MCAP files: the reader, and the source that pipelines pull from."""

from .info import ChannelInfo, McapInfo
from .reader import McapReader
from .recovering import McapRecoveryReport
from .source import McapSource
from .split import McapSplit

__all__ = ["ChannelInfo", "McapInfo", "McapReader", "McapRecoveryReport", "McapSource", "McapSplit"]
