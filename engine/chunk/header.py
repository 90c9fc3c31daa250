"""The header of a chunk: everything but its payload, always known; and a store's headers in a few lines."""

from __future__ import annotations

from collections.abc import Iterable
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
    """The values of one component on one timeline: first and last time and the number of non-null rows."""

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


def summarise_chunks(headers: Iterable[ChunkHeader]) -> str:
    """One line for each chunk, sorted by entity path as text, static chunks first, then in the order given.

    ::

        {entity_path} rows={n} static={True|False} timelines=[{names}] cols=[{timelines and components}]

    Names stand in single quotes without escapes. Headers from an RRD's footer lack components without any value,
    so these lack here, too.

    >>> summarise_chunks([])
    ''
    """
    ordered = sorted(headers, key=lambda h: (h.entity_path.encode(), not h.is_static))
    return "\n".join(map(_line, ordered))


def _line(header: ChunkHeader) -> str:
    timelines = [t.name for t in header.timelines]
    columns = timelines + [c.descriptor.component for c in header.components]
    return (
        f"{header.entity_path} rows={header.num_rows} static={header.is_static} "
        f"timelines=[{_names(timelines)}] cols=[{_names(columns)}]"
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names, key=str.encode))
