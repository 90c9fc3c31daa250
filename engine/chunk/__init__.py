"""The chunk model: chunks, their headers, descriptors, timelines and ids."""

from .chunk import Chunk
from .columns import ComponentColumn, ComponentColumnLike, TimeColumn, TimeColumnLike
from .data import ChunkData, Component, Timeline
from .descriptor import ComponentDescriptor
from .entity_path import parse_entity_path
from .header import ChunkHeader, ComponentHeader, ComponentRange, TimelineHeader, TimelineKind
from .payload import Payload

__all__ = [
    "Chunk",
    "ChunkData",
    "ChunkHeader",
    "Component",
    "ComponentColumn",
    "ComponentColumnLike",
    "ComponentDescriptor",
    "ComponentHeader",
    "ComponentRange",
    "Payload",
    "TimeColumn",
    "TimeColumnLike",
    "Timeline",
    "TimelineHeader",
    "TimelineKind",
    "parse_entity_path",
]
