"""The footer's manifest of one store, made from its chunk table: a union schema, and columns.

Timelines that conflict in one recording are found before it is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import (
    ComponentColumnDescriptor,
    ComponentDescriptor,
    IndexColumnDescriptor,
    TimelineKind,
    descriptor_metadata,
    to_arrow_schema,
)
from ..errors import WriteError
from ..limits import MAX_CHUNK_UNCOMPRESSED, MAX_FOOTER, MIB
from .chunk_table import ChunkTable, Integers, Mask, distinct
from .compression import Compression, compress
from .manifest_reading import END, FIXED, HAS_STATIC_DATA, NUM_ROWS, START, STATIC_INDEX, column_name
from .messages import ENCODER_VERSION_V0, RrdManifest, StoreEntry
from .payloads import DIGEST_SIZE

_ALL_TIMES: Final = (1 - 2**63, 2**63 - 1)
_END_OF_STREAM_SIZE: Final = 8
_MAX_DETAIL: Final = 512 * MIB


class TimelineRegister:
    """The timelines seen so far, by name."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._by_column: dict[str, str] = {}
        self.kinds: dict[str, TimelineKind] = {}

    def add(self, timelines: Iterable[tuple[str, TimelineKind]]) -> None:
        """Record timelines. Raises :class:`WriteError` for two that one manifest cannot distinguish."""
        for name, kind in timelines:
            if self.kinds.get(name) is not kind:
                self._add_other(name, kind)

    def _add_other(self, name: str, kind: TimelineKind) -> None:
        existing = self.kinds.get(name)
        if existing is not None:
            raise WriteError(
                f"the timeline {name!r} is a {existing.value} in one chunk and a {kind.value} in another; a "
                "recording cannot have both",
                path=self._path,
                hint="Rename one of them, or write them into two recordings.",
            )
        column = column_name(name, None, START)
        other = self._by_column.setdefault(column, name)
        if other != name:
            raise WriteError(
                f"the timelines {other!r} and {name!r} share the column {column!r} in the file's footer",
                path=self._path,
                hint="Rename one of them: space, comma, point, hyphen, backslash and underscore are equivalent.",
            )
        self.kinds[name] = kind


def build_manifest(store: StoreEntry, chunks: ChunkTable, *, path: str = "the recording") -> bytes:
    """The serialised ``RrdManifest`` of ``chunks``, in their order.

    If the ranges of all components on all timelines would take more than half a gibibyte, they are omitted; readers
    then read the chunks. Raises :class:`WriteError` for timelines that one manifest cannot distinguish.
    """
    register = TimelineRegister(path)
    register.add(chunks.timelines.keys)
    union = _union(chunks)
    columns = _Columns(chunks, register.kinds, {c.descriptor for c in union})
    batch = columns.record_batch(detailed=columns.detail_bytes <= _MAX_DETAIL)
    _check_names(batch.schema, path)
    schema = _schema_stream(_union_schema(union, register.kinds))
    data = _batch_stream(batch, path)
    manifest = RrdManifest(store_id=store.to_message())
    manifest.sorbet_schema.arrow_schema = schema
    manifest.sorbet_schema_sha256 = hashlib.sha256(schema[:-_END_OF_STREAM_SIZE]).digest()
    manifest.data.encoder_version = ENCODER_VERSION_V0
    manifest.data.payload = compress(data)
    manifest.data.compression = Compression.LZ4
    manifest.data.uncompressed_size = data.size
    manifest.chunk_digests = digests_to_bytes(chunks.digests)
    if manifest.ByteSize() > MAX_FOOTER:
        raise _too_large(manifest.ByteSize(), path)
    return bytes(manifest.SerializeToString())


# --- the union schema


def _union(chunks: ChunkTable) -> list[ComponentColumnDescriptor]:
    """Each component of each entity. If chunks differ in type or descriptor, the first chunk's is used."""
    cells, (entities, paths), (which, sets) = chunks.components, chunks.entity_codes, chunks.type_sets
    rows = np.repeat(np.arange(len(chunks)), np.diff(cells.ends))
    names: dict[str, int] = {}
    name_of = np.array([names.setdefault(d.component, len(names)) for d in cells.descriptors], dtype=np.int64)
    keys, key = distinct(entities[rows] * len(names) + name_of[cells.codes], len(paths) * len(names))
    first = np.zeros(len(keys), dtype=np.int64)
    first[key[::-1]] = np.arange(len(key))[::-1]
    is_static, is_empty = np.zeros(len(keys), dtype=bool), np.ones(len(keys), dtype=bool)
    is_static[key[chunks.is_static[rows]]] = True
    sure = np.asarray(cells.emptiness.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)
    is_empty[key[~sure]] = False
    columns = []
    for cell, static, empty in zip(first.tolist(), is_static.tolist(), is_empty.tolist(), strict=True):
        row, d = rows[cell], cells.descriptors[cells.codes[cell]]
        path, datatype = paths[entities[row]], sets[which[row]][cell - cells.ends[row]]
        columns.append(
            ComponentColumnDescriptor(path, d.component, d.archetype, d.component_type, static, datatype, empty)
        )
    return columns


