"""What is always known of a chunk: everything but its payload."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from .descriptor import ComponentDescriptor


class TimelineKind(StrEnum):
    """The three kinds of timeline and their Arrow types."""

    SEQUENCE = "sequence"
    DURATION = "duration"
    TIMESTAMP = "timestamp"

    @property
    def arrow_type(self) -> pa.DataType:
        """``int64``, ``duration[ns]`` or ``timestamp[ns]`` (no time zone)."""
        return _ARROW[self]

    @classmethod
    def of(cls, datatype: pa.DataType) -> TimelineKind | None:
        """The kind stored as ``datatype`` (any time zone), or None where no timeline can be."""
        if datatype == pa.int64():
            return cls.SEQUENCE
        if datatype == pa.duration("ns"):
            return cls.DURATION
        if pa.types.is_timestamp(datatype) and datatype.unit == "ns":
            return cls.TIMESTAMP
        return None


_ARROW: dict[TimelineKind, pa.DataType] = {
    TimelineKind.SEQUENCE: pa.int64(),
    TimelineKind.DURATION: pa.duration("ns"),
    TimelineKind.TIMESTAMP: pa.timestamp("ns"),
}


@dataclass(frozen=True, slots=True)
class TimelineHeader:
    """One timeline of a chunk: its name, kind and range (``None`` when the chunk has no row)."""

    name: str
    kind: TimelineKind
    start: int | None
    end: int | None


@dataclass(frozen=True, slots=True)
class ComponentRange:
    """Where one component has values on one timeline: first and last time and the number of non-null rows."""

    start: int | None
    end: int | None
    num_rows: int


@dataclass(frozen=True, slots=True)
class ComponentHeader:
    """One component of a chunk.

    ``datatype`` is the Arrow type of the column as stored, ``list<T>``. ``ranges`` has one entry for each timeline
    of the chunk, in the order of :attr:`ChunkHeader.timelines`; it is empty in a static chunk.
    ``is_empty``: every row is null or an empty list; ``None`` where that is not known without the payload.
    """

    descriptor: ComponentDescriptor
    datatype: pa.DataType
    ranges: tuple[ComponentRange, ...] = ()
    is_empty: bool | None = None


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    """A chunk without its payload.

    ``chunk_id`` is the 16-byte TUID. ``timelines`` are sorted by name, ``components`` by (archetype with None first,
    component, component type). Headers read from a footer lack the components that hold nothing but nulls.
    """

    chunk_id: bytes
    entity_path: str
    num_rows: int
    is_static: bool
    timelines: tuple[TimelineHeader, ...]
    components: tuple[ComponentHeader, ...]
