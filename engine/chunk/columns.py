"""Columns that a user builds chunks from, for users without rerun-sdk.

Rerun's own ``TimeColumn`` and ``ComponentColumn`` objects work as well: only the methods of the two protocols count.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from .descriptor import ComponentDescriptor
from .header import TimelineKind


@runtime_checkable
class TimeColumnLike(Protocol):
    """Anything that names a timeline and gives its times."""

    def timeline_name(self) -> str:
        """The name of the timeline."""
        ...

    def as_arrow_array(self) -> pa.Array:
        """One time a row."""
        ...


@runtime_checkable
class ComponentColumnLike(Protocol):
    """Anything that describes a component and gives its values."""

    def component_descriptor(self) -> Any:
        """The descriptor: an object with ``component``, ``archetype`` and ``component_type``."""
        ...

    def as_arrow_array(self) -> pa.Array:
        """One value, or one list of values, a row."""
        ...


class TimeColumn:
    """The times of a chunk's rows on one timeline.

    Exactly one of ``sequence`` (integers), ``duration`` (seconds, ``timedelta`` or ``timedelta64``) and ``timestamp``
    (seconds since the Unix epoch, ``datetime`` or ``datetime64``; naive datetimes are UTC) is given.

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
            self.kind, ticks = TimelineKind.SEQUENCE, np.asarray(list(sequence), dtype=np.int64)
        elif duration is not None:
            self.kind, ticks = TimelineKind.DURATION, np.asarray([_nanoseconds(d) for d in duration], dtype=np.int64)
        else:
            assert timestamp is not None
            self.kind, ticks = TimelineKind.TIMESTAMP, np.asarray([_since_epoch(t) for t in timestamp], dtype=np.int64)
        self.times = ticks

    def timeline_name(self) -> str:
        """The name of the timeline."""
        return self.timeline

    def as_arrow_array(self) -> pa.Array:
        """``int64``, ``duration[ns]`` or ``timestamp[ns]``, one time a row."""
        return pa.array(self.times).view(self.kind.arrow_type)


def _nanoseconds(value: float | timedelta | np.timedelta64) -> int:
    if isinstance(value, np.timedelta64):
        return int(value.astype("timedelta64[ns]").astype(np.int64))
    if isinstance(value, timedelta):
        return (value.days * 86_400 + value.seconds) * 1_000_000_000 + value.microseconds * 1000
    return round(float(value) * 1e9)


def _since_epoch(value: float | datetime | np.datetime64) -> int:
    if isinstance(value, np.datetime64):
        return int(value.astype("datetime64[ns]").astype(np.int64))
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return _nanoseconds(aware - datetime(1970, 1, 1, tzinfo=UTC))
    return round(float(value) * 1e9)


class ComponentColumn:
    """The values of one component, one list (or one value) a row; null where a row logs nothing.

    >>> ComponentColumn(ComponentDescriptor("volume"), [[1.0], None]).as_arrow_array().to_pylist()
    [[1.0], None]
    """

    def __init__(self, descriptor: ComponentDescriptor | str, values: pa.Array | Iterable[Any]) -> None:
        self.descriptor = ComponentDescriptor(descriptor) if isinstance(descriptor, str) else descriptor
        self.values = values if isinstance(values, pa.Array) else pa.array(list(values))

    def component_descriptor(self) -> ComponentDescriptor:
        """The descriptor."""
        return self.descriptor

    def as_arrow_array(self) -> pa.Array:
        """One value, or one list of values, a row."""
        return self.values


def descriptor_of(like: Any) -> ComponentDescriptor:
    """This project's descriptor for any object with ``component``, ``archetype`` and ``component_type``."""
    if isinstance(like, ComponentDescriptor):
        return like
    if isinstance(like, str):
        return ComponentDescriptor(like)
    return ComponentDescriptor(like.component, like.archetype or None, like.component_type or None)
