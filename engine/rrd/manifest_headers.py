"""Chunk headers from the columns of a manifest."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk.descriptor import ComponentDescriptor
from ..chunk.header import ChunkHeader, ComponentHeader, ComponentRange, TimelineHeader
from .column_names import FIXED
from .manifest_layout import KnownComponent, Layout, LayoutError, UnionSchema

NO_ROWS = ComponentRange(None, None, 0)
"""The range of a component that has no value on a timeline."""


class HeaderBuilder:
    """Makes the headers of a manifest's rows. Only cells that are not null cost anything in Python."""

    def __init__(self, batch: pa.RecordBatch, layout: Layout, union: UnionSchema) -> None:
        self._components = union.components
        self._num_rows = nulls_as_zero(batch.column(layout.fixed[FIXED[3]]))
        self._timelines: defaultdict[int, list[TimelineHeader]] = defaultdict(list)
        self._statics: defaultdict[int, list[ComponentDescriptor]] = defaultdict(list)
        self._ranges: defaultdict[int, dict[ComponentDescriptor, dict[str, ComponentRange]]] = defaultdict(dict)
        self._read_timelines(batch, layout, union)
        self._read_statics(batch, layout)
        self._read_details(batch, layout)

    def _read_timelines(self, batch: pa.RecordBatch, layout: Layout, union: UnionSchema) -> None:
        for name in sorted(layout.timelines, key=str.encode):
            start, end = (batch.column(p) for p in layout.timelines[name])
            kind = union.timelines[name]
            rows = _present(start)
            for row, low, high in zip(rows.tolist(), _ticks(start, rows), _ticks(end, rows), strict=True):
                self._timelines[row].append(TimelineHeader(name, kind, low, high))

    def _read_statics(self, batch: pa.RecordBatch, layout: Layout) -> None:
        for descriptor, position in layout.statics.items():
            held = nulls_as_zero(batch.column(position)).astype(bool)
            for row in np.flatnonzero(held).tolist():
                self._statics[row].append(descriptor)

    def _read_details(self, batch: pa.RecordBatch, layout: Layout) -> None:
        """Note every component that has rows; in a chunk without rows, those with a range (it means nothing)."""
        for detail in layout.details or ():
            start, end = batch.column(detail.start), batch.column(detail.end)
            counts = nulls_as_zero(batch.column(detail.num_rows))
            ranged = np.zeros(len(counts), dtype=bool)
            ranged[_present(start)] = True
            rows = np.flatnonzero(ranged & ((counts > 0) | (self._num_rows == 0)))
            if np.any(counts[~ranged]):
                raise LayoutError(f"{detail.descriptor} has rows on {detail.timeline!r} but no range")
            found = zip(rows.tolist(), _ticks(start, rows), _ticks(end, rows), counts[rows].tolist(), strict=True)
            for row, low, high, count in found:
                span = ComponentRange(low, high, count) if count else NO_ROWS
                self._ranges[row].setdefault(detail.descriptor, {})[detail.timeline] = span

    def header(self, row: int, entity_path: str, chunk_id: bytes, is_static: bool, num_rows: int) -> ChunkHeader:
        """The header of one row; without components where the manifest does not tell them."""
        timelines = () if is_static else tuple(self._timelines.get(row, ()))
        if num_rows == 0:
            timelines = tuple(TimelineHeader(t.name, t.kind, None, None) for t in timelines)
        components: list[ComponentHeader] | None
        if is_static:
            components = self._static_components(row, entity_path)
        else:
            components = self._temporal_components(row, entity_path, timelines)
        return ChunkHeader(chunk_id, entity_path, num_rows, is_static, timelines, tuple(components or ()))

    def _static_components(self, row: int, entity_path: str) -> list[ComponentHeader] | None:
        headers = []
        for descriptor in self._statics.get(row, ()):
            known = self._known(entity_path, descriptor)
            if known is None:
                return None
            headers.append(ComponentHeader(descriptor, known.datatype, (), known.is_empty))
        return headers

    def _temporal_components(
        self, row: int, entity_path: str, timelines: tuple[TimelineHeader, ...]
    ) -> list[ComponentHeader] | None:
        headers = []
        for descriptor, found in sorted(self._ranges.get(row, {}).items(), key=lambda item: item[0].sort_key):
            known = self._known(entity_path, descriptor)
            if known is None:
                return None
            ranges = tuple([found.get(t.name, NO_ROWS) for t in timelines])
            headers.append(ComponentHeader(descriptor, known.datatype, ranges, known.is_empty))
        return headers

    def _known(self, entity_path: str, descriptor: ComponentDescriptor) -> KnownComponent | None:
        """What the union schema says of the component; None where it speaks of another one of that name."""
        known = self._components.get((entity_path, descriptor.component))
        return known if known is not None and known.descriptor == descriptor else None


def nulls_as_zero(column: pa.Array) -> npt.NDArray[Any]:
    """The values of a numeric or boolean column, zero where it is null."""
    return np.asarray((column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False))


def _present(column: pa.Array) -> npt.NDArray[np.int64]:
    """The rows where ``column`` is not null."""
    if not column.null_count:
        return np.arange(len(column))
    return np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))


def _ticks(column: pa.Array, rows: npt.NDArray[np.int64]) -> list[int]:
    """The 64-bit values at ``rows``, as numbers."""
    values = column.view(pa.int64())
    filled = values.fill_null(0) if values.null_count else values
    return list(np.asarray(filled.to_numpy(zero_copy_only=False))[rows].tolist())
