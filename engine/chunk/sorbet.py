"""Chunks as Arrow record batches with Rerun's schema metadata ("sorbet", version 0.1.3).

Batches of older versions are brought up to this one before they are read as chunks. The steps and their renames follow
the format's own history; a batch of this version or a newer one is returned as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from . import tuid
from .data import ChunkData, Component, ComponentDescriptor, Timeline, TimelineKind, migrate_to_list, parse_entity_path

SORBET_VERSION = "0.1.3"
ROW_ID_NAME = "rerun.controls.RowId"
_ROW_ID_TYPE = pa.binary(16)
_DESCRIPTOR_KEYS = ("rerun:archetype", "rerun:component_type")


def data_to_batch(data: ChunkData) -> pa.RecordBatch:
    """The record batch that Rerun would write for ``data``."""
    columns = [data.row_ids, *(t.times for t in data.timelines), *(c.values for c in data.components)]
    return pa.RecordBatch.from_arrays(columns, schema=batch_schema(data))


def batch_schema(data: ChunkData) -> pa.Schema:
    """The schema of the record batch that Rerun would write for ``data``."""
    fields = [row_id_field(data.ids_ascend)]
    fields += [index_field(t.name, t.kind, t.is_sorted) for t in data.timelines]
    fields += [component_field(c.descriptor, c.values.type) for c in data.components]
    metadata = {
        "rerun:id": tuid.tuid_text(data.chunk_id, "chunk_"),
        "rerun:entity_path": data.entity_path,
        "sorbet:version": SORBET_VERSION,
    }
    return pa.schema(fields, metadata=metadata)


@lru_cache(maxsize=2)
def row_id_field(ascending: bool = False) -> pa.Field:
    """The field of row ids."""
    metadata = {
        "rerun:kind": "control",
        "ARROW:extension:name": "rerun.datatypes.TUID",
        "ARROW:extension:metadata": '{"namespace":"row"}',
    }
    if ascending:
        metadata["rerun:is_sorted"] = "true"
    return pa.field(ROW_ID_NAME, _ROW_ID_TYPE, nullable=False, metadata=metadata)


@lru_cache(maxsize=4096)
def index_field(name: str, kind: TimelineKind, ascending: bool = False) -> pa.Field:
    """The field of a timeline."""
    metadata = {"rerun:kind": "index", "rerun:index_name": name}
    if ascending:
        metadata["rerun:is_sorted"] = "true"
    return pa.field(name, kind.arrow_type, nullable=True, metadata=metadata)


def component_field(descriptor: ComponentDescriptor, datatype: pa.DataType) -> pa.Field:
    """The field of a component column, with the descriptor in its metadata."""
    return pa.field(descriptor.component, datatype, nullable=True, metadata=component_metadata(descriptor))


def descriptor_metadata(descriptor: ComponentDescriptor) -> dict[str, str]:
    """The metadata of a field that names a component."""
    names = zip(_DESCRIPTOR_KEYS, (descriptor.archetype, descriptor.component_type), strict=True)
    return {"rerun:component": descriptor.component, **{key: name for key, name in names if name}}


def descriptor_in(metadata: dict[str, str], component: str) -> ComponentDescriptor:
    """The descriptor of ``component`` in the metadata of a field; the inverse of :func:`descriptor_metadata`."""
    return ComponentDescriptor(component, *map(metadata.get, _DESCRIPTOR_KEYS))


@lru_cache(maxsize=16_384)
def component_metadata(descriptor: ComponentDescriptor) -> pa.KeyValueMetadata:
    """Arrow metadata, set on a field in 0.6 us instead of 3.9. Fields are not cached: the hash of a type takes 6."""
    return pa.KeyValueMetadata({"rerun:kind": "data", **descriptor_metadata(descriptor)})


def data_from_batch(batch: pa.RecordBatch) -> ChunkData:
    """Return the chunk in ``batch``; older versions are migrated. Raises ``ValueError`` if the batch is not a chunk.

    ``rerun:is_sorted`` is not trusted: sortedness is computed when it is needed.
    """
    return data_with_layout(batch)[0]


def data_with_layout(batch: pa.RecordBatch) -> tuple[ChunkData, BatchLayout | None]:
    """Return the chunk in ``batch``, and the layout for other batches of this schema.

    The layout is None if columns have to be converted.
    """
    given, batch = batch, migrate(batch)
    metadata = text_metadata(batch.schema.metadata)
    kinds = [_column_kind(f) for f in batch.schema]
    _check_order(batch, kinds)
    if "rerun:id" not in metadata:
        raise ValueError("Missing chunk ID")
    if "rerun:entity_path" not in metadata:
        raise ValueError("Missing entity path")
    timelines = {i: _timeline(batch, i) for i, k in enumerate(kinds) if k == "index"}
    components = {i: _component(batch, i) for i, k in enumerate(kinds) if k == "data"}
    _check_unique(timelines.values(), components.values())
    lines = sorted(timelines.items(), key=lambda item: item[1].name.encode())
    parts = sorted(components.items(), key=lambda item: item[1].descriptor.sort_key)
    data = ChunkData(
        _chunk_id(metadata["rerun:id"]),
        parse_entity_path(metadata["rerun:entity_path"]),
        _row_ids(batch.column(0), batch.schema.field(0).name),
        tuple(t for _, t in lines),
        tuple(c for _, c in parts),
    )
    columns = (data.row_ids, *(t.times for t in timelines.values()), *(c.values for c in components.values()))
    as_they_are = batch is given and [c.type for c in columns] == batch.schema.types
    layout = BatchLayout(
        data.entity_path,
        tuple((i, t.name, t.kind) for i, t in lines),
        tuple((i, c.descriptor) for i, c in parts),
    )
    return data, layout if as_they_are else None


class BatchLayout(NamedTuple):
    """The positions of timelines and components in the columns of a batch, in the order of the chunk."""

    entity_path: str
    timelines: tuple[tuple[int, str, TimelineKind], ...]
    components: tuple[tuple[int, ComponentDescriptor], ...]

    def chunk(self, batch: pa.RecordBatch, chunk_id: bytes) -> ChunkData | None:
        """Return the chunk in a batch of this schema, or None if :func:`data_from_batch` would raise an error."""
        columns = batch.columns
        if columns[0].null_count or any(columns[i].null_count for i, _, _ in self.timelines):
            return None
        return ChunkData(
            chunk_id,
            self.entity_path,
            columns[0],
            tuple([Timeline(name, kind, columns[i]) for i, name, kind in self.timelines]),
            tuple([Component(descriptor, columns[i]) for i, descriptor in self.components]),
        )


def _chunk_id(text: str) -> bytes:
    try:
        return tuid.from_text(text, "chunk_")
    except ValueError as error:
        raise ValueError(
            f'Failed to deserialize chunk ID: Failed to deserialize chunk id "{text}": Invalid ChunkId: {error}'
        ) from None


_KINDS = {
    "control": "row_id",
    "row_id": "row_id",
    "index": "index",
    "time": "index",
    "data": "data",
    "component": "data",
}


def _column_kind(field: pa.Field) -> str:
    kind = text_metadata(field.metadata).get("rerun:kind", "data")
    if kind not in _KINDS:
        raise ValueError(
            f'Unknown `rerun:kind` "{kind}" in column "{field.name}". Expect one of `row_id`, `index`, or `component`.'
        )
    return _KINDS[kind]


def _check_order(batch: pa.RecordBatch, kinds: list[str]) -> None:
    rows = kinds.count("row_id")
    if rows == 0:
        if "index" in kinds and "data" in kinds and kinds.index("data") < kinds.index("index"):
            raise ValueError("Invalid column order: Index columns must come before any data columns")
        raise ValueError("Missing RowId column")
    if rows > 1:
        raise ValueError(f"Multiple RowId columns found: {rows}")
    if kinds[0] != "row_id":
        names = ", ".join(f'"{n}"' for n in batch.schema.names)
        raise ValueError(
            f"Invalid column order: RowId column must be the first column; but the columns were: [{names}]"
        )
    if sorted(kinds[1:], reverse=True) != kinds[1:]:
        raise ValueError("Invalid column order: Index columns must come before any data columns")


def _check_unique(timelines: Iterable[Timeline], components: Iterable[Component]) -> None:
    names: set[Any] = set()
    for t in timelines:
        if t.name in names:
            raise ValueError(f"Detected malformed Chunk: time column '{t.name}' was specified more than once")
        names.add(t.name)
    seen: set[str] = set()
    for c in components:
        if c.descriptor.component in seen:
            raise ValueError(
                f"Detected malformed Chunk: component column '\"{c.descriptor}\"' was specified more than once"
            )
        seen.add(c.descriptor.component)


def _row_ids(column: pa.Array, name: str) -> pa.FixedSizeBinaryArray:
    if column.type != _ROW_ID_TYPE:
        if isinstance(column, pa.ExtensionArray) and column.storage.type == _ROW_ID_TYPE:
            column = column.storage
        else:
            raise ValueError(f'Expected column "{name}" to be FixedSizeBinary(16), got {rust_type_name(column.type)}')
    if column.null_count:
        raise ValueError(f'Detected malformed Chunk: column "{name}" has {column.null_count} null row ids')
    return column


def _timeline(batch: pa.RecordBatch, i: int) -> Timeline:
    field, column = batch.schema.field(i), batch.column(i)
    name = text_metadata(field.metadata).get("rerun:index_name", field.name)
    kind = TimelineKind.of(column.type)
    if kind is None:
        raise ValueError(f"Unsupported time type: {rust_type_name(column.type)}")
    if column.null_count:
        raise ValueError(
            f"Detected malformed Chunk: Bad time column '{name}': Time columns had nulls, but should be dense"
        )
    return Timeline(name, kind, column if column.type == kind.arrow_type else column.cast(kind.arrow_type))


def _component(batch: pa.RecordBatch, i: int) -> Component:
    field = batch.schema.field(i)
    metadata = text_metadata(field.metadata)
    descriptor = descriptor_in(metadata, metadata.get("rerun:component") or field.name)
    return Component(descriptor, migrate_to_list(batch.column(i)))


_RUST_NAMES = {
    "string": "Utf8",
    "large_string": "LargeUtf8",
    "bool": "Boolean",
    "halffloat": "Float16",
    "float": "Float32",
    "double": "Float64",
}


def rust_type_name(datatype: pa.DataType) -> str:
    """The name of a scalar Arrow type in Rerun's messages, such as ``Timestamp(µs)`` or ``Int32``."""
    text = str(datatype)
    if pa.types.is_temporal(datatype) and "[" in text:
        base, _, unit = text.rstrip("]").partition("[")
        return f"{base.capitalize()}({unit.split(',')[0].replace('us', 'µs')})"
    return _RUST_NAMES.get(text) or text[:1].upper() + (
        text[1:].replace("int", "Int") if text.startswith("u") else text[1:]
    )


