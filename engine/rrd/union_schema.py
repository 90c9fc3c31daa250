"""The union schema of a recording: one field for each timeline and for each component of each entity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from ..chunk.descriptor import ComponentDescriptor
from ..chunk.header import TimelineKind
from .chunk_columns import UnionComponent
from .column_names import ROW_ID, sorbet_name

CLEAR_ARCHETYPE: Final = "rerun.archetypes.Clear"
_ROW_ID_METADATA: Final = {
    "rerun:kind": "control",
    "ARROW:extension:name": "rerun.datatypes.TUID",
    "ARROW:extension:metadata": '{"namespace":"row"}',
}


class UnionFields(NamedTuple):
    """The union schema, and the descriptors that it names."""

    schema: pa.Schema
    descriptors: frozenset[ComponentDescriptor]


def union_fields(
    components: Mapping[tuple[str, str], UnionComponent], timelines: Mapping[str, TimelineKind]
) -> UnionFields:
    """The schema of ``components``, by entity path and component; in the order of names after row id and timelines."""
    fields = [pa.field(ROW_ID, pa.binary(16), nullable=False, metadata=_ROW_ID_METADATA)]
    fields += [_index_field(name, timelines[name]) for name in sorted(timelines, key=str.encode)]
    named = ((_component_field(path, components[path, name]), path) for path, name in components)
    fields += [field for field, _ in sorted(named, key=lambda pair: (pair[0].name, pair[1]))]
    return UnionFields(pa.schema(fields), frozenset(c.descriptor for c in components.values()))


def _index_field(name: str, kind: TimelineKind) -> pa.Field:
    return pa.field(name, kind.arrow_type, metadata={"rerun:kind": "index", "rerun:index_name": name})


def _component_field(entity_path: str, component: UnionComponent) -> pa.Field:
    descriptor = component.descriptor
    metadata = {"rerun:entity_path": entity_path, **descriptor_metadata(descriptor), "rerun:kind": "data"}
    if component.is_static:
        metadata["rerun:is_static"] = "true"
    if component.is_empty:
        metadata["rerun:is_semantically_empty"] = "true"
    if descriptor.archetype == CLEAR_ARCHETYPE:
        metadata["rerun:is_tombstone"] = "true"
    return pa.field(sorbet_name(entity_path, descriptor.component), component.datatype, metadata=metadata)


def descriptor_metadata(descriptor: ComponentDescriptor) -> dict[str, str]:
    """The Arrow field metadata that names a component."""
    metadata = {"rerun:component": descriptor.component}
    if descriptor.archetype:
        metadata["rerun:archetype"] = descriptor.archetype
    if descriptor.component_type:
        metadata["rerun:component_type"] = descriptor.component_type
    return metadata