def _union_schema(components: Iterable[ComponentColumnDescriptor], timelines: dict[str, TimelineKind]) -> pa.Schema:
    """The schema of ``components``, in the order of names after row id and timelines."""
    indexes = [IndexColumnDescriptor(name, timelines[name]) for name in sorted(timelines, key=str.encode)]
    return to_arrow_schema(indexes, sorted(components, key=lambda c: (c.name, c.entity_path)))


def _check_names(schema: pa.Schema, path: str) -> None:
    """Raise :class:`WriteError` if columns of different timelines have one name: a reader would confuse them."""
    timelines: dict[str, bytes | None] = {}
    for field in schema:
        timeline = (field.metadata or {}).get(b"rerun:index")
        other = timelines.setdefault(field.name, timeline)
        if other != timeline:
            names = sorted((t or b"").decode() for t in (other, timeline))
            raise WriteError(
                f"the timelines {names[0]!r} and {names[1]!r} share the column {field.name!r} in the file's footer",
                path=path,
                hint="Rename one of them.",
            )


def _schema_stream(schema: pa.Schema) -> bytes:
    """A union schema as stored in a footer: an Arrow IPC stream without batches."""
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, schema).close()
    return bytes(sink.getvalue().to_pybytes())


def _batch_stream(batch: pa.RecordBatch, path: str) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue()
    if stream.size > MAX_CHUNK_UNCOMPRESSED:
        raise _too_large(stream.size, path)
    return stream


def _too_large(size: int, path: str) -> WriteError:
    return WriteError(
        f"the footer of this recording would take {size:,} bytes",
        path=path,
        hint="Write fewer, larger chunks: call collect(optimize=...) first.",
    )


# --- the columns


class _Cells(NamedTuple):
    """The cells of one group of columns that are not null, with their rows."""

    rows: Integers
    start: Integers
    end: Integers
    num_rows: Integers


_Column = tuple[pa.Field, pa.Array]


