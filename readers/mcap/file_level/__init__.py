"""Decoders of a file as a whole: statistics, schemas, metadata records, attachments."""

from __future__ import annotations

from .attachments import Attachments, read_attachment
from .decoder import BLOB, FileDecoder, check_place, described, static_chunk
from .facts import NO_FACTS, FileFacts, Survey, facts_of
from .metadata import MetadataRecords, read_metadata
from .summary import Counts, RecordingInfo, Schemas

__all__ = [
    "Attachments",
    "BLOB",
    "Counts",
    "FileDecoder",
    "FileFacts",
    "MetadataRecords",
    "NO_FACTS",
    "RecordingInfo",
    "Schemas",
    "Survey",
    "check_place",
    "described",
    "facts_of",
    "read_attachment",
    "read_metadata",
    "static_chunk",
]
