# Made of the table in __init__.py: python -m tests.run house stubs
from .reader import BagInfo as BagInfo
from .reader import BagReader as BagReader
from .reader import BagRecording as BagRecording
from .reader import BagSource as BagSource

__all__: list[str]
