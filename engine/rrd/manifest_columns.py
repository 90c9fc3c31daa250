"""The columns of a manifest, laid out as Arrow arrays."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk.descriptor import ComponentDescriptor
from .chunk_columns import Cells, ChunkColumns
from .column_names import END, FIXED, HAS_STATIC_DATA, NUM_ROWS, START, STATIC_INDEX, column_name
from .union_schema import descriptor_metadata


class ManifestColumns:
    """Lays out the manifest of chunks; rows are theirs.

    Only components whose column names follow from ``known``, the descriptors of the union schema, have columns:
    Rerun refuses a file with others. A chunk that has such a component is found by its timelines.
    """

    def __init__(self, chunks: ChunkColumns, known: frozenset[ComponentDescriptor]) -> None:
        self._chunks = chunks
        self._names = {column_name(None, d, HAS_STATIC_DATA) for d in known}

    @property
    def detail_bytes(self) -> int:
        """Bytes that the columns for each timeline and component would take, uncompressed."""
        return len(self._chunks.components) * len(self._chunks) * 24

    def record_batch(self, *, detailed: bool) -> pa.RecordBatch:
        """The manifest; without ``detailed`` it says nothing of single components on single timelines."""
        fields: list[pa.Field] = []
        arrays: list[pa.Array] = []
        for field, array in [
            *self._fixed_columns(),
            *self._static_columns(),
            *self._timeline_columns(),
            *(self._component_columns() if detailed else ()),
        ]:
            fields.append(field)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _fixed_columns(self) -> list[tuple[pa.Field, pa.Array]]:
        chunks = self._chunks
        numbers = (chunks.num_rows, chunks.offsets, chunks.sizes, chunks.uncompressed_sizes)
        arrays = [chunks.paths, chunks.ids, pa.array(chunks.is_static), *map(pa.array, numbers)]
        return [(pa.field(n, a.type, nullable=False), a) for n, a in zip(FIXED, arrays, strict=True)]

    def _static_columns(self) -> list[tuple[pa.Field, pa.Array]]:
        columns = []
        for descriptor in sorted(filter(self._is_known, self._chunks.statics), key=lambda d: d.sort_key):
            present = np.zeros(len(self._chunks), dtype=bool)
            present[self._chunks.statics[descriptor]] = True
            metadata = {**descriptor_metadata(descriptor), "rerun:index": STATIC_INDEX}
            name = column_name(None, descriptor, HAS_STATIC_DATA)
            columns.append((pa.field(name, pa.bool_(), nullable=False, metadata=metadata), pa.array(present)))
        return columns

    def _timeline_columns(self) -> list[tuple[pa.Field, pa.Array]]:
        columns = []
        for name in sorted(self._chunks.kinds, key=str.encode):
            columns += self._range_columns(self._chunks.timelines.get(name), name, None)
        return columns

    def _component_columns(self) -> list[tuple[pa.Field, pa.Array]]:
        columns = []
        for name, descriptor in sorted(self._chunks.components, key=lambda k: (k[0].encode(), k[1].sort_key)):
            if not self._is_known(descriptor):
                continue
            cells = self._chunks.components[name, descriptor]
            columns += self._range_columns(cells, name, descriptor)
            counts = np.zeros(len(self._chunks), dtype=np.uint64)
            counts[cells.rows] = cells.num_rows
            columns.append((_index_field(name, descriptor, NUM_ROWS, pa.uint64()), pa.array(counts)))
        return columns

    def _is_known(self, descriptor: ComponentDescriptor) -> bool:
        return column_name(None, descriptor, HAS_STATIC_DATA) in self._names

    def _range_columns(
        self, cells: Cells | None, timeline: str, descriptor: ComponentDescriptor | None
    ) -> list[tuple[pa.Field, pa.Array]]:
        datatype = self._chunks.kinds[timeline].arrow_type
        size = len(self._chunks)
        return [
            (
                _index_field(timeline, descriptor, suffix, datatype),
                pa.nulls(size, datatype) if cells is None else _sparse(cells.rows, values, size, datatype),
            )
            for suffix, values in ((START, cells and cells.start), (END, cells and cells.end))
        ]


def _index_field(timeline: str, descriptor: ComponentDescriptor | None, suffix: str, datatype: pa.DataType) -> pa.Field:
    metadata = descriptor_metadata(descriptor) if descriptor is not None else {}
    metadata["rerun:index"] = timeline
    return pa.field(column_name(timeline, descriptor, suffix), datatype, metadata=metadata)


_BITS: Final[Any] = {"bitorder": "little"}


def _sparse(rows: npt.NDArray[np.int64], values: Any, size: int, datatype: pa.DataType) -> pa.Array:
    """An array of ``size`` with ``values`` at ``rows`` and null elsewhere."""
    data = np.zeros(size, dtype=np.int64)
    data[rows] = values
    present = np.zeros(size, dtype=bool)
    present[rows] = True
    validity = pa.py_buffer(np.packbits(present, **_BITS))
    return pa.Array.from_buffers(datatype, size, [validity, pa.py_buffer(data)], size - len(rows))
