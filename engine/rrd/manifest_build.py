"""The manifest of one store for the footer of a file: its union schema, and its columns as Arrow arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import ComponentDescriptor, TimelineKind
from ..errors import WriteError
from ..limits import MAX_CHUNK_UNCOMPRESSED, MAX_FOOTER, MIB
from .chunk_columns import Cells, ChunkColumns, UnionComponent, columns_of_entries
from .chunk_table import ChunkEntry
from .column_names import END, FIXED, HAS_STATIC_DATA, NUM_ROWS, ROW_ID, START, STATIC_INDEX, column_name, sorbet_name
from .compression import Compression, compress
from .messages import ENCODER_VERSION_V0, RrdManifest, StoreEntry
from .payloads import digests_to_bytes

CLEAR_ARCHETYPE: Final = "rerun.archetypes.Clear"
_ROW_ID_METADATA: Final = {
    "rerun:kind": "control",
    "ARROW:extension:name": "rerun.datatypes.TUID",
    "ARROW:extension:metadata": '{"namespace":"row"}',
}


class _UnionFields(NamedTuple):
    """The union schema, and the descriptors that it names."""

    schema: pa.Schema
    descriptors: frozenset[ComponentDescriptor]


def union_fields(
    components: Mapping[tuple[str, str], UnionComponent], timelines: Mapping[str, TimelineKind]
) -> _UnionFields:
    """The schema of ``components``, by entity path and component; in the order of names after row id and timelines."""
    fields = [pa.field(ROW_ID, pa.binary(16), nullable=False, metadata=_ROW_ID_METADATA)]
    fields += [_index_field(name, timelines[name]) for name in sorted(timelines, key=str.encode)]
    named = ((_component_field(path, components[path, name]), path) for path, name in components)
    fields += [field for field, _ in sorted(named, key=lambda pair: (pair[0].name, pair[1]))]
    return _UnionFields(pa.schema(fields), frozenset(c.descriptor for c in components.values()))


def _index_field(name: str, kind: TimelineKind) -> pa.Field:
    return pa.field(name, kind.arrow_type, metadata={"rerun:kind": "index", "rerun:index_name": name})


def _component_field(entity_path: str, component: UnionComponent) -> pa.Field:
    descriptor = component.descriptor
    metadata = {"rerun:entity_path": entity_path, **_descriptor_metadata(descriptor), "rerun:kind": "data"}
    if component.is_static:
        metadata["rerun:is_static"] = "true"
    if component.is_empty:
        metadata["rerun:is_semantically_empty"] = "true"
    if descriptor.archetype == CLEAR_ARCHETYPE:
        metadata["rerun:is_tombstone"] = "true"
    return pa.field(sorbet_name(entity_path, descriptor.component), component.datatype, metadata=metadata)


def _descriptor_metadata(descriptor: ComponentDescriptor) -> dict[str, str]:
    """The Arrow field metadata that names a component."""
    metadata = {"rerun:component": descriptor.component}
    if descriptor.archetype:
        metadata["rerun:archetype"] = descriptor.archetype
    if descriptor.component_type:
        metadata["rerun:component_type"] = descriptor.component_type
    return metadata


_END_OF_STREAM_SIZE: Final = 8
_MAX_DETAIL: Final = 512 * MIB


def build_manifest(store: StoreEntry, entries: Sequence[ChunkEntry], *, path: str = "the recording") -> bytes:
    """The serialised ``RrdManifest`` that lists ``entries``, in their order; see :func:`manifest_of`."""
    return manifest_of(store, columns_of_entries(entries, path=path), path=path)


def manifest_of(store: StoreEntry, chunks: ChunkColumns, *, path: str) -> bytes:
    """The serialised ``RrdManifest`` that lists ``chunks``.

    Where the ranges of every component on every timeline would take more than half a gibibyte they are left out;
    readers then look into the chunks. Raises :class:`WriteError` for timelines that one manifest can't tell apart.
    """
    union = union_fields(chunks.union, chunks.kinds)
    columns = ManifestColumns(chunks, union.descriptors)
    batch = columns.record_batch(detailed=columns.detail_bytes <= _MAX_DETAIL)
    _check_names(batch.schema, path)
    schema = schema_stream(union.schema)
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


def _check_names(schema: pa.Schema, path: str) -> None:
    """Raise :class:`WriteError` where columns of different timelines have one name: a reader would mix them up."""
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


def schema_stream(schema: pa.Schema) -> bytes:
    """A union schema as a footer holds it: an Arrow IPC stream of nothing else."""
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
        hint="Write fewer, larger chunks: collect(optimize=...) first.",
    )


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
            metadata = {**_descriptor_metadata(descriptor), "rerun:index": STATIC_INDEX}
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
            columns.append((_range_field(name, descriptor, NUM_ROWS, pa.uint64()), pa.array(counts)))
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
                _range_field(timeline, descriptor, suffix, datatype),
                pa.nulls(size, datatype) if cells is None else _sparse(cells.rows, values, size, datatype),
            )
            for suffix, values in ((START, cells and cells.start), (END, cells and cells.end))
        ]


def _range_field(timeline: str, descriptor: ComponentDescriptor | None, suffix: str, datatype: pa.DataType) -> pa.Field:
    metadata = _descriptor_metadata(descriptor) if descriptor is not None else {}
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