class _Columns:
    """The columns of a manifest; each row is a chunk.

    Only components whose column names follow from the ``descriptors`` of the union schema have columns: Rerun refuses a
    file with others. A chunk with another component is found by its timelines. A chunk without rows has the range of
    all times, as in Rerun, so that its columns are known.
    """

    def __init__(
        self, chunks: ChunkTable, kinds: dict[str, TimelineKind], descriptors: set[ComponentDescriptor]
    ) -> None:
        self._chunks = chunks
        self._kinds = kinds
        self._names = {column_name(None, d, HAS_STATIC_DATA) for d in descriptors}
        self._is_bare: Mask = chunks.num_rows == 0
        self._cells = dict(self._component_cells())

    @property
    def detail_bytes(self) -> int:
        """Bytes that the columns for each timeline and component would take, uncompressed."""
        return len(self._cells) * len(self._chunks) * 24

    def record_batch(self, *, detailed: bool) -> pa.RecordBatch:
        """The manifest; without ``detailed``, it omits the columns for single components on single timelines."""
        columns = [*self._fixed(), *self._statics(), *self._timelines(), *(self._details() if detailed else ())]
        return pa.RecordBatch.from_arrays([a for _, a in columns], schema=pa.schema([f for f, _ in columns]))

    def _fixed(self) -> Iterator[_Column]:
        chunks = self._chunks
        named = (chunks.batch.column(name) for name in ("entity_path", "chunk_id", "is_static"))
        numbers = (chunks.num_rows, chunks.offsets, chunks.sizes, chunks.uncompressed_sizes)
        for name, array in zip(FIXED, (*named, *map(pa.array, numbers)), strict=True):
            yield pa.field(name, array.type, nullable=False), array

    def _statics(self) -> Iterator[_Column]:
        cells = self._chunks.components
        rows = np.repeat(np.arange(len(self._chunks)), np.diff(cells.ends))
        is_static = self._chunks.is_static[rows]
        rows, codes = rows[is_static], cells.codes[is_static]
        for code, descriptor in sorted(enumerate(cells.descriptors), key=lambda item: item[1].sort_key):
            if self._is_known(descriptor):
                present = np.zeros(len(self._chunks), dtype=bool)
                present[rows[codes == code]] = True
                name = column_name(None, descriptor, HAS_STATIC_DATA)
                metadata = _metadata(STATIC_INDEX, descriptor)
                yield pa.field(name, pa.bool_(), nullable=False, metadata=metadata), pa.array(present)

    def _timelines(self) -> Iterator[_Column]:
        lines = self._chunks.timelines
        rows = np.repeat(np.arange(len(self._chunks)), np.diff(lines.ends))
        start, end, is_known = self._with_all_times(rows, lines.start, lines.end, lines.is_known)
        for code, (name, _) in sorted(enumerate(lines.keys), key=lambda item: item[1][0].encode()):
            at = np.flatnonzero((lines.codes == code) & is_known)
            yield from self._range_columns(_Cells(rows[at], start[at], end[at], at), name, None)

    def _details(self) -> Iterator[_Column]:
        for name, descriptor in sorted(self._cells, key=lambda key: (key[0].encode(), key[1].sort_key)):
            if self._is_known(descriptor):
                cells = self._cells[name, descriptor]
                yield from self._range_columns(cells, name, descriptor)
                counts = np.zeros(len(self._chunks), dtype=np.uint64)
                counts[cells.rows] = cells.num_rows
                yield _range_field(name, descriptor, NUM_ROWS, pa.uint64()), pa.array(counts)

    def _component_cells(self) -> Iterator[tuple[tuple[str, ComponentDescriptor], _Cells]]:
        """The ranges of single components, by timeline and descriptor."""
        lines, cells = self._chunks.timelines, self._chunks.components
        rows = np.repeat(np.arange(len(self._chunks)), np.diff(cells.ends))
        counts = np.diff(cells.range_ends)
        rows_of = np.repeat(rows, counts)
        position = np.arange(len(rows_of)) - np.repeat(cells.range_ends[:-1], counts)
        timeline = lines.codes[lines.ends[rows_of] + position]
        names = len(lines.keys)
        keys, key = distinct(np.repeat(cells.codes, counts) * names + timeline, len(cells.descriptors) * names)
        start, end, is_known = self._with_all_times(rows_of, cells.start, cells.end, cells.is_known)
        order = np.argsort(key.astype(np.uint16) if len(keys) < 1 << 16 else key, kind="stable")
        order = order[is_known[order]]
        bounds = np.searchsorted(key[order], np.arange(len(keys) + 1))
        for i, code in enumerate(keys.tolist()):
            at = order[bounds[i] : bounds[i + 1]]
            ranges = _Cells(rows_of[at], start[at], end[at], cells.num_rows[at])
            yield (lines.keys[code % names][0], cells.descriptors[code // names]), ranges

    def _with_all_times(
        self, rows: Integers, start: Integers, end: Integers, is_known: Mask
    ) -> tuple[Integers, Integers, Mask]:
        """Ranges, including those of chunks without rows."""
        if not bool(np.any(self._is_bare)):
            return start, end, is_known
        bare = self._is_bare[rows]
        return np.where(bare, _ALL_TIMES[0], start), np.where(bare, _ALL_TIMES[1], end), is_known | bare

    def _is_known(self, descriptor: ComponentDescriptor) -> bool:
        return column_name(None, descriptor, HAS_STATIC_DATA) in self._names

    def _range_columns(self, cells: _Cells, timeline: str, descriptor: ComponentDescriptor | None) -> Iterator[_Column]:
        datatype = self._kinds[timeline].arrow_type
        for suffix, values in ((START, cells.start), (END, cells.end)):
            array = _sparse(cells.rows, values, len(self._chunks), datatype)
            yield _range_field(timeline, descriptor, suffix, datatype), array


def _range_field(timeline: str, descriptor: ComponentDescriptor | None, suffix: str, datatype: pa.DataType) -> pa.Field:
    return pa.field(column_name(timeline, descriptor, suffix), datatype, metadata=_metadata(timeline, descriptor))


@lru_cache(maxsize=16_384)
def _metadata(index: str, descriptor: ComponentDescriptor | None) -> pa.KeyValueMetadata:
    """The metadata of a column on ``index``, cached: making them took a quarter of a small footer's time."""
    metadata = descriptor_metadata(descriptor) if descriptor is not None else {}
    return pa.KeyValueMetadata({**metadata, "rerun:index": index})


_BITS: Final[Any] = {"bitorder": "little"}


def _sparse(rows: npt.NDArray[np.int64], values: Any, size: int, datatype: pa.DataType) -> pa.Array:
    """An array of ``size`` with ``values`` at ``rows`` and null elsewhere."""
    data = np.zeros(size, dtype=np.int64)
    data[rows] = values
    present = np.zeros(size, dtype=bool)
    present[rows] = True
    validity = pa.py_buffer(np.packbits(present, **_BITS))
    return pa.Array.from_buffers(datatype, size, [validity, pa.py_buffer(data)], size - len(rows))


def digests_to_bytes(digests: pa.Array) -> bytes:
    """Encode digests of chunks, with nulls, for a footer; empty if no chunk has one."""
    if digests.null_count == len(digests):
        return b""
    filled = digests.fill_null(bytes(DIGEST_SIZE))
    start = DIGEST_SIZE * filled.offset
    return bytes(memoryview(filled.buffers()[1])[start : start + DIGEST_SIZE * len(filled)])