Metadata = dict[str, str]
_Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    nullable: bool
    metadata: Metadata
    values: pa.Array


@dataclass(frozen=True, slots=True)
class _Batch:
    metadata: Metadata
    columns: tuple[_Column, ...]

    def map_metadata(self, change: Callable[[Metadata], Metadata]) -> _Batch:
        return replace(self, columns=tuple(replace(c, metadata=change(c.metadata)) for c in self.columns))


def migrate(batch: pa.RecordBatch) -> pa.RecordBatch:
    """``batch`` as version 0.1.3 would have written it; unparsable and newer versions are left alone."""
    metadata = text_metadata(batch.schema.metadata)
    version = _version_of(metadata)
    steps = [step for since, step in _STEPS if version is not None and version < since]
    if not steps:
        return batch
    table = _Batch(
        metadata,
        tuple(
            _Column(f.name, f.nullable, text_metadata(f.metadata), v)
            for f, v in zip(batch.schema, batch.columns, strict=True)
        ),
    )
    for step in steps:
        table = step(table)
    fields = [pa.field(c.name, c.values.type, c.nullable, c.metadata or None) for c in table.columns]
    return pa.RecordBatch.from_arrays(
        [c.values for c in table.columns], schema=pa.schema(fields, metadata=table.metadata)
    )


