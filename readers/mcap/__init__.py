"""MCAP files: the reader, and the source that pipelines pull from."""

from .info import ChannelInfo, McapInfo
from .reader import McapReader
from .recovering import McapRecoveryReport
from .source import McapSource
from .split import McapSplit
from .timing import ChannelTiming

__all__ = ["ChannelInfo", "ChannelTiming", "McapInfo", "McapReader", "McapRecoveryReport", "McapSource", "McapSplit"]
