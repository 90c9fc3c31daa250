"""MCAP files: the reader, and the source that pipelines pull from."""

from .info import ChannelInfo, McapInfo
from .plan import McapSplit
from .reader import McapReader
from .source import McapSource

__all__ = ["ChannelInfo", "McapInfo", "McapReader", "McapSource", "McapSplit"]
