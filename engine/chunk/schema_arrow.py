"""Schemas as Arrow fields with Rerun's metadata, and back."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from .column_descriptors import PROPERTIES, ComponentColumnDescriptor, IndexColumnDescriptor
from .entity_path import parse_entity_path
from .header import TimelineKind
from .migrations import text_metadata
from .sorbet import ROW_ID_NAME, component_field

_ROW_ID = pa.field(
    ROW_ID_NAME,
    pa.binary(16),
    nullable=False,
    metadata={
        "rerun:kind": "control",
        "ARROW:extension:name": "rerun.datatypes.TUID",
        "ARROW:extension:metadata": '{"namespace":"row"}',
    },
)
_FLAGS = {
    "rerun:is_static": "is_static",
    "rerun:is_semantically_empty": "is_semantically_empty",
    "rerun:is_tombstone": "is_tombstone",
}


def to_arrow_schema(
    indexes: Sequence[IndexColumnDescriptor], components: Sequence[ComponentColumnDescriptor]
) -> pa.Schema:
    """One field a column, after one for the row ids; no metadata of its own."""
    fields = [_ROW_ID]
    for index in indexes:
        metadata = {"rerun:kind": "index", "rerun:index_name": index.name}
        fields.append(pa.field(index.name, index.kind.arrow_type, metadata=metadata))
    return pa.schema([*fields, *map(_component_field, components)])


def _component_field(column: ComponentColumnDescriptor) -> pa.Field:
    plain = component_field(column.descriptor, column.datatype)
    flags = {key: "true" for key, name in _FLAGS.items() if getattr(column, name)}
    metadata = {**text_metadata(plain.metadata), "rerun:entity_path": column.entity_path, **flags}
    return plain.with_name(column.name).with_metadata(metadata)


def columns_of_arrow(schema: pa.Schema) -> tuple[list[IndexColumnDescriptor], list[ComponentColumnDescriptor]]:
    """The columns that the fields describe; raises ``ValueError`` for a timeline of an impossible type."""
    indexes, components = [], []
    for field in schema:
        metadata = text_metadata(field.metadata)
        kind = metadata.get("rerun:kind", "data")
        if kind in ("index", "time"):
            indexes.append(_index(metadata.get("rerun:index_name", field.name), field.type))
        elif kind in ("data", "component"):
            components.append(_component(field, metadata))
    return indexes, components


def _index(name: str, datatype: pa.DataType) -> IndexColumnDescriptor:
    kind = TimelineKind.of(datatype)
    if kind is None:
        raise ValueError(f"the timeline '{name}' has the type {datatype}, which is none of a timeline")
    return IndexColumnDescriptor(name, kind)


def _component(field: pa.Field, metadata: dict[str, str]) -> ComponentColumnDescriptor:
    entity_path, component = metadata.get("rerun:entity_path"), metadata.get("rerun:component")
    if component is None:
        head, _, component = field.name.partition(":")
    else:
        head = field.name.removesuffix(f":{component}")
    if entity_path is None:
        entity_path = PROPERTIES + head[len("property") :].replace(":", "/", 1) if _is_property(head) else head
    return ComponentColumnDescriptor(
        parse_entity_path(entity_path),
        component,
        metadata.get("rerun:archetype") or None,
        metadata.get("rerun:component_type") or None,
        _is_set(metadata, "rerun:is_static"),
        field.type,
        _is_set(metadata, "rerun:is_semantically_empty"),
    )


def _is_property(head: str) -> bool:
    return head == "property" or head.startswith("property:")


def _is_set(metadata: dict[str, str], key: str) -> bool:
    return metadata.get(key, "false") not in ("false", "no")
