"""Chunks from columns that a user gives: checked, wrapped into lists, sorted by time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import check_argument
from .columns import ComponentColumnLike, TimeColumnLike, descriptor_of
from .data import ChunkData, Component, Timeline, wrap_each
from .descriptor import ComponentDescriptor
from .entity_path import join_parts, parse_entity_path
from .header import TimelineKind


def from_columns(
    entity_path: str, indexes: Iterable[TimeColumnLike], columns: Iterable[ComponentColumnLike]
) -> ChunkData:
    """See :meth:`Chunk.from_columns`."""
    times = [(t.timeline_name(), _arrow(t.as_arrow_array())) for t in indexes]
    values = [(descriptor_of(c.component_descriptor()), _arrow(c.as_arrow_array())) for c in columns]
    length = _check_lengths(times, values)
    timelines = _timelines(dict(times))
    components = {d: Component(d, wrap_each(v)) for d, v in values}
    if timelines and not components and length:
        raise RuntimeError(
            "Detected malformed Chunk: All timelines in a chunk must have the same number of timestamps, matching "
            f"the number of row IDs. Found 0 row IDs but {length} timestamps for timeline '{timelines[0].name}'"
        )
    ordered = tuple(sorted(components.values(), key=lambda c: c.descriptor.sort_key))
    return sorted_by_time(parse_entity_path(entity_path), length, timelines, ordered)


def from_property(name: str, values: Any) -> ChunkData:
    """See :meth:`Chunk.from_property`."""
    check_argument("name", name, str)
    batches = values.as_component_batches() if hasattr(values, "as_component_batches") else values
    if not isinstance(batches, Iterable):
        raise TypeError(f"Expected an archetype or component columns, got '{type(values).__name__}' object")
    components = {}
    for batch in batches:
        if not isinstance(batch, ComponentColumnLike):
            raise TypeError(f"Expected component columns, got '{type(batch).__name__}' object")
        instances = _arrow(batch.as_arrow_array())
        descriptor = descriptor_of(batch.component_descriptor())
        row = pa.ListArray.from_arrays(pa.array([0, len(instances)], pa.int32()), instances)
        components[descriptor] = Component(descriptor, row)
    ordered = tuple(sorted(components.values(), key=lambda c: c.descriptor.sort_key))
    return ChunkData.fresh(join_parts(["__properties", name]), 1, (), ordered)


def sorted_by_time(
    entity_path: str, length: int, timelines: tuple[Timeline, ...], components: tuple[Component, ...]
) -> ChunkData:
    """Rows in stable lexicographic order of the timelines (by name), with ids derived from a fresh chunk id."""
    data = ChunkData.fresh(entity_path, length, timelines, components)
    order = time_order(timelines)
    if order is not None:
        moved = data.take(order)
        return replace(data, timelines=moved.timelines, components=moved.components)
    return data


def time_order(timelines: tuple[Timeline, ...]) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
    """The permutation that sorts rows stably by all timelines in name order; None when they are in order."""
    if not timelines or len(timelines[0].times) < 2 or timelines[0].is_strict:
        return None
    if timelines[0].is_sorted and all(t.is_sorted for t in timelines):
        return None
    order = np.lexsort([t.ticks for t in reversed(timelines)]).astype(np.int64)
    return None if bool(np.all(order[:-1] < order[1:])) else order


def _arrow(values: object) -> pa.Array:
    if not isinstance(values, pa.Array):
        kind = type(values)
        raise TypeError(f"Expected instance of pyarrow.lib.Array, got {kind.__module__}.{kind.__name__}")
    return values


def _check_lengths(times: list[tuple[str, pa.Array]], values: list[tuple[ComponentDescriptor, pa.Array]]) -> int:
    named = [(f"timeline '{n}'", a) for n, a in times] + [(f"component '{d}'", a) for d, a in values]
    expected = len(named[0][1]) if named else 0
    for what, array in named:
        if len(array) != expected:
            raise ValueError(f"All columns must have the same length. Expected {expected} but {what} has {len(array)}.")
    return expected


def _timelines(times: dict[str, pa.Array]) -> tuple[Timeline, ...]:
    out = []
    for name, array in sorted(times.items(), key=lambda item: item[0].encode()):
        kind = TimelineKind.of(array.type)
        if kind is None:
            raise RuntimeError(
                f"Error converting temporal data: Detected malformed Chunk: Invalid data_type for timeline: {name}"
            )
        if array.null_count:
            raise RuntimeError(
                f"Error converting temporal data: Detected malformed Chunk: Invalid timeline {name}: "
                "Time columns had nulls, but should be dense"
            )
        out.append(Timeline(name, kind, array if array.type == kind.arrow_type else array.cast(kind.arrow_type)))
    return tuple(out)
