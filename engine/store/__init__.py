"""Stores of chunks: of one recording, collected or listed by its manifest, and of many, with versions.

The names below are loaded on first use, so that reading an RRD does not load the code that writes stores.
"""

from ..lazy_names import lazy_names

_HOMES = {
    "..optimisation": "OptimizationProfile",
    "..stream": "ChunkStore LazyStore StoreVersion",
    ".chunk_store": "collect_plan open_recording read_rows segment_of",
    ".recording_store": "RecordingStore chunks_panel",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
