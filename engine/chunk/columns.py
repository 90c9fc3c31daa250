"""Columns to build chunks from; descriptors of a schema's columns, and their order; selectors of a column."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import check_argument
from .data import ComponentDescriptor, TimelineKind, parse_entity_path, split_parts


@runtime_checkable
class TimeColumnLike(Protocol):
    """Anything that names a timeline and gives its times."""

    def timeline_name(self) -> str:
        """The name of the timeline."""
        ...

    def as_arrow_array(self) -> pa.Array:
        """Return one time per row."""
        ...


@runtime_checkable
class ComponentColumnLike(Protocol):
    """Anything that describes a component and gives its values."""

    def component_descriptor(self) -> Any:
        """The descriptor: an object with ``component``, ``archetype`` and ``component_type``."""
        ...

    def as_arrow_array(self) -> pa.Array:
        """One value, or one list of values, per row."""
        ...


class TimeColumn:
    """The times of a chunk's rows on one timeline.

    Give exactly one of ``sequence`` (integers), ``duration`` (seconds, ``timedelta`` or ``timedelta64``) and
    ``timestamp`` (seconds since the Unix epoch, ``datetime`` or ``datetime64``; naive datetimes are in UTC). Otherwise,
    and for invalid seconds, it raises ``ValueError``.

    >>> TimeColumn("frame", sequence=[1, 2]).as_arrow_array().type
    DataType(int64)
    """

    def __init__(
        self,
        timeline: str,
        *,
        sequence: Iterable[int] | None = None,
        duration: Iterable[float | timedelta | np.timedelta64] | None = None,
        timestamp: Iterable[float | datetime | np.datetime64] | None = None,
    ) -> None:
        given = [x for x in (sequence, duration, timestamp) if x is not None]
        if len(given) != 1:
            raise ValueError(
                "TimeColumn: Exactly one of `sequence`, `duration`, and `timestamp` must be set "
                f"(timeline='{timeline}')"
            )
        self.timeline = timeline
        if sequence is not None:
            self.kind, ticks = TimelineKind.SEQUENCE, sequence_ticks(sequence)
        elif duration is not None:
            self.kind, ticks = TimelineKind.DURATION, duration_ticks(duration)
        else:
            assert timestamp is not None
            self.kind, ticks = TimelineKind.TIMESTAMP, timestamp_ticks(timestamp)
        self.times = ticks

    def timeline_name(self) -> str:
        """The name of the timeline."""
        return self.timeline

    def as_arrow_array(self) -> pa.Array:
        """The times as ``int64``, ``duration[ns]`` or ``timestamp[ns]``, one per row."""
        return pa.array(self.times).view(self.kind.arrow_type)


class ComponentColumn:
    """The values of one component, one list (or one value) per row; null where a row logs nothing.

    With ``lengths``, the values are flat, and row ``i`` gets the next ``lengths[i]`` of them.

    >>> ComponentColumn(ComponentDescriptor("volume"), [[1.0], None]).as_arrow_array().to_pylist()
    [[1.0], None]
    """

    def __init__(
        self,
        descriptor: ComponentDescriptor | str,
        values: pa.Array | Iterable[Any],
        *,
        lengths: npt.ArrayLike | None = None,
    ) -> None:
        self.descriptor = ComponentDescriptor(descriptor) if isinstance(descriptor, str) else descriptor
        array = values if isinstance(values, pa.Array) else pa.array(list(values))
        self.values = array if lengths is None else _partition(array, lengths)

    def partition(self, lengths: npt.ArrayLike) -> ComponentColumn:
        """Split flat values into rows, by the number of values of each row.

        Raises ``ValueError`` when the lengths do not add up to the number of values.

        >>> ComponentColumn("volume", [1.0, 2.0, 3.0]).partition([1, 2]).as_arrow_array().to_pylist()
        [[1.0], [2.0, 3.0]]
        """
        return ComponentColumn(self.descriptor, self.values, lengths=lengths)

    def component_descriptor(self) -> ComponentDescriptor:
        """The descriptor."""
        return self.descriptor

    def as_arrow_array(self) -> pa.Array:
        """Return one value, or one list of values, per row."""
        return self.values


def _partition(values: pa.Array, lengths: npt.ArrayLike) -> pa.ListArray:
    counts = np.asarray(lengths, dtype=np.int64).reshape(-1)
    if (counts < 0).any() or int(counts.sum()) != len(values):
        raise ValueError(f"The lengths of the rows add up to {int(counts.sum())}, but there are {len(values)} values.")
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


class LensLike(Protocol):
    """A lens of the package ``lenses``: it computes columns from a component."""

    @property
    def input_component(self) -> str:
        """The component that it reads."""
        ...

    def describe(self) -> str:
        """One line for the plan: input and outputs."""
        ...


class SelectorLike(Protocol):
    """A selector of the package ``lenses``: it extracts values from a component."""

    def execute_per_row(self, source: pa.Array) -> pa.Array | None:
        """Return the values of each row, or None if there are no values at all."""
        ...


class DescriptorLike(Protocol):
    """Anything that describes a component, such as Rerun's own ``ComponentDescriptor``."""

    @property
    def component(self) -> str:
        """Its identity within its entity."""
        ...

    @property
    def archetype(self) -> str | None:
        """The fully qualified name of its archetype."""
        ...

    @property
    def component_type(self) -> str | None:
        """The fully qualified name of its type."""
        ...


