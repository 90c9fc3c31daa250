"""The union schema of a recording: one field for each timeline and for each component of each entity."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from ..chunk.descriptor import ComponentDescriptor
from ..chunk.header import ChunkHeader, TimelineKind
from .column_names import ROW_ID, sorbet_name

CLEAR_ARCHETYPE: Final = "rerun.archetypes.Clear"
_ROW_ID_METADATA: Final = {
    "rerun:kind": "control",
    "ARROW:extension:name": "rerun.datatypes.TUID",
    "ARROW:extension:metadata": '{"namespace":"row"}',
}


@dataclass(slots=True)
class _Component:
    """One component of one entity; the first chunk says its descriptor and type."""

    descriptor: ComponentDescriptor
    datatype: pa.DataType
    is_static: bool
    is_empty: bool


class UnionFields(NamedTuple):
    """The union schema, and the descriptors that it names."""

    schema: pa.Schema
    descriptors: frozenset[ComponentDescriptor]


def union_fields(headers: Iterable[ChunkHeader], timelines: dict[str, TimelineKind]) -> UnionFields:
    """The schema over all ``headers``, fields in the order of their names after row id and timelines.

    Readers want a component of an entity once. Where chunks disagree about its type or descriptor, the first one
    has its way in the schema; the chunks themselves keep theirs.
    """
    components: dict[tuple[str, str], _Component] = {}
    for header in headers:
        for component in header.components:
            key = (header.entity_path, component.descriptor.component)
            known = components.get(key)
            if known is None:
                components[key] = _Component(
                    component.descriptor, component.datatype, header.is_static, component.is_empty is True
                )
            else:
                known.is_static |= header.is_static
                known.is_empty &= component.is_empty is True
    fields = [pa.field(ROW_ID, pa.binary(16), nullable=False, metadata=_ROW_ID_METADATA)]
    fields += [_index_field(name, timelines[name]) for name in sorted(timelines, key=str.encode)]
    fields += sorted((_component_field(path, c) for (path, _), c in components.items()), key=lambda f: f.name)
    return UnionFields(pa.schema(fields), frozenset(c.descriptor for c in components.values()))


def _index_field(name: str, kind: TimelineKind) -> pa.Field:
    return pa.field(name, kind.arrow_type, metadata={"rerun:kind": "index", "rerun:index_name": name})


def _component_field(entity_path: str, component: _Component) -> pa.Field:
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
