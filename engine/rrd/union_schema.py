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


class ComponentKey(NamedTuple):
    """A component of an entity, with the type it is stored as; two types are two keys."""

    entity_path: str
    descriptor: ComponentDescriptor
    datatype: pa.DataType


@dataclass(slots=True)
class _Flags:
    is_static: bool
    is_empty: bool


def union_schema(headers: Iterable[ChunkHeader], timelines: dict[str, TimelineKind]) -> pa.Schema:
    """The schema over all ``headers``, fields in the order of their names after row id and timelines."""
    components: dict[ComponentKey, _Flags] = {}
    for header in headers:
        for component in header.components:
            key = ComponentKey(header.entity_path, component.descriptor, component.datatype)
            flags = components.get(key)
            if flags is None:
                components[key] = _Flags(header.is_static, component.is_empty is True)
            else:
                flags.is_static |= header.is_static
                flags.is_empty &= component.is_empty is True
    fields = [pa.field(ROW_ID, pa.binary(16), nullable=False, metadata=_ROW_ID_METADATA)]
    fields += [_index_field(name, timelines[name]) for name in sorted(timelines, key=str.encode)]
    fields += sorted((_component_field(k, f) for k, f in components.items()), key=lambda f: f.name)
    return pa.schema(fields)


def _index_field(name: str, kind: TimelineKind) -> pa.Field:
    return pa.field(name, kind.arrow_type, metadata={"rerun:kind": "index", "rerun:index_name": name})


def _component_field(key: ComponentKey, flags: _Flags) -> pa.Field:
    descriptor = key.descriptor
    metadata = {"rerun:entity_path": key.entity_path, **descriptor_metadata(descriptor), "rerun:kind": "data"}
    if flags.is_static:
        metadata["rerun:is_static"] = "true"
    if flags.is_empty:
        metadata["rerun:is_semantically_empty"] = "true"
    if descriptor.archetype == CLEAR_ARCHETYPE:
        metadata["rerun:is_tombstone"] = "true"
    return pa.field(sorbet_name(key.entity_path, descriptor.component), key.datatype, metadata=metadata)


def descriptor_metadata(descriptor: ComponentDescriptor) -> dict[str, str]:
    """The Arrow field metadata that names a component."""
    metadata = {"rerun:component": descriptor.component}
    if descriptor.archetype:
        metadata["rerun:archetype"] = descriptor.archetype
    if descriptor.component_type:
        metadata["rerun:component_type"] = descriptor.component_type
    return metadata
