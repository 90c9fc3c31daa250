"""The header of a chunk, known without its payload, and the decoded payload: its columns."""

from __future__ import annotations

import copyreg
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as kinds

from ..errors import check_argument
from . import tuid

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
    """Split an entity path, in any spelling, into unescaped parts; empty parts are dropped."""
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
    """Join unescaped parts to the canonical text of the entity path."""
    return "/" + "/".join("".join(map(_escape, p)) for p in parts)


def _unescape(text: str, i: int) -> tuple[str, int]:
    """Return the character of the escape at ``text[i]`` (after its backslash), and the next index."""
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

    ``component`` identifies the component within its entity (``Points3D:positions``). ``archetype`` and
    ``component_type`` are fully qualified names, or None.

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
        """Return the descriptor with this archetype or component type, if given."""
        return replace(
            self, archetype=archetype or self.archetype, component_type=component_type or self.component_type
        )

    def or_with_overrides(self, archetype: str | None = None, component_type: str | None = None) -> ComponentDescriptor:
        """Return the descriptor with this archetype or component type filled in if missing."""
        return replace(
            self, archetype=self.archetype or archetype, component_type=self.component_type or component_type
        )

    def with_builtin_archetype(self, archetype: str) -> ComponentDescriptor:
        """Return the descriptor as a field of ``archetype``: its short name becomes the prefix of the component.

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

    ``datatype`` is the Arrow type of the column as stored, ``list<T>``. ``ranges`` has one entry for each timeline of
    the chunk, in the order of :attr:`ChunkHeader.timelines`; it is empty in a static chunk. ``is_empty`` is true if
    every row is null or an empty list; ``None`` if that is unknown without the payload.
    """

    descriptor: ComponentDescriptor
    datatype: pa.DataType
    ranges: tuple[ComponentRange, ...] = ()
    is_empty: bool | None = None


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    """A chunk without its payload.

    ``chunk_id`` is the 16-byte TUID. ``timelines`` are sorted by name, ``components`` by (archetype with None first,
    component, component type). Headers from a footer lack components that have only nulls.
    """

    chunk_id: bytes
    entity_path: str
    num_rows: int
    is_static: bool
    timelines: tuple[TimelineHeader, ...]
    components: tuple[ComponentHeader, ...]


