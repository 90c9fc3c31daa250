"""The names of manifest columns: they flatten a timeline, a component and a suffix into one word."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ..chunk import ComponentDescriptor

_PROPERTIES: Final = "/__properties"
_MANGLED: Final = str.maketrans(dict.fromkeys(", -.\\", "_"))

START: Final = "start"
END: Final = "end"
NUM_ROWS: Final = "num_rows"
HAS_STATIC_DATA: Final = "has_static_data"
STATIC_INDEX: Final = "rerun:static"
ROW_ID: Final = "rerun.controls.RowId"

FIXED: Final = (
    "chunk_entity_path",
    "chunk_id",
    "chunk_is_static",
    "chunk_num_rows",
    "chunk_byte_offset",
    "chunk_byte_size",
    "chunk_byte_size_uncompressed",
)
"""The columns that every manifest has."""

DIGEST: Final = "chunkmill:digest"
"""The column with the digests of messages; never in a file, where they stand beside the columns."""

ALLOWED: Final = frozenset(
    {
        DIGEST,
        "chunk_key",
        "chunk_partition_id",
        "chunk_partition_layer",
        "rerun_partition_id",
        "rerun_partition_layer",
        "chunk_segment_id",
        "chunk_segment_layer",
        "rerun_segment_id",
        "rerun_segment_layer",
    }
)
"""Columns that may stand in a manifest and are passed over."""


@lru_cache(maxsize=65_536)
def column_name(timeline: str | None, descriptor: ComponentDescriptor | None, suffix: str) -> str:
    """The manifest column of ``suffix`` for a timeline, a component, or both.

    Not injective: ``a-b`` and ``a_b`` give the same name.

    >>> positions = ComponentDescriptor("Points3D:positions", archetype="rerun.archetypes.Points3D")
    >>> column_name("my-rel time", positions, "start")
    'my_rel_time:Points3D:positions:start'
    """
    parts = [timeline, *_component_parts(descriptor), suffix]
    return ":".join(p for p in parts if p).translate(_MANGLED).lstrip("_")


def _component_parts(descriptor: ComponentDescriptor | None) -> tuple[str, ...]:
    if descriptor is None:
        return ()
    short = descriptor.archetype_short_name
    if short is None:
        return (descriptor.component,)
    return short, descriptor.component.removeprefix(f"{short}:")


def sorbet_name(entity_path: str, component: str) -> str:
    """The field of a component in a recording's union schema.

    >>> sorbet_name("/arm", "Scalars:scalars"), sorbet_name("/__properties/episode", "index")
    ('/arm:Scalars:scalars', 'property:episode:index')
    """
    if entity_path == _PROPERTIES:
        return f"property:{component}"
    if entity_path.startswith(f"{_PROPERTIES}/"):
        return f"property:{entity_path[len(_PROPERTIES) + 1 :]}:{component}"
    return f"{entity_path}:{component}"
