"""Chunk headers from the columns of a manifest."""

from __future__ import annotations

from collections import defaultdict
from operator import is_
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import ChunkHeader, ComponentDescriptor, ComponentHeader, ComponentRange, TimelineHeader
from .column_names import FIXED
from .manifest_layout import DetailColumns, KnownComponent, Layout, LayoutError, UnionSchema

NO_ROWS = ComponentRange(None, None, 0)
"""The range of a component that has no value on a timeline."""

_Mask = npt.NDArray[np.bool_]
_Found = tuple[ComponentDescriptor, tuple[ComponentRange, ...]]


class HeaderBuilder:
    """Makes the headers of a manifest's rows. Only cells that are not null cost anything in Python."""

    def __init__(self, batch: pa.RecordBatch, layout: Layout, union: UnionSchema) -> None:
        self._batch = batch
        self._union = union
        self._is_bare = nulls_as_zero(batch.column(layout.fixed[FIXED[3]])) == 0
        self._timelines: defaultdict[int, list[TimelineHeader]] = defaultdict(list)
        self._components: defaultdict[int, list[_Found]] = defaultdict(list)
        present = self._read_timelines(layout)
        self._read_statics(layout)
        by_descriptor: defaultdict[ComponentDescriptor, dict[str, DetailColumns]] = defaultdict(dict)
        for detail in layout.details or ():
            by_descriptor[detail.descriptor][detail.timeline] = detail
        for descriptor in sorted(by_descriptor, key=lambda d: d.sort_key):
            self._read_details(descriptor, by_descriptor[descriptor], present)

    def _read_timelines(self, layout: Layout) -> dict[str, _Mask]:
        """Note the timelines of every row; gives, for each timeline in order, which rows have it."""
        present: dict[str, _Mask] = {}
        for name in sorted(layout.timelines, key=str.encode):
            start, end = (self._batch.column(p) for p in layout.timelines[name])
            present[name] = valid(start)
            kind = self._union.timelines[name]
            rows = np.flatnonzero(present[name])
            for row, low, high in zip(rows.tolist(), _ticks(start, rows), _ticks(end, rows), strict=True):
                self._timelines[row].append(TimelineHeader(name, kind, low, high))
        return present

    def _read_statics(self, layout: Layout) -> None:
        for descriptor in sorted(layout.statics, key=lambda d: d.sort_key):
            held = nulls_as_zero(self._batch.column(layout.statics[descriptor]))
            for row in np.flatnonzero(held).tolist():
                self._components[row].append((descriptor, ()))

    def _read_details(
        self, descriptor: ComponentDescriptor, details: dict[str, DetailColumns], present: dict[str, _Mask]
    ) -> None:
        """Note the component on the rows that have it, with a range for each timeline of the row, in order.

        Rows without any chunk row count as having what has a range there (which means nothing).
        """
        hits = {timeline: self._hits(detail, present[timeline]) for timeline, detail in details.items()}
        anywhere = np.logical_or.reduce(list(hits.values()))
        ranges: dict[int, list[ComponentRange]] = {row: [] for row in np.flatnonzero(anywhere).tolist()}
        for timeline, has_timeline in present.items():
            rows = np.flatnonzero(anywhere & has_timeline)
            detail = details.get(timeline)
            if detail is None:
                for row in rows.tolist():
                    ranges[row].append(NO_ROWS)
                continue
            counts = nulls_as_zero(self._batch.column(detail.num_rows))[rows].tolist()
            low, high = (_ticks(self._batch.column(p), rows) for p in (detail.start, detail.end))
            for row, first, last, count in zip(rows.tolist(), low, high, counts, strict=True):
                found = ranges[row]
                found.append(self._range(row, len(found), first, last, count))
        for row, found in ranges.items():
            self._components[row].append((descriptor, self._shared(row, found)))

    def _range(self, row: int, position: int, start: int, end: int, count: int) -> ComponentRange:
        """The range, shared with the component before where it is the same: there are millions of them."""
        if not count:
            return NO_ROWS
        before = self._components.get(row)
        if before and len(before[-1][1]) > position:
            known = before[-1][1][position]
            if known.num_rows == count and known.start == start and known.end == end:
                return known
        timeline = self._timelines[row][position]
        if timeline.start == start and timeline.end == end:
            return ComponentRange(timeline.start, timeline.end, count)
        return ComponentRange(start, end, count)

    def _shared(self, row: int, found: list[ComponentRange]) -> tuple[ComponentRange, ...]:
        before = self._components.get(row)
        if before and len(before[-1][1]) == len(found) and all(map(is_, before[-1][1], found)):
            return before[-1][1]
        return tuple(found)

    def _hits(self, detail: DetailColumns, has_timeline: _Mask) -> _Mask:
        """The rows where a component has values on a timeline."""
        counted = nulls_as_zero(self._batch.column(detail.num_rows)) > 0
        ranged = valid(self._batch.column(detail.start))
        return np.asarray(ranged & has_timeline & (counted | self._is_bare))

    def header(self, row: int, entity_path: str, chunk_id: bytes, is_static: bool, num_rows: int) -> ChunkHeader:
        """The header of one row; without components where the manifest does not tell them."""
        timelines = () if is_static else tuple(self._timelines.get(row, ()))
        if num_rows == 0:
            timelines = tuple(TimelineHeader(t.name, t.kind, None, None) for t in timelines)
        components = self._component_headers(row, entity_path, is_static)
        return ChunkHeader(chunk_id, entity_path, num_rows, is_static, timelines, components)

    def _component_headers(self, row: int, entity_path: str, is_static: bool) -> tuple[ComponentHeader, ...]:
        headers = []
        for descriptor, ranges in self._components.get(row, ()):
            if is_static == bool(ranges):
                return ()
            known = self._known(entity_path, descriptor)
            if known is None:
                return ()
            headers.append(ComponentHeader(descriptor, known.datatype, ranges, known.is_empty))
        return tuple(headers)

    def _known(self, entity_path: str, descriptor: ComponentDescriptor) -> KnownComponent | None:
        """The component as the union schema has it; None where it speaks of another one of that name."""
        known = self._union.components.get((entity_path, descriptor.component))
        if known is None or (known.descriptor is not descriptor and known.descriptor != descriptor):
            return None
        return known


def check_ranges(batch: pa.RecordBatch, layout: Layout) -> None:
    """Raise :class:`LayoutError` where a component is said to have rows on a timeline, but no range there."""
    for detail in layout.details or ():
        counted = nulls_as_zero(batch.column(detail.num_rows)) > 0
        has_timeline = valid(batch.column(layout.timelines[detail.timeline][0]))
        if np.any(counted & ~(valid(batch.column(detail.start)) & has_timeline)):
            raise LayoutError(f"{detail.descriptor} has rows on {detail.timeline!r} but no range")


def nulls_as_zero(column: pa.Array) -> npt.NDArray[Any]:
    """The values of a numeric or boolean column, zero where it is null."""
    return np.asarray((column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False))


def valid(column: pa.Array) -> _Mask:
    """The mask of the values of ``column`` that are not null."""
    if not column.null_count:
        return np.ones(len(column), dtype=bool)
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=bool)


def _ticks(column: pa.Array, rows: npt.NDArray[np.int64]) -> list[int]:
    """The 64-bit values at ``rows``, as numbers."""
    values = column.view(pa.int64())
    filled = values.fill_null(0) if values.null_count else values
    return list(np.asarray(filled.to_numpy(zero_copy_only=False))[rows].tolist())
