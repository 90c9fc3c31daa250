"""Pipelines over chunks: the lazy stream, its operators, its plan, and the entity path expressions."""

from ..chunk.outline import Fate, Outline
from .content_filter import ContentFilter
from .lazy_stream import LazyChunkStream, write_stores
from .source import Source, Split

__all__ = ["ContentFilter", "Fate", "LazyChunkStream", "Outline", "Source", "Split", "write_stores"]
