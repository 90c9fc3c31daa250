"""The columns of a manifest, gathered chunk by chunk and laid out as Arrow arrays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk.descriptor import ComponentDescriptor
from ..chunk.header import ChunkHeader, TimelineKind
from .column_names import END, FIXED, HAS_STATIC_DATA, NUM_ROWS, START, STATIC_INDEX, column_name
from .entry import ChunkEntry
from .union_schema import descriptor_metadata

_Cells = tuple[list[int], list[int], list[int], list[int]]
"""Row, start, end and number of rows of the cells of one column group that are not null."""

_ALL_TIMES: Final = (1 - 2**63, 2**63 - 1)


def _cells() -> _Cells:
    return [], [], [], []


class ManifestColumns:
    """Collects the cells of a manifest's columns; rows are entries in order.

    Only components whose column names follow from ``known``, the descriptors of the union schema, have columns:
    Rerun refuses a file with others. A chunk that has such a component is found by its timelines.
    """

    def __init__(self, entries: Sequence[ChunkEntry], known: frozenset[ComponentDescriptor]) -> None:
        self._entries = entries
        self._names = {column_name(None, d, HAS_STATIC_DATA) for d in known}
        self._static: dict[ComponentDescriptor, list[int]] = {}
        self._timelines: defaultdict[str, _Cells] = defaultdict(_cells)
        self._components: defaultdict[tuple[str, ComponentDescriptor], _Cells] = defaultdict(_cells)
        for row, entry in enumerate(entries):
            self._gather(row, entry.header)

    def _gather(self, row: int, header: ChunkHeader) -> None:
        if header.is_static:
            for component in header.components:
                self._static.setdefault(component.descriptor, []).append(row)
            return
        if header.num_rows == 0:
            self._gather_without_rows(row, header)
            return
        for timeline in header.timelines:
            if timeline.start is not None and timeline.end is not None:
                _add(self._timelines[timeline.name], row, timeline.start, timeline.end, header.num_rows)
        for component in header.components:
            self._static.setdefault(component.descriptor, [])
            for timeline, found in zip(header.timelines, component.ranges, strict=True):
                cells = self._components[timeline.name, component.descriptor]
                if found.start is not None and found.end is not None:
                    _add(cells, row, found.start, found.end, found.num_rows)

    def _gather_without_rows(self, row: int, header: ChunkHeader) -> None:
        """A chunk without rows is given the range of all times, as Rerun does, so that its columns are known."""
        for timeline in header.timelines:
            _add(self._timelines[timeline.name], row, *_ALL_TIMES, 0)
        for component in header.components:
            self._static.setdefault(component.descriptor, [])
            for timeline in header.timelines:
                _add(self._components[timeline.name, component.descriptor], row, *_ALL_TIMES, 0)

    @property
    def detail_bytes(self) -> int:
        """Bytes that the columns for each timeline and component would take, uncompressed."""
        return len(self._components) * len(self._entries) * 24

    def record_batch(self, timelines: dict[str, TimelineKind], *, detailed: bool) -> pa.RecordBatch:
        """The manifest; without ``detailed`` it says nothing of single components on single timelines."""
        fields: list[pa.Field] = []
        arrays: list[pa.Array] = []
        for field, array in [
            *self._fixed_columns(),
            *self._static_columns(),
            *self._timeline_columns(timelines),
            *(self._component_columns(timelines) if detailed else ()),
        ]:
            fields.append(field)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _fixed_columns(self) -> list[tuple[pa.Field, pa.Array]]:
        entries = self._entries
        headers = [e.header for e in entries]
        arrays = [
            pa.array([h.entity_path for h in headers], pa.string()),
            pa.array([h.chunk_id for h in headers], pa.binary(16)),
            pa.array([h.is_static for h in headers], pa.bool_()),
            pa.array([h.num_rows for h in headers], pa.uint64()),
            pa.array([e.offset for e in entries], pa.uint64()),
            pa.array([e.size for e in entries], pa.uint64()),
            pa.array([e.uncompressed_size for e in entries], pa.uint64()),
        ]
        return [(pa.field(n, a.type, nullable=False), a) for n, a in zip(FIXED, arrays, strict=True)]

    def _static_columns(self) -> list[tuple[pa.Field, pa.Array]]:
        columns = []
        for descriptor in sorted(filter(self._is_known, self._static), key=lambda d: d.sort_key):
            present = np.zeros(len(self._entries), dtype=bool)
            present[self._static[descriptor]] = True
            metadata = {**descriptor_metadata(descriptor), "rerun:index": STATIC_INDEX}
            name = column_name(None, descriptor, HAS_STATIC_DATA)
            columns.append((pa.field(name, pa.bool_(), nullable=False, metadata=metadata), pa.array(present)))
        return columns

    def _timeline_columns(self, timelines: dict[str, TimelineKind]) -> list[tuple[pa.Field, pa.Array]]:
        columns = []
        for name in sorted(timelines, key=str.encode):
            columns += self._range_columns(self._timelines[name], name, timelines[name], None)
        return columns

    def _component_columns(self, timelines: dict[str, TimelineKind]) -> list[tuple[pa.Field, pa.Array]]:
        columns = []
        for name, descriptor in sorted(self._components, key=lambda k: (k[0].encode(), k[1].sort_key)):
            if not self._is_known(descriptor):
                continue
            cells = self._components[name, descriptor]
            columns += self._range_columns(cells, name, timelines[name], descriptor)
            counts = np.zeros(len(self._entries), dtype=np.uint64)
            counts[cells[0]] = cells[3]
            field = _index_field(name, descriptor, NUM_ROWS, pa.uint64())
            columns.append((field, pa.array(counts)))
        return columns

    def _is_known(self, descriptor: ComponentDescriptor) -> bool:
        return column_name(None, descriptor, HAS_STATIC_DATA) in self._names

    def _range_columns(
        self, cells: _Cells, timeline: str, kind: TimelineKind, descriptor: ComponentDescriptor | None
    ) -> list[tuple[pa.Field, pa.Array]]:
        rows = np.array(cells[0], dtype=np.int64)
        size = len(self._entries)
        return [
            (_index_field(timeline, descriptor, suffix, kind.arrow_type), _sparse(rows, values, size, kind.arrow_type))
            for suffix, values in ((START, cells[1]), (END, cells[2]))
        ]


def _add(cells: _Cells, row: int, start: int, end: int, num_rows: int) -> None:
    cells[0].append(row)
    cells[1].append(start)
    cells[2].append(end)
    cells[3].append(num_rows)


def _index_field(timeline: str, descriptor: ComponentDescriptor | None, suffix: str, datatype: pa.DataType) -> pa.Field:
    metadata = descriptor_metadata(descriptor) if descriptor is not None else {}
    metadata["rerun:index"] = timeline
    return pa.field(column_name(timeline, descriptor, suffix), datatype, metadata=metadata)


_BITS: Final[Any] = {"bitorder": "little"}


def _sparse(rows: npt.NDArray[np.int64], values: list[int], size: int, datatype: pa.DataType) -> pa.Array:
    """An array of ``size`` with ``values`` at ``rows`` and null elsewhere."""
    data = np.zeros(size, dtype=np.int64)
    data[rows] = np.array(values, dtype=np.int64)
    present = np.zeros(size, dtype=bool)
    present[rows] = True
    validity = pa.py_buffer(np.packbits(present, **_BITS))
    return pa.Array.from_buffers(datatype, size, [validity, pa.py_buffer(data)], size - len(rows))
