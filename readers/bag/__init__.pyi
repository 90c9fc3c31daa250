# Made of the table in __init__.py: python -m tests.run house stubs
from .reader import BagInfo as BagInfo
from .reader import BagReader as BagReader
from .reader import BagSource as BagSource
from .recording import BagRecording as BagRecording

__all__: list[str]