def descriptor_of(like: DescriptorLike | str, argument: str = "component") -> ComponentDescriptor:
    """Convert any object that describes a component to a :class:`ComponentDescriptor`.

    Raises ``TypeError``, with the name of the argument, for other objects.
    """
    if isinstance(like, ComponentDescriptor):
        return like
    if isinstance(like, str):
        return ComponentDescriptor(like)
    if not hasattr(like, "component"):
        check_argument(argument, like, ComponentDescriptor)
    return ComponentDescriptor(like.component, like.archetype or None, like.component_type or None)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOT_A_TIME = np.iinfo(np.int64).min
_FINER = ("ps", "fs", "as")
_MOST_SECONDS = 9_223_372_036
_MILLISECONDS_LIKELY = 100_000_000_000


def sequence_ticks(values: Iterable[Any]) -> npt.NDArray[np.int64]:
    """Sequence numbers; fractions are cut off."""
    return np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.int64)


def duration_ticks(values: Iterable[Any]) -> npt.NDArray[np.int64]:
    """Convert durations (seconds, ``timedelta`` or ``timedelta64``) to nanoseconds.

    >>> duration_ticks([1.5, timedelta(milliseconds=2)]).tolist()
    [1500000000, 2000000]
    """
    return _ticks(values, "m8", _span)


def timestamp_ticks(values: Iterable[Any]) -> npt.NDArray[np.int64]:
    """Convert times (seconds, ``datetime``, ``datetime64``, Arrow scalars) to nanoseconds since the Unix epoch.

    A ``datetime`` without a zone is in UTC. Raises ``ValueError`` for numbers that cannot be seconds, and for NaT.

    >>> timestamp_ticks([1.5, datetime(1970, 1, 2)]).tolist()
    [1500000000, 86400000000000]
    """
    return _ticks(values, "M8", _moment)


def numpy_ticks(values: npt.NDArray[Any] | np.datetime64 | np.timedelta64) -> npt.NDArray[np.int64]:
    """Convert times or durations of numpy to nanoseconds. NaT stays the smallest number.

    Raises ``ValueError`` for values that do not fit into 64 bits, which numpy before 2.5 wraps around.

    >>> numpy_ticks(np.array(["1970-01-02"], "M8[D]")).tolist()
    [86400000000000]
    """
    given = np.asarray(values)
    unit = f"{given.dtype.kind}8[ns]"
    try:
        ticks = given.astype(unit)
        is_wrapped = (ticks.astype(given.dtype) != given) & ~np.isnat(given)
        if np.datetime_data(given.dtype)[0] not in _FINER and bool(is_wrapped.any()):
            raise _beyond(given[is_wrapped][0])
    except OverflowError:
        raise next(_beyond(value) for value in given.ravel() if not _fits(value, unit)) from None
    return ticks.view(np.int64)


def _fits(value: Any, unit: str) -> bool:
    try:
        value.astype(unit)
    except OverflowError:
        return False
    return True


def _beyond(value: Any) -> ValueError:
    return ValueError(
        f"{value!r} is more than 292 years from 1970 (durations: from 0): it does not fit into 64 bits of nanoseconds"
    )


