"""Chunks as Arrow record batches with Rerun's schema metadata ("sorbet", version 0.1.3)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from . import tuid
from .arrow_types import alike
from .data import ChunkData, Component, Timeline, migrate_to_list
from .descriptor import ComponentDescriptor
from .entity_path import parse_entity_path
from .header import TimelineKind
from .migrations import migrate, text_metadata

VERSION = "0.1.3"
ROW_ID_NAME = "rerun.controls.RowId"
_ROW_ID_TYPE = pa.binary(16)


def to_record_batch(data: ChunkData) -> pa.RecordBatch:
    """The batch that Rerun would write for ``data``."""
    columns = [data.row_ids, *(t.times for t in data.timelines), *(c.values for c in data.components)]
    return pa.RecordBatch.from_arrays(columns, schema=schema_of(data))


def schema_of(data: ChunkData) -> pa.Schema:
    """The schema of that batch."""
    fields = [_row_id_field(data.ids_ascend)]
    fields += [_index_field(t.name, t.kind, t.is_sorted) for t in data.timelines]
    fields += [component_field(c.descriptor, c.values.type) for c in data.components]
    metadata = {
        "rerun:id": tuid.to_text(data.chunk_id, "chunk_"),
        "rerun:entity_path": data.entity_path,
        "sorbet:version": VERSION,
    }
    return pa.schema(fields, metadata=metadata)


@lru_cache(maxsize=2)
def _row_id_field(ascending: bool) -> pa.Field:
    metadata = {
        "rerun:kind": "control",
        "ARROW:extension:name": "rerun.datatypes.TUID",
        "ARROW:extension:metadata": '{"namespace":"row"}',
    }
    if ascending:
        metadata["rerun:is_sorted"] = "true"
    return pa.field(ROW_ID_NAME, _ROW_ID_TYPE, nullable=False, metadata=metadata)


@lru_cache(maxsize=4096)
def _index_field(name: str, kind: TimelineKind, ascending: bool) -> pa.Field:
    metadata = {"rerun:kind": "index", "rerun:index_name": name}
    if ascending:
        metadata["rerun:is_sorted"] = "true"
    return pa.field(name, kind.arrow_type, nullable=True, metadata=metadata)


def component_field(descriptor: ComponentDescriptor, datatype: pa.DataType) -> pa.Field:
    """The field of a component column, with the descriptor in its metadata."""
    kept = _component_field(descriptor, datatype)
    return kept if alike((kept.type,), (datatype,)) else kept.with_type(datatype)


@lru_cache(maxsize=16_384)
def _component_field(descriptor: ComponentDescriptor, datatype: pa.DataType) -> pa.Field:
    """That of this type, or of one that ``==`` takes for the same."""
    metadata = {"rerun:kind": "data", "rerun:component": descriptor.component}
    if descriptor.archetype:
        metadata["rerun:archetype"] = descriptor.archetype
    if descriptor.component_type:
        metadata["rerun:component_type"] = descriptor.component_type
    return pa.field(descriptor.component, datatype, nullable=True, metadata=metadata)


def from_record_batch(batch: pa.RecordBatch) -> ChunkData:
    """The chunk that ``batch`` holds; older versions are migrated. Raises ``ValueError`` with what is wrong.

    ``rerun:is_sorted`` is not trusted: sortedness is computed when it is needed.
    """
    return taken_apart(batch)[0]


def taken_apart(batch: pa.RecordBatch) -> tuple[ChunkData, BatchLayout | None]:
    """Like :func:`from_record_batch`, and how to do the same with other batches of this schema.

    No layout where more has to be done than to take columns as they are.
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
    """The roles of a batch's columns: the timelines and components of a chunk, in its order; row ids come first."""

    entity_path: str
    timelines: tuple[tuple[int, str, TimelineKind], ...]
    components: tuple[tuple[int, ComponentDescriptor], ...]

    def chunk(self, batch: pa.RecordBatch, chunk_id: bytes) -> ChunkData | None:
        """Return what :func:`from_record_batch` makes of a batch of this schema; None where it would refuse it."""
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
    descriptor = ComponentDescriptor(
        metadata.get("rerun:component") or field.name,
        metadata.get("rerun:archetype") or None,
        metadata.get("rerun:component_type") or None,
    )
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
    """A scalar Arrow type as Rerun's messages spell it, for example ``Timestamp(µs)`` or ``Int32``."""
    text = str(datatype)
    if pa.types.is_temporal(datatype) and "[" in text:
        base, _, unit = text.rstrip("]").partition("[")
        return f"{base.capitalize()}({unit.split(',')[0].replace('us', 'µs')})"
    return _RUST_NAMES.get(text) or text[:1].upper() + (
        text[1:].replace("int", "Int") if text.startswith("u") else text[1:]
    )