def text_metadata(metadata: dict[bytes, bytes] | None) -> Metadata:
    """Arrow metadata as text."""
    return {k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in (metadata or {}).items()}


def _version_of(metadata: Metadata) -> _Version | None:
    """Return the version of a batch, or None if no step applies."""
    if "sorbet:version" in metadata:
        numbers = metadata["sorbet:version"].split(".")
        if len(numbers) != 3 or not all(n.isdecimal() for n in numbers):
            return None
        version = (int(numbers[0]), int(numbers[1]), int(numbers[2]))
        return version if version >= (0, 0, 1) else None
    if any(k.startswith("rerun.") for k in metadata):
        return 0, 0, 1
    return (0, 0, 2) if "rerun:version" in metadata else (0, 0, 1)


# --- 0.0.1 -> 0.0.2

_KIND_ORDER = {"control": 0, "row_id": 0, "index": 1, "time": 1}
_PLURAL_ARCHETYPES = {"Scalar": "Scalars", "SeriesLine": "SeriesLines", "SeriesPoint": "SeriesPoints"}
_PLURAL_FIELDS = {
    "Scalars": {"scalar": "scalars"},
    "SeriesLines": {"color": "colors", "width": "widths", "name": "names"},
    "SeriesPoints": {"color": "colors", "marker": "markers", "name": "names", "marker_size": "marker_sizes"},
}