def _ticks(values: Iterable[Any], dtype: str, tick: Callable[[Any], int]) -> npt.NDArray[np.int64]:
    if isinstance(values, np.ndarray) and values.dtype.str[1:3] == dtype:
        ticks = numpy_ticks(values)
    elif isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
        ticks = _all_seconds(values)
    else:
        ticks = np.asarray([tick(v) for v in values], dtype=np.int64)
    if bool((ticks == _NOT_A_TIME).any()):
        raise ValueError("Expected a time in every row, but one is NaT (not a time)")
    return ticks


def _all_seconds(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    possible = (values >= -_MOST_SECONDS) & (values <= _MOST_SECONDS)
    if not possible.all():
        raise _not_seconds(values[~possible][0].item())
    if values.dtype.kind == "f":
        return np.rint(values.astype(np.float64) * 1e9).astype(np.int64)
    return values.astype(np.int64) * 1_000_000_000


def _span(value: Any) -> int:
    if isinstance(value, np.timedelta64):
        return int(numpy_ticks(value))
    if isinstance(value, timedelta):
        return (value.days * 86_400 + value.seconds) * 1_000_000_000 + value.microseconds * 1000
    if isinstance(value, pa.DurationScalar):
        return int(value.cast(pa.duration("ns")).value)
    return _seconds("duration", value, "timedelta or numpy.timedelta64")


def _moment(value: Any) -> int:
    if isinstance(value, np.datetime64):
        return int(numpy_ticks(value))
    if isinstance(value, datetime):
        return _span((value if value.tzinfo is not None else value.replace(tzinfo=UTC)) - _EPOCH)
    if isinstance(value, pa.TimestampScalar):
        return int(value.cast(pa.timestamp("ns", value.type.tz)).value)
    return _seconds("timestamp", value, "datetime, numpy.datetime64 or pyarrow.TimestampScalar")


def _seconds(what: str, value: Any, others: str) -> int:
    if not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{what} must be an int, float, {others}, got {type(value)}")
    seconds: float = value.item() if isinstance(value, np.generic) else value
    if not abs(seconds) <= _MOST_SECONDS:
        raise _not_seconds(seconds)
    return int(seconds) * 1_000_000_000 if isinstance(seconds, int) else round(seconds * 1e9)


def _not_seconds(value: float) -> ValueError:
    likely = " It looks like milliseconds or less." if abs(value) >= _MILLISECONDS_LIKELY else ""
    return ValueError(f"Expected seconds within {_MOST_SECONDS} of zero, but got {value}.{likely}")


PROPERTIES = "/__properties"
"""The entity that holds the properties of a recording."""

_TOMBSTONE = "Clear:is_recursive"


def is_property(entity_path: str) -> bool:
    """Return True if an entity holds properties of the recording rather than data."""
    return entity_path == PROPERTIES or entity_path.startswith(f"{PROPERTIES}/")


def column_name(entity_path: str, component: str) -> str:
    """The name of a component's column.

    >>> column_name("/arm", "Scalars:scalars"), column_name("/__properties/episode", "index")
    ('/arm:Scalars:scalars', 'property:episode:index')
    """
    if not is_property(entity_path):
        return f"{entity_path}:{component}"
    return ":".join(["property", *filter(None, [entity_path[len(PROPERTIES) + 1 :]]), component])


@dataclass(frozen=True, slots=True, repr=False)
class IndexColumnDescriptor:
    """The column of a timeline. To select one, use :class:`IndexColumnSelector`.

    >>> IndexColumnDescriptor("frame")
    Index(timeline:frame)
    """

    name: str
    kind: TimelineKind = TimelineKind.SEQUENCE

    @property
    def is_static(self) -> bool:
        """Always False: every row has a time."""
        return False

    def __repr__(self) -> str:
        return f"Index(timeline:{self.name})"


@dataclass(frozen=True, slots=True, repr=False)
class ComponentColumnDescriptor:
    """The column of a component on one entity. To select one, use :class:`ComponentColumnSelector`.

    ``datatype`` is the Arrow type as stored, ``list<T>``. ``is_static`` is true if some static chunk has the component.
    ``is_semantically_empty`` is true if all known values are nulls or empty lists.

    >>> print(ComponentColumnDescriptor("/arm", "volume", is_static=True).name)
    /arm:volume
    """

    entity_path: str
    component: str
    archetype: str | None = None
    component_type: str | None = None
    is_static: bool = False
    datatype: pa.DataType = field(default_factory=lambda: pa.list_(pa.null()))
    is_semantically_empty: bool = False

    @property
    def name(self) -> str:
        """The name of the column: ``/arm:Scalars:scalars``; ``property:…`` for properties of the recording."""
        return column_name(self.entity_path, self.component)

    @property
    def is_property(self) -> bool:
        """Return True if the column belongs to the properties of the recording, ``/__properties`` and below."""
        return is_property(self.entity_path)

    @property
    def is_tombstone(self) -> bool:
        """Return True if the values of the column only clear other components."""
        return self.component == _TOMBSTONE

    @property
    def descriptor(self) -> ComponentDescriptor:
        """The component without its entity."""
        return ComponentDescriptor(self.component, self.archetype, self.component_type)

    @property
    def sort_key(self) -> tuple[Key, tuple[str, str, str]]:
        """The sort key of columns: the entity path in natural order, then the order in a chunk."""
        return path_order(self.entity_path), self.descriptor.sort_key

    def __repr__(self) -> str:
        lines = [
            f"Column name: {self.name}",
            f"Entity path: {self.entity_path}",
            f"Archetype: {self.archetype}",
            f"Component type: {self.component_type or ''}",
            f"Component: {self.component}",
        ]
        return "\n\t".join([*lines, "Static: true"] if self.is_static else lines)


_TOKENS = re.compile(r"[0-9]+|[^0-9]", re.DOTALL)

Key = tuple[tuple[bool, tuple[tuple[str, int, str], ...]], ...]


@lru_cache(maxsize=65_536)
def path_order(entity_path: str) -> Key:
    """A sort key for entity paths: part by part, a parent before its children.

    Runs of digits compare as numbers (those with leading zeros first, as text), English letters regardless of case
    (``A`` before ``a`` if nothing else differs), other characters by code point. Parts that start with two underscores
    come last among their siblings.

    >>> sorted(["/__properties", "/b10", "/b2", "/b", "/B", "/"], key=path_order)
    ['/', '/B', '/b', '/b2', '/b10', '/__properties']
    """
    return tuple(
        (part.startswith("__"), tuple(map(_token, _TOKENS.findall(part)))) for part in split_parts(entity_path)
    )


def _token(token: str) -> tuple[str, int, str]:
    if token[0] in "0123456789":
        return "0", 0 if token[0] == "0" else len(token), token
    return token.lower() if token.isascii() else token, 0, token


class SelectorTypeError(TypeError, ValueError):
    """A selector has an unsupported type."""


@dataclass(frozen=True, slots=True, repr=False)
class ComponentColumnSelector:
    """Selects one component of one entity.

    >>> ComponentColumnSelector("world/arm/", "Scalars:scalars")
    /world/arm:Scalars:scalars
    """

    entity_path: str
    component: str

    def __post_init__(self) -> None:
        check_argument("component", self.component, str)
        object.__setattr__(self, "entity_path", parse_entity_path(self.entity_path))

    @classmethod
    def parse(cls, text: str) -> ComponentColumnSelector:
        """The selector written as ``<entity path>:<component>``; raises ``ValueError`` for other text.

        >>> ComponentColumnSelector.parse("arm:Scalars:scalars").component
        'Scalars:scalars'
        """
        if not text:
            raise ValueError("Expected column selector, found empty string")
        entity_path, colon, component = text.partition(":")
        if not colon:
            raise ValueError(f"Expected string in the form of `entity_path:component_type`, got: {text}")
        return cls(entity_path, component)

    def __repr__(self) -> str:
        return f"{self.entity_path}:{self.component}"


@dataclass(frozen=True, slots=True, repr=False, init=False)
class IndexColumnSelector:
    """Selects a timeline.

    >>> IndexColumnSelector("frame")
    Index(timeline:frame)
    """

    name: str

    def __init__(self, index: str) -> None:
        check_argument("index", index, str)
        object.__setattr__(self, "name", index)

    def __repr__(self) -> str:
        return f"Index(timeline:{self.name})"
