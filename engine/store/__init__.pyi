# Made of the table in __init__.py: python -m tests.run house stubs
from ..optimisation import OptimizationProfile as OptimizationProfile
from ..stream import ChunkStore as ChunkStore
from ..stream import LazyStore as LazyStore
from ..stream import StoreVersion as StoreVersion
from .chunk_store import collect_plan as collect_plan
from .chunk_store import open_recording as open_recording
from .chunk_store import read_rows as read_rows
from .chunk_store import segment_of as segment_of
from .recording_store import RecordingStore as RecordingStore
from .recording_store import chunks_panel as chunks_panel

__all__: list[str]