def _to_0_0_2(batch: _Batch) -> _Batch:
    columns = sorted(batch.columns, key=lambda c: _KIND_ORDER.get(_kind(c.metadata), 2))
    columns = [
        replace(c, values=_tuid_bytes(c.values)) if _kind(c.metadata) in ("control", "row_id") else c for c in columns
    ]
    return replace(batch, columns=tuple(columns)).map_metadata(_pluralise)


def _kind(metadata: Metadata) -> str:
    return metadata.get("rerun.kind") or metadata.get("rerun:kind") or "data"


def _tuid_bytes(values: pa.Array) -> pa.Array:
    """Row ids given as struct{time_ns, inc} of unsigned integers, as 16 big-endian bytes."""
    if not pa.types.is_struct(values.type) or values.type.num_fields != 2:
        return values
    pairs = np.empty((len(values), 2), dtype=">u8")
    for i, name in enumerate(("time_ns", "inc")):
        if values.type.get_field_index(name) < 0:
            return values
        pairs[:, i] = values.field(name).cast(pa.uint64()).to_numpy(zero_copy_only=False)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(values), [None, pa.py_buffer(pairs)])


def _pluralise(metadata: Metadata) -> Metadata:
    out = dict(metadata)
    for separator in (".", ":"):
        key, field_key = f"rerun{separator}archetype", f"rerun{separator}archetype_field"
        prefix, _, short = out.get(key, "").rpartition(".")
        if short in _PLURAL_ARCHETYPES:
            short = _PLURAL_ARCHETYPES[short]
            out[key] = f"{prefix}.{short}" if prefix else short
        field = out.get(field_key)
        if field is not None:
            out[field_key] = _PLURAL_FIELDS.get(short, {}).get(field, field)
    return out


# --- 0.0.2 -> 0.1.0


