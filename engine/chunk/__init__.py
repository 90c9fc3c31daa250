"""The chunk model: chunks, their headers, descriptors, timelines and ids."""

from .arrow_types import pickle_whole
from .chunk import Chunk
from .column_descriptors import (
    ComponentColumnDescriptor,
    ComponentColumnSelector,
    IndexColumnDescriptor,
    IndexColumnSelector,
)
from .columns import ComponentColumn, ComponentColumnLike, TimeColumn, TimeColumnLike
from .data import ChunkData, Component, Payload, Timeline
from .descriptor import ComponentDescriptor
from .entity_path import parse_entity_path
from .header import ChunkHeader, ComponentHeader, ComponentRange, TimelineHeader, TimelineKind
from .schema import Schema
from .tables import AUTO_INDEX

pickle_whole()  # before any type, array or chunk is sent to a task

__all__ = [
    "AUTO_INDEX",
    "Chunk",
    "ChunkData",
    "ChunkHeader",
    "Component",
    "ComponentColumn",
    "ComponentColumnDescriptor",
    "ComponentColumnLike",
    "ComponentColumnSelector",
    "ComponentDescriptor",
    "ComponentHeader",
    "ComponentRange",
    "IndexColumnDescriptor",
    "IndexColumnSelector",
    "Payload",
    "Schema",
    "TimeColumn",
    "TimeColumnLike",
    "Timeline",
    "TimelineHeader",
    "TimelineKind",
    "parse_entity_path",
]
