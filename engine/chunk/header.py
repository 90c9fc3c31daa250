r"""The header of a chunk, everything but its payload: entity path, descriptors, timelines; and headers in a few lines.

An entity path is a list of parts. In text, parts are led by ``/`` and characters that could be mistaken are escaped
with a backslash; characters that are neither ASCII nor alphanumeric become ``\u{XXXX}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from functools import lru_cache

import pyarrow as pa

from ..errors import check_argument

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


@lru_cache(maxsize=65_536)
def parse_entity_path(text: str) -> str:
    r"""The canonical form of an entity path.

    >>> parse_entity_path("world//car/")
    '/world/car'
    >>> print(parse_entity_path("/we ird/x!"))
    /we\ ird/x\!
    >>> parse_entity_path("")
    '/'
    """
    return join_parts(split_parts(text))


def split_parts(text: str) -> list[str]:
    """The unescaped parts of an entity path in any spelling; empty parts are dropped."""
    check_argument("entity_path", text, str)
    parts: list[str] = []
    part: list[str] = []
    i = 0
    while i < len(text):
        c = text[i]
        i += 1
        if c == "/":
            parts.append("".join(part))
            part = []
        elif c == "\\" and i < len(text):
            c, i = _unescape(text, i)
            part.append(c)
        else:
            part.append(c)
    parts.append("".join(part))
    return [p for p in parts if p]


def join_parts(parts: Sequence[str]) -> str:
    """The canonical text of unescaped parts."""
    return "/" + "/".join("".join(map(_escape, p)) for p in parts)


def _unescape(text: str, i: int) -> tuple[str, int]:
    """Return the character of the escape at ``text[i]`` (behind its backslash), and the next index."""
    c = text[i]
    if c == "u" and text[i + 1 : i + 2] == "{":
        end = text.find("}", i + 2, i + 11)
        digits = text[i + 2 : end] if end > 0 else ""
        if digits and all(d in "0123456789abcdefABCDEF" for d in digits) and int(digits, 16) < 0x110000:
            return chr(int(digits, 16)), end + 1
    return _ESCAPES.get(c, c), i + 1


def _escape(c: str) -> str:
    if c in _PLAIN:
        return c
    if c in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[c]
    if c.isascii() and c.isprintable():
        return "\\" + c
    return c if c.isalnum() else f"\\u{{{ord(c):04X}}}"


@dataclass(frozen=True, slots=True)
class ComponentDescriptor:
    """Names a component column.

    ``component`` identifies it within its entity (``Points3D:positions``); ``archetype`` and ``component_type`` are
    the fully qualified names, where there are any.

    >>> str(ComponentDescriptor("Points3D:positions", archetype="rerun.archetypes.Points3D"))
    'Points3D:positions'
    """

    component: str
    archetype: str | None = None
    component_type: str | None = None

    def __post_init__(self) -> None:
        if self.archetype == "":
            object.__setattr__(self, "archetype", None)
        if self.component_type == "":
            object.__setattr__(self, "component_type", None)

    def __str__(self) -> str:
        return self.component

    @property
    def sort_key(self) -> tuple[str, str, str]:
        """The order of component columns: archetype (None first), component, component type."""
        return self.archetype or "", self.component, self.component_type or ""

    @property
    def archetype_short_name(self) -> str | None:
        """The archetype without Rerun's own prefixes, ``Points3D``."""
        if self.archetype is None:
            return None
        for prefix in ("rerun.archetypes.", "rerun.blueprint.archetypes.", "rerun."):
            if self.archetype.startswith(prefix):
                return self.archetype[len(prefix) :]
        return self.archetype

    def with_overrides(self, archetype: str | None = None, component_type: str | None = None) -> ComponentDescriptor:
        """With another archetype or component type, where given."""
        return replace(
            self, archetype=archetype or self.archetype, component_type=component_type or self.component_type
        )

    def or_with_overrides(self, archetype: str | None = None, component_type: str | None = None) -> ComponentDescriptor:
        """Return the descriptor with this archetype or component type filled in if missing."""
        return replace(
            self, archetype=self.archetype or archetype, component_type=self.component_type or component_type
        )

    def with_builtin_archetype(self, archetype: str) -> ComponentDescriptor:
        """As a field of ``archetype``, whose short name then leads the component's.

        >>> str(ComponentDescriptor("positions").with_builtin_archetype("rerun.archetypes.Points3D"))
        'Points3D:positions'
        """
        if not archetype:
            return self
        name = self.component.removeprefix(f"{self.archetype_short_name}:") if self.archetype else self.component
        moved = replace(self, archetype=archetype)
        return replace(moved, component=f"{moved.archetype_short_name}:{name}")


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
        """Return the kind stored as ``datatype`` (any time zone), or None if no timeline has it."""
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


@dataclass(frozen=True, slots=True)
class ChunkKind:
    """As much of a chunk as selecting whole chunks needs; ``components`` None where they are not known."""

    entity_path: str
    is_static: bool
    timeline_names: Sequence[str]
    components: frozenset[str] | None = None


class Fate(Enum):
    """The outcome of a step for a chunk."""

    LEFT_OUT = 0
    PASSED_ON = 1
    """It comes out as it came in."""

    LOOKED_INTO = 2
    """Only the chunk itself can tell."""
