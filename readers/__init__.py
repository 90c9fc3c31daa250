"""Readers: recordings as streams of chunks."""

from .mcap import McapReader
from .protocols import IndexedReader, StreamingReader
from .rrd import RrdReader

__all__ = ["IndexedReader", "McapReader", "RrdReader", "StreamingReader"]
