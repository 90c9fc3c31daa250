"""Columns of another footer, taken over as they stand: no header is made, nothing costs by the chunk."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import ComponentDescriptor
from .chunk_columns import Cells, ChunkColumns, UnionComponent
from .manifest_headers import nulls_as_zero, valid
from .manifest_layout import DetailColumns
from .manifest_table import ManifestTable, Mask


class _UnclearError(Exception):
    """The manifest leaves open what only the chunk knows, or says what only its header can put right."""


def columns_of_table(table: ManifestTable) -> ChunkColumns | None:
    """The columns that describe the rows of ``table``: those that its headers would give.

    None where only headers, or the chunks themselves, say what is meant: for chunks without rows, and those whose
    components the manifest does not tell.
    """
    if not bool(np.all(table.num_rows)):
        return None
    try:
        return _Taking(table).columns()
    except _UnclearError:
        return None


class _Taking:
    def __init__(self, table: ManifestTable) -> None:
        self._table = table
        self._batch = table.batch
        self._codes, self._paths = table.entity_codes
        self._is_static = table.is_static
        self._present = table.timelines_present()
        self._is_told = np.zeros(len(table), dtype=bool)
        self._statics: dict[ComponentDescriptor, npt.NDArray[np.int64]] = {}
        self._components: dict[tuple[str, ComponentDescriptor], Cells] = {}
        self._union: dict[tuple[str, str], UnionComponent] = {}

    def columns(self) -> ChunkColumns:
        table = self._table
        timelines = self._timelines()
        for descriptor, position in table.layout.statics.items():
            self._take_static(descriptor, position)
        by_descriptor: defaultdict[ComponentDescriptor, dict[str, DetailColumns]] = defaultdict(dict)
        for detail in table.layout.details or ():
            by_descriptor[detail.descriptor][detail.timeline] = detail
        for descriptor, details in by_descriptor.items():
            self._take_temporal(descriptor, details)
        if not bool(self._is_told.all()):
            raise _UnclearError
        return ChunkColumns(
            pa.array(self._paths, pa.string()).take(pa.array(self._codes)),
            table.fixed("chunk_id"),
            self._is_static,
            table.num_rows,
            table.offsets,
            table.sizes,
            table.uncompressed_sizes,
            table.digests,
            {name: table.union.timelines[name] for name in timelines},
            self._statics,
            timelines,
            self._components,
            self._union,
        )

    def _timelines(self) -> dict[str, Cells]:
        found: dict[str, Cells] = {}
        for name, present in self._present.items():
            if bool(np.any(present & self._is_static)):
                raise _UnclearError
            if bool(np.any(present)):
                start, end = self._table.layout.timelines[name]
                found[name] = self._cells(present, start, end, self._table.num_rows)
        return found

    def _take_static(self, descriptor: ComponentDescriptor, position: int) -> None:
        held = np.asarray(nulls_as_zero(self._batch.column(position)), dtype=bool)
        if bool(np.any(held & ~self._is_static)):
            raise _UnclearError
        if bool(np.any(held)):
            self._statics[descriptor] = np.flatnonzero(held)
            self._tell(descriptor, held, is_static=True)

    def _take_temporal(self, descriptor: ComponentDescriptor, details: dict[str, DetailColumns]) -> None:
        counts = {name: nulls_as_zero(self._batch.column(d.num_rows)) for name, d in details.items()}
        hits = {
            name: (counts[name] > 0) & valid(self._batch.column(d.start)) & self._present[name]
            for name, d in details.items()
        }
        anywhere: Mask = np.logical_or.reduce(list(hits.values()))
        if not bool(np.any(anywhere)):
            return
        self._statics.setdefault(descriptor, np.empty(0, dtype=np.int64))
        nowhere = np.zeros(len(self._table), dtype=bool)
        for name, present in self._present.items():
            if bool(np.any(anywhere & present)):
                detail = details.get(name)
                self._components[name, descriptor] = (
                    Cells(*(np.empty(0, dtype=np.int64) for _ in Cells._fields))
                    if detail is None
                    else self._cells(hits.get(name, nowhere), detail.start, detail.end, counts[name])
                )
        self._tell(descriptor, anywhere, is_static=False)

    def _cells(self, rows: Mask, start: int, end: int, num_rows: npt.NDArray[np.uint64]) -> Cells:
        first, last = (self._batch.column(p) for p in (start, end))
        if bool(np.any(rows & ~valid(last))):
            raise _UnclearError
        at = np.flatnonzero(rows)
        return Cells(at, _ticks(first)[at], _ticks(last)[at], num_rows[at].astype(np.int64))

    def _tell(self, descriptor: ComponentDescriptor, rows: Mask, *, is_static: bool) -> None:
        self._is_told |= rows
        for code in np.unique(self._codes[rows]).tolist():
            key = (self._paths[code], descriptor.component)
            known = self._table.union.components.get(key)
            if known is None or known.descriptor != descriptor:
                raise _UnclearError
            found = UnionComponent(descriptor, known.datatype, is_static, known.is_empty is True)
            self._union[key] = self._union[key].joined(found) if key in self._union else found


def _ticks(column: pa.Array) -> npt.NDArray[np.int64]:
    """The 64-bit values of a column as they lie in memory: where it is null, any."""
    values = column.view(pa.int64())
    buffer = values.buffers()[1]
    if buffer is None:
        return np.zeros(len(values), dtype=np.int64)
    return np.frombuffer(buffer, np.int64, len(values), values.offset * 8)
