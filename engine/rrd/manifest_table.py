"""The chunks of a store as columns: rows of a footer's manifest, checked, without an object for each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import ComponentDescriptor, parse_entity_path
from .chunk_table import ChunkEntry
from .column_names import DIGEST, FIXED
from .manifest_headers import HeaderBuilder, nulls_as_zero, valid
from .manifest_layout import Layout, UnionSchema, lay_out, read_union_schema

Rows = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_SCHEMAS_KEPT = 32
_LARGEST_KEPT = 256 * 1024
_CHUNK_WORK = 32 * 1024

_PATH, _ID, _STATIC, _ROWS, _OFFSET, _SIZE, _UNCOMPRESSED = FIXED


def _union(schema: bytes) -> UnionSchema:
    return read_union_schema(pa.ipc.open_stream(pa.py_buffer(schema)).schema)


# Most parts of a run have the same columns and schema.
_kept_union = lru_cache(maxsize=_SCHEMAS_KEPT)(_union)


@lru_cache(maxsize=_SCHEMAS_KEPT)
def _kept_layout(columns: bytes, schema: bytes) -> Layout:
    return lay_out(pa.ipc.read_schema(pa.py_buffer(columns)), _kept_union(schema))


@dataclass(frozen=True)
class ManifestTable:
    """Rows of one manifest. It pickles as Arrow IPC, without the columns that say nothing of its rows.

    ``batch`` was checked against ``schema``, the recording's union schema (as it is stored, an IPC stream).
    """

    batch: pa.RecordBatch
    schema: bytes

    @cached_property
    def union(self) -> UnionSchema:
        """The union schema, taken apart."""
        return _kept_union(self.schema) if len(self.schema) <= _LARGEST_KEPT else _union(self.schema)

    @cached_property
    def layout(self) -> Layout:
        """The meaning of each column."""
        columns = self.batch.schema.serialize()
        if columns.size + len(self.schema) <= _LARGEST_KEPT:
            return _kept_layout(columns.to_pybytes(), self.schema)
        return lay_out(self.batch.schema, self.union)

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @cached_property
    def offsets(self) -> Numbers:
        """The places of the messages, in bytes from the start of the stream."""
        return self._numbers(_OFFSET)

    @cached_property
    def sizes(self) -> Numbers:
        """The messages' lengths in bytes."""
        return self._numbers(_SIZE)

    @cached_property
    def uncompressed_sizes(self) -> Numbers:
        """The lengths of the Arrow IPC streams in them."""
        return self._numbers(_UNCOMPRESSED)

    @cached_property
    def num_rows(self) -> Numbers:
        """Rows of each chunk."""
        return self._numbers(_ROWS)

    @property
    def digests(self) -> pa.Array:
        """The digests of the messages, null where not known."""
        position = self.batch.schema.get_field_index(DIGEST)
        return pa.nulls(len(self), pa.binary(16)) if position < 0 else self.batch.column(position)

    def with_digests(self, digests: pa.Array) -> ManifestTable:
        """The same rows, with digests of their messages."""
        if digests.null_count == len(digests):
            return self
        return ManifestTable(self.batch.append_column(DIGEST, digests), self.schema)

    @cached_property
    def chunk_ids(self) -> npt.NDArray[np.uint8]:
        """The chunks' ids, shape (n, 16)."""
        ids = self.fixed(_ID)
        found = np.frombuffer(ids.buffers()[1], np.uint8).reshape(-1, 16)
        return found[ids.offset : ids.offset + len(ids)]

    @cached_property
    def is_static(self) -> Mask:
        """The mask of chunks that are static."""
        return np.asarray(nulls_as_zero(self.fixed(_STATIC)), dtype=bool)

    @cached_property
    def entity_codes(self) -> tuple[npt.NDArray[np.int64], list[str]]:
        """For each row a number, and for each number its entity path, canonical."""
        encoded = self.fixed(_PATH).dictionary_encode()
        codes = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
        return codes, [parse_entity_path(p) for p in encoded.dictionary.to_pylist()]

    def timelines_present(self) -> dict[str, Mask]:
        """For each timeline, sorted by its bytes, which rows have it."""
        names = sorted(self.layout.timelines, key=str.encode)
        return {name: valid(self.batch.column(self.layout.timelines[name][0])) for name in names}

    def components_present(self) -> dict[ComponentDescriptor, Mask] | None:
        """For each component, which rows are said to have it; None where that is not told."""
        if self.layout.details is None and bool(np.any(~self.is_static)):
            return None
        found = {d: np.asarray(nulls_as_zero(self.batch.column(p)), dtype=bool) for d, p in self.layout.statics.items()}
        for detail in self.layout.details or ():
            counted = nulls_as_zero(self.batch.column(detail.num_rows)) > 0
            found[detail.descriptor] = found[detail.descriptor] | counted if detail.descriptor in found else counted
        return found

    def fixed(self, name: str) -> pa.Array:
        """One of the columns that every manifest has."""
        return self.batch.column(self.batch.schema.get_field_index(name))

    def take(self, rows: Rows) -> ManifestTable:
        """Some of the rows, in that order."""
        if len(rows) == len(self) and bool(np.all(rows == np.arange(len(rows)))):
            return self
        return ManifestTable(self.batch.take(pa.array(rows)), self.schema)

    def entries(self) -> list[ChunkEntry]:
        """An entry for each row, in order. One that the manifest does not say enough of has no components."""
        codes, paths = self.entity_codes
        builder = HeaderBuilder(self.batch, self.layout, self.union)
        ids = self.fixed(_ID).to_pylist()
        columns = (codes, self.is_static, self.num_rows, self.offsets, self.sizes, self.uncompressed_sizes)
        values = zip(*(c.tolist() for c in columns), self.digests.to_pylist(), strict=True)
        return [
            ChunkEntry(builder.header(i, paths[code], ids[i], is_static, num_rows), offset, size, expanded, digest)
            for i, (code, is_static, num_rows, offset, size, expanded, digest) in enumerate(values)
        ]

    def ordered(self) -> ManifestTable | None:
        """The rows in the order of the file; None where two name the same byte."""
        order = np.argsort(self.offsets, kind="stable").astype(np.int64)
        ends = (self.offsets + self.sizes)[order]
        if bool(np.any(self.offsets[order][1:] < ends[:-1])):
            return None
        return self.take(order)

    def runs(self, run_bytes: int) -> list[ManifestTable]:
        """The rows in runs that are about as much work as each other, of about ``run_bytes`` uncompressed at most.

        What is done for a chunk however small it is counts as 32 KiB.
        """
        work = np.cumsum(np.maximum(self.uncompressed_sizes, self.sizes) + np.uint64(_CHUNK_WORK))
        return self.divided(work, -(-int(work[-1]) // run_bytes)) if len(self) else []

    def divided(self, ends: Numbers, count: int) -> list[ManifestTable]:
        """The rows in at most ``count`` runs, of about equal shares of what ``ends`` sums up for each row."""
        total, count = int(ends[-1]) if len(self) else 0, min(count, len(self))
        cuts = np.searchsorted(ends, [total * i // count for i in range(1, count)]) + 1
        bounds = np.unique(np.clip([0, *cuts.tolist(), len(self)], 0, len(self))).tolist()
        return [self.slice(start, stop) for start, stop in pairwise(bounds)]

    def slice(self, start: int, stop: int) -> ManifestTable:
        """The rows from ``start`` to before ``stop``."""
        if start == 0 and stop == len(self):
            return self
        return ManifestTable(self.batch.slice(start, stop - start), self.schema)

    def _numbers(self, name: str) -> Numbers:
        return np.asarray(nulls_as_zero(self.fixed(name)), dtype=np.uint64)

    def __reduce__(self) -> tuple[Any, ...]:
        return ManifestTable.from_stream, (self.to_stream(), self.schema)

    def to_stream(self) -> bytes:
        """The rows as an Arrow IPC stream."""
        sink = pa.BufferOutputStream()
        batch = self.batch.select(self._told())
        with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_batch(batch)
        return bytes(sink.getvalue().to_pybytes())

    @classmethod
    def from_stream(cls, stream: bytes, schema: bytes) -> ManifestTable:
        """The rows that :meth:`to_stream` wrote, with their union schema."""
        return cls(pa.ipc.open_stream(pa.py_buffer(stream)).read_next_batch(), schema)

    def _told(self) -> list[int]:
        """The columns without those of components that no row has."""
        silent = {p for p in self.layout.statics.values() if not self.batch.column(p).true_count}
        for detail in self.layout.details or ():
            start = self.batch.column(detail.start)
            if start.null_count == len(start):
                silent |= {detail.start, detail.end, detail.num_rows}
        return [i for i in range(self.batch.num_columns) if i not in silent]
