"""Chunks about a file as a whole: statistics, schemas, metadata records, attachments."""

from __future__ import annotations

from .emission import file_level_chunks
from .facts import FileFacts, Survey, facts_of, told_by

__all__ = ["FileFacts", "Survey", "facts_of", "file_level_chunks", "told_by"]
