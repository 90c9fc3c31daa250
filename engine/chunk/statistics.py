"""The header of a decoded chunk: ranges and counts, computed from its columns."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .data import ChunkData, Component, Timeline
from .header import ChunkHeader, ComponentHeader, ComponentRange, TimelineHeader

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
    """Whether every row is null or an empty list."""
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
