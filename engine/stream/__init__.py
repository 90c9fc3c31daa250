"""Pipelines over chunks: the lazy stream, its operators, its plan, and the entity path expressions."""

from .content_filter import ContentFilter
from .lazy_stream import LazyChunkStream, write_stores
from .operators import Outline
from .source import Source, Split

__all__ = ["ContentFilter", "LazyChunkStream", "Outline", "Source", "Split", "write_stores"]
