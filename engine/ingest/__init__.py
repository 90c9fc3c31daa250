"""Landing folders into recordings, continuously and exactly once."""

from .files import BatchResult, FileResult, IngestListener, LandedFile, Outcome

__all__ = ["BatchResult", "FileResult", "IngestListener", "LandedFile", "Outcome"]