def summarise_chunks(headers: Iterable[ChunkHeader]) -> str:
    """Return one line per chunk, sorted by entity path as text, static chunks first, then in the given order.

    ::

        {entity_path} rows={n} static={True|False} timelines=[{names}] cols=[{timelines and components}]

    Names are in single quotes without escapes. Headers from an RRD's footer lack components without any value, so the
    lines lack them, too.

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
    """The facts by which whole chunks are selected. ``components`` is None if they are not known."""

    entity_path: str
    is_static: bool
    timeline_names: Sequence[str]
    components: frozenset[str] | None = None


class Fate(Enum):
    """The outcome of an operator for a whole chunk."""

    LEFT_OUT = 0
    PASSED_ON = 1
    """The chunk passes unchanged."""

    LOOKED_INTO = 2
    """The operator has to read the chunk."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """One index column. ``times`` has one non-null value per row, of the Arrow type of ``kind``."""

    name: str
    kind: TimelineKind
    times: pa.Array
    _sorted: list[bool] = field(default_factory=list, repr=False, compare=False)
    _strict: list[bool] = field(default_factory=list, repr=False, compare=False)

    @property
    def ticks(self) -> npt.NDArray[np.int64]:
        """The times as int64 (nanoseconds, or sequence numbers), without a copy."""
        return ticks(self.times)

    @property
    def is_sorted(self) -> bool:
        """Return True if the times ascend in row order (equal neighbours allowed)."""
        if not self._sorted:
            values = self.ticks
            self._sorted.append(tuid.all_true(values[:-1] <= values[1:]))
        return self._sorted[0]

    @property
    def is_strict(self) -> bool:
        """Return True if each time is later than the time of the previous row."""
        if not self._strict:
            values = self.ticks
            self._strict.append(tuid.all_true(values[:-1] < values[1:]))
            if self._strict[0] and not self._sorted:
                self._sorted.append(True)
        return self._strict[0]


@dataclass(frozen=True, slots=True)
class Component:
    """One component column. ``values`` is a ``list<T>`` array, with one list or null per row."""

    descriptor: ComponentDescriptor
    values: pa.ListArray


@dataclass(frozen=True, slots=True)
class ChunkData:
    """A decoded chunk.

    ``row_ids`` is ``fixed_size_binary(16)``; ``timelines`` are sorted by name and ``components`` by
    :attr:`ComponentDescriptor.sort_key`; all columns have the same length.
    """

    chunk_id: bytes
    entity_path: str
    row_ids: pa.FixedSizeBinaryArray
    timelines: tuple[Timeline, ...]
    components: tuple[Component, ...]
    _ascending: list[bool] = field(default_factory=list, repr=False, compare=False)

    @classmethod
    def fresh(
        cls, entity_path: str, length: int, timelines: tuple[Timeline, ...], components: tuple[Component, ...]
    ) -> ChunkData:
        """Columns of ``length`` rows under a fresh chunk id, with row ids that are derived from it."""
        chunk_id = tuid.mint(length)
        return cls(chunk_id, entity_path, tuid.following(chunk_id, length), timelines, components, [True])

    @classmethod
    def join(cls, parts: Sequence[ChunkData], chunk_id: bytes) -> ChunkData:
        """Concatenate the rows of ``parts``, which have the same :attr:`shape` and types."""
        first = parts[0]
        timelines = [part.timelines for part in parts]
        components = [part.components for part in parts]
        return cls(
            chunk_id,
            first.entity_path,
            pa.concat_arrays([part.row_ids for part in parts]),
            tuple(
                Timeline(t.name, t.kind, pa.concat_arrays([lines[i].times for lines in timelines]))
                for i, t in enumerate(first.timelines)
            ),
            tuple(
                Component(c.descriptor, pa.concat_arrays([columns[i].values for columns in components]))
                for i, c in enumerate(first.components)
            ),
        )

    @property
    def shape(self) -> tuple[object, ...]:
        """The names and kinds of the timelines, and the descriptors of the components."""
        return (*[(t.name, t.kind) for t in self.timelines], *[c.descriptor for c in self.components])

    @property
    def types(self) -> list[pa.DataType]:
        """The types of times and components, in their order."""
        return [*[t.times.type for t in self.timelines], *[c.values.type for c in self.components]]

    @property
    def ids_ascend(self) -> bool:
        """Return True if the row ids ascend (equal neighbours allowed)."""
        if not self._ascending:
            self._ascending.append(tuid.is_sorted(self.row_ids))
        return self._ascending[0]

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.row_ids)

    def with_new_id(self) -> ChunkData:
        """The same columns under a fresh chunk id."""
        return replace(self, chunk_id=tuid.mint())

    def slice(self, offset: int, length: int) -> ChunkData:
        """Return ``length`` rows from ``offset``, without a copy, under a fresh chunk id."""
        return ChunkData(
            tuid.mint(),
            self.entity_path,
            self.row_ids.slice(offset, length),
            tuple(Timeline(t.name, t.kind, t.times.slice(offset, length)) for t in self.timelines),
            tuple(Component(c.descriptor, c.values.slice(offset, length)) for c in self.components),
        )

    def take(self, rows: npt.NDArray[np.int64]) -> ChunkData:
        """Return the rows with the numbers ``rows``, in that order, with their row ids, under the same chunk id."""
        indices = pa.array(rows)
        return ChunkData(
            self.chunk_id,
            self.entity_path,
            self.row_ids.take(indices),
            tuple(Timeline(t.name, t.kind, t.times.take(indices)) for t in self.timelines),
            tuple(Component(c.descriptor, c.values.take(indices)) for c in self.components),
        )

    def with_components(self, components: tuple[Component, ...]) -> ChunkData:
        """Replace the component columns; keep rows and timelines, under a fresh chunk id."""
        ordered = tuple(sorted(components, key=lambda c: c.descriptor.sort_key))
        return ChunkData(tuid.mint(), self.entity_path, self.row_ids, self.timelines, ordered, self._ascending)


def ticks(times: pa.Array) -> npt.NDArray[np.int64]:
    """A 64-bit Arrow array without nulls as int64, without a copy."""
    buffer = times.buffers()[1]
    if buffer is None or len(times) == 0:
        return np.empty(0, dtype=np.int64)
    return np.frombuffer(buffer, dtype=np.int64, count=len(times), offset=times.offset * 8)


_OFFSET = struct.Struct("=i")


def summarise(data: ChunkData) -> ChunkHeader:
    """The header of ``data``. Cost: a pass over each timeline, and over each validity bitmap with nulls."""
    timelines = tuple([_timeline(t) for t in data.timelines])
    return ChunkHeader(
        chunk_id=data.chunk_id,
        entity_path=data.entity_path,
        num_rows=data.num_rows,
        is_static=not data.timelines,
        timelines=timelines,
        components=tuple([_component(c, data.timelines, timelines) for c in data.components]),
    )


def is_semantically_empty(values: pa.ListArray) -> bool:
    """Return True if every row is null or an empty list."""
    if len(values) == 0 or values.null_count == len(values):
        return True
    offsets, first = values.buffers()[1], 4 * values.offset
    if _OFFSET.unpack_from(offsets, first) == _OFFSET.unpack_from(offsets, first + 4 * len(values)):
        return True
    return values.null_count > 0 and len(values.flatten()) == 0


def _span(ticks: npt.NDArray[np.int64], ascending: bool) -> tuple[int | None, int | None]:
    if not len(ticks):
        return None, None
    if ascending:
        return int(ticks[0]), int(ticks[-1])
    return int(ticks.min()), int(ticks.max())


def _timeline(timeline: Timeline) -> TimelineHeader:
    start, end = _span(timeline.ticks, timeline.is_sorted)
    return TimelineHeader(timeline.name, timeline.kind, start, end)


def _component(
    component: Component, timelines: tuple[Timeline, ...], headers: tuple[TimelineHeader, ...]
) -> ComponentHeader:
    values = component.values
    present = len(values) - values.null_count
    if present == len(values):
        ranges = tuple([ComponentRange(h.start, h.end, present) for h in headers])
    elif present == 0:
        ranges = tuple(ComponentRange(None, None, 0) for _ in headers)
    else:
        mask = values.is_valid().to_numpy(zero_copy_only=False)
        ranges = tuple(ComponentRange(*_span(t.ticks[mask], t.is_sorted), present) for t in timelines)
    return ComponentHeader(component.descriptor, values.type, ranges, is_semantically_empty(values))


class Payload(Protocol):
    """The source of a chunk's record batch, which is loaded on first use. Payloads can be pickled."""

    def load(self) -> pa.RecordBatch:
        """Read, check and decode the record batch, with its Rerun schema metadata, as it was stored."""
        ...


