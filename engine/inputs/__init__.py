"""Inputs of every format: which one a file has, and the streams that it becomes."""

from .formats import FORMAT_OF_SUFFIX, Format, detect_format, format_of_name, stem_of
from .opening import APPLICATION_ID, SourceOptions, stores_of

__all__ = [
    "APPLICATION_ID",
    "FORMAT_OF_SUFFIX",
    "Format",
    "SourceOptions",
    "detect_format",
    "format_of_name",
    "stem_of",
    "stores_of",
]
