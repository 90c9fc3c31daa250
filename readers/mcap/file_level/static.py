"""Chunks of one row without a time: what is true of a whole file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa

from ....engine.chunk import Chunk, ComponentDescriptor

PROPERTIES: Final = "/__mcap_properties"
METADATA_ENTITY: Final = "/__mcap_metadata"
ATTACHMENTS_ENTITY: Final = "/__mcap_attachments"

BLOB: Final = pa.list_(pa.field("item", pa.uint8(), nullable=False))
PAIRS: Final = pa.list_(
    pa.field(
        "item",
        pa.struct([pa.field("first", pa.string(), nullable=False), pa.field("second", pa.string(), nullable=False)]),
        nullable=False,
    )
)
"""Rerun's ``KeyValuePairs``."""


def described(archetype: str, field: str, component_type: str) -> ComponentDescriptor:
    """The descriptor of a field of one of Rerun's archetypes.

    >>> described("McapChannel", "id", "ChannelId")
    ComponentDescriptor(component='McapChannel:id', archetype='rerun.archetypes.McapChannel', \
component_type='rerun.components.ChannelId')
    """
    return ComponentDescriptor(
        f"{archetype}:{field}",
        archetype=f"rerun.archetypes.{archetype}",
        component_type=f"rerun.components.{component_type}",
    )


def static_chunk(entity_path: str, columns: Iterable[tuple[ComponentDescriptor, pa.Array]]) -> Chunk:
    """A chunk of one row; each column is given as the instances of that row."""
    return Chunk.build(entity_path, {}, [(descriptor, one_row(instances)) for descriptor, instances in columns])


def one_row(instances: pa.Array) -> pa.ListArray:
    """All of ``instances`` as one list."""
    return pa.ListArray.from_arrays(pa.array([0, len(instances)], pa.int32()), instances)


def pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    """One value of ``KeyValuePairs``, in the order of ``values``."""
    return [{"first": key, "second": value} for key, value in values.items()]