def wrap_each(values: pa.Array) -> pa.ListArray:
    """Each value in a list of its own; a null becomes the list ``[None]``. A list array stays as it is.

    >>> wrap_each(pa.array([1, None])).to_pylist()
    [[1], [None]]
    """
    if pa.types.is_list(values.type):
        return values
    return pa.ListArray.from_arrays(pa.array(np.arange(len(values) + 1, dtype=np.int32)), values)


def migrate_to_list(values: pa.Array) -> pa.ListArray:
    """Like :func:`wrap_each`, but a null becomes a null row.

    >>> migrate_to_list(pa.array([1, None])).to_pylist()
    [[1], None]
    """
    if pa.types.is_list(values.type):
        return values
    if not values.null_count:
        return wrap_each(values)
    offsets = np.arange(len(values) + 1, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=values.is_null())


_DATA_PLAIN = (
    kinds.is_null,
    kinds.is_primitive,
    kinds.is_decimal,
    kinds.is_string,
    kinds.is_large_string,
    kinds.is_binary,
    kinds.is_large_binary,
    kinds.is_fixed_size_binary,
)
_NESTED = (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list, kinds.is_struct, kinds.is_map)


def pickle_whole() -> None:
    """Make every pickler of this process keep all facts of fixed-size list and map types; unpickling needs no setup."""
    copyreg.pickle(pa.FixedSizeListType, _fixed_size_list)
    copyreg.pickle(pa.MapType, _map)


def alike(types: Sequence[pa.DataType], others: Sequence[pa.DataType]) -> bool:
    """Return True if types are equal, including the metadata of their fields, which ``==`` ignores."""
    return all(datatype.equals(other, check_metadata=True) for datatype, other in zip(types, others, strict=True))


def _fixed_size_list(datatype: pa.FixedSizeListType) -> tuple[Any, ...]:
    return pa.list_, (datatype.value_field, datatype.list_size)


def _map(datatype: pa.MapType) -> tuple[Any, ...]:
    return pa.map_, (datatype.key_field, datatype.item_field, datatype.keys_sorted)


def is_plain(datatype: pa.DataType) -> bool:
    """Return True if arrays of the type can be joined and sliced again without a change of size.

    This excludes dictionaries, views, unions, run-end encoded and extension types.
    """
    if any(is_kind(datatype) for is_kind in _DATA_PLAIN):
        return True
    return any(is_kind(datatype) for is_kind in _NESTED) and all(
        is_plain(datatype.field(i).type) for i in range(datatype.num_fields)
    )
