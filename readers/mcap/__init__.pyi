# Made of the table in __init__.py: python -m tests.run house stubs
from .info import ChannelInfo as ChannelInfo
from .info import ChannelTiming as ChannelTiming
from .info import McapInfo as McapInfo
from .reader import McapReader as McapReader
from .reader import McapSource as McapSource
from .recovery import McapRecoveryReport as McapRecoveryReport
from .section import McapSplit as McapSplit

__all__: list[str]
