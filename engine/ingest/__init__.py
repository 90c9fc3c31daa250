"""Landing folders into recordings, continuously and exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .files import BatchResult, FileResult, IngestListener, LandedFile, Outcome
    from .ingest import Ingest
    from .query import IngestQuery

_HOMES = {
    ".files": ("BatchResult", "FileResult", "IngestListener", "LandedFile", "Outcome"),
    ".ingest": ("Ingest",),
    ".query": ("IngestQuery",),
}

__all__ = ["BatchResult", "FileResult", "Ingest", "IngestListener", "IngestQuery", "LandedFile", "Outcome"]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
