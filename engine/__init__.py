"""chunkmill's core: chunks, streams over them, stores of them, and Spark to run it all.

The names below are loaded when they are first used, so that a program that needs little starts quickly.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .chunk import (
        Chunk,
        ComponentColumn,
        ComponentColumnDescriptor,
        ComponentColumnSelector,
        ComponentDescriptor,
        IndexColumnDescriptor,
        IndexColumnSelector,
        Schema,
        TimeColumn,
    )
    from .errors import ChunkmillError, PipelineError, ReadError, ReadWarning, SessionError, UsageError, WriteError
    from .execution.session import get_session, stop_session
    from .pipelines import Pipeline, load_pipeline
    from .reports import RunReport, save_report
    from .rrd import StoreEntry
    from .store import ChunkStore, LazyStore, OptimizationProfile, StoreVersion
    from .stream import ContentFilter, LazyChunkStream, write_stores
    from .viewer import ViewerClient, send_chunks

_HOMES = {
    ".chunk": (
        "Chunk",
        "ComponentColumn",
        "ComponentColumnDescriptor",
        "ComponentColumnSelector",
        "ComponentDescriptor",
        "IndexColumnDescriptor",
        "IndexColumnSelector",
        "Schema",
        "TimeColumn",
    ),
    ".errors": (
        "ChunkmillError",
        "PipelineError",
        "ReadError",
        "ReadWarning",
        "SessionError",
        "UsageError",
        "WriteError",
    ),
    ".execution.session": ("get_session", "stop_session"),
    ".pipelines": ("Pipeline", "load_pipeline"),
    ".reports": ("RunReport", "save_report"),
    ".rrd": ("StoreEntry",),
    ".store": ("ChunkStore", "LazyStore", "OptimizationProfile", "StoreVersion"),
    ".stream": ("ContentFilter", "LazyChunkStream", "write_stores"),
    ".viewer": ("ViewerClient", "send_chunks"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Chunk",
    "ChunkStore",
    "ChunkmillError",
    "ComponentColumn",
    "ComponentColumnDescriptor",
    "ComponentColumnSelector",
    "ComponentDescriptor",
    "ContentFilter",
    "IndexColumnDescriptor",
    "IndexColumnSelector",
    "LazyChunkStream",
    "LazyStore",
    "OptimizationProfile",
    "Pipeline",
    "PipelineError",
    "ReadError",
    "ReadWarning",
    "RunReport",
    "Schema",
    "SessionError",
    "StoreEntry",
    "StoreVersion",
    "TimeColumn",
    "UsageError",
    "ViewerClient",
    "WriteError",
    "get_session",
    "load_pipeline",
    "save_report",
    "send_chunks",
    "stop_session",
    "write_stores",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