def _to_0_1_0(batch: _Batch) -> _Batch:
    metadata = _colon_keys(batch.metadata)
    metadata.pop("rerun:version", None)
    path = metadata.get("rerun:entity_path")
    if path is not None and path.strip("/") == "__properties/recording":
        metadata["rerun:entity_path"] = "/__properties"
    columns = tuple(_name_component(replace(c, metadata=_colon_keys(c.metadata))) for c in batch.columns)
    return _Batch(metadata, columns)


def _colon_keys(metadata: Metadata) -> Metadata:
    return {("rerun:" + k[6:] if k.startswith("rerun.") else k): v for k, v in metadata.items()}


def _name_component(column: _Column) -> _Column:
    """Name the component of a column by the component type, archetype and field of its old metadata."""
    metadata = dict(column.metadata)
    if _kind(metadata) not in ("data", "component"):
        return column
    archetype, field = metadata.get("rerun:archetype"), metadata.pop("rerun:archetype_field", None)
    old = metadata.pop("rerun:component", None)
    if archetype is not None:
        archetype = archetype.replace("RecordingProperties", "RecordingInfo")
        metadata["rerun:archetype"] = archetype
    if archetype is not None and field is not None:
        metadata["rerun:component"] = f"{archetype.rpartition('.')[2]}:{field}"
    elif field is not None:
        metadata["rerun:component"] = field
    elif old is not None:
        metadata["rerun:component"] = old
        old = None
    if old is not None:
        metadata["rerun:component_type"] = old
    return replace(column, name=metadata.get("rerun:component", column.name), metadata=metadata)


# --- 0.1.0 -> 0.1.3


def _to_0_1_1(batch: _Batch) -> _Batch:
    return replace(batch, columns=tuple(c for c in batch.columns if not _is_indicator(c)))


def _is_indicator(column: _Column) -> bool:
    names = (column.metadata.get("rerun:component", column.name), column.metadata.get("rerun:component_type", ""))
    return any(n.endswith(("Indicator", ":indicator")) for n in names)


_POSES = {
    f"rerun.components.Pose{n}": f"rerun.components.{n}"
    for n in ("RotationAxisAngle", "RotationQuat", "Scale3D", "TransformMat3x3", "Translation3D")
}


def _to_0_1_2(batch: _Batch) -> _Batch:
    return _rename(batch.map_metadata(lambda m: _replace_value(m, "rerun:component_type", _POSES)))


_RENAMED = {
    "Transform3D:axis_length": ("TransformAxes3D:axis_length", "rerun.archetypes.TransformAxes3D"),
    "CoordinateFrame:frame_id": ("CoordinateFrame:frame", None),
}


def _rename(batch: _Batch) -> _Batch:
    columns = []
    for c in batch.columns:
        component, archetype = _RENAMED.get(c.metadata.get("rerun:component", ""), (None, None))
        if component is not None:
            metadata = {**c.metadata, "rerun:component": component}
            if archetype is not None and "rerun:archetype" in metadata:
                metadata["rerun:archetype"] = archetype
            c = replace(c, name=component, metadata=metadata)
        columns.append(c)
    return replace(batch, columns=tuple(columns))


_VISIBLE = {"rerun.components.SeriesVisible": "rerun.components.Visible"}


def _to_0_1_3(batch: _Batch) -> _Batch:
    return batch.map_metadata(lambda m: _replace_value(m, "rerun:component_type", _VISIBLE))


def _replace_value(metadata: Metadata, key: str, table: dict[str, str]) -> Metadata:
    value = metadata.get(key)
    return {**metadata, key: table[value]} if value in table else metadata


_STEPS: tuple[tuple[_Version, Callable[[_Batch], _Batch]], ...] = (
    ((0, 0, 2), _to_0_0_2),
    ((0, 1, 0), _to_0_1_0),
    ((0, 1, 1), _to_0_1_1),
    ((0, 1, 2), _to_0_1_2),
    ((0, 1, 3), _to_0_1_3),
)
