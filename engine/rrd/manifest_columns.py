"""The columns of a manifest: how they are called, and what each means by the recording's union schema.

Names flatten a timeline, a component and a suffix into one word, so several may have one.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import Final, NamedTuple

import pyarrow as pa

from ..chunk import ComponentDescriptor, TimelineKind, columns_of_arrow, descriptor_in, text_metadata

_MANGLED: Final = str.maketrans(dict.fromkeys(", -.\\", "_"))

START: Final = "start"
END: Final = "end"
NUM_ROWS: Final = "num_rows"
HAS_STATIC_DATA: Final = "has_static_data"
STATIC_INDEX: Final = "rerun:static"

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

_ALLOWED: Final = frozenset(
    {
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


# --- what they mean


class KnownComponent(NamedTuple):
    """The columns of the union schema on one component of one entity."""

    descriptor: ComponentDescriptor
    datatype: pa.DataType
    is_empty: bool | None


class UnionSchema(NamedTuple):
    """A recording's union schema, taken apart; made by :func:`read_union_schema`."""

    timelines: dict[str, TimelineKind]
    descriptors: list[ComponentDescriptor]
    components: dict[tuple[str, str], KnownComponent | None]
    """By entity path and component; None where the schema has one more than once."""


def read_union_schema(schema: pa.Schema) -> UnionSchema:
    """Take a ``sorbet_schema`` apart. Raises ``ValueError`` for what is none."""
    indexes, columns = columns_of_arrow(schema)
    components: dict[tuple[str, str], KnownComponent | None] = {}
    for column in columns:
        known = KnownComponent(column.descriptor, column.datatype, column.is_semantically_empty or None)
        key = (column.entity_path, column.component)
        components[key] = None if key in components else known
    descriptors = sorted({column.descriptor for column in columns}, key=lambda d: d.sort_key)
    return UnionSchema({index.name: index.kind for index in indexes}, descriptors, components)


class DetailColumns(NamedTuple):
    """The positions of the three columns for one component on one timeline."""

    timeline: str
    descriptor: ComponentDescriptor
    start: int
    end: int
    num_rows: int


class Layout(NamedTuple):
    """Positions of a manifest's columns, by what they mean."""

    fixed: dict[str, int]
    statics: dict[ComponentDescriptor, int]
    timelines: dict[str, tuple[int, int]]
    details: list[DetailColumns] | None
    """None where the manifest does not say enough of single components on single timelines."""


class LayoutError(ValueError):
    """The columns are not those of a manifest."""


def lay_out(schema: pa.Schema, union: UnionSchema) -> Layout:
    """Find every column of a manifest. Raises :class:`LayoutError`.

    Names are not unique: what columns of one name stand for is in their metadata, and where that was dropped they
    belong, in order, to the components of the union schema that have the name.
    """
    columns = _Columns(schema)
    fixed = {name: columns.only(name) for name in FIXED}
    statics = columns.by_descriptor(None, HAS_STATIC_DATA, union.descriptors)
    timelines = {
        name: (columns.only(column_name(name, None, START)), columns.only(column_name(name, None, END)))
        for name in union.timelines
    }
    details = _details(columns, union)
    columns.check_rest()
    return Layout(fixed, statics, timelines, details)


def _details(columns: _Columns, union: UnionSchema) -> list[DetailColumns] | None:
    found: list[DetailColumns] = []
    is_whole = True
    for timeline in sorted(union.timelines, key=str.encode):
        start, end, num_rows = (
            columns.by_descriptor(timeline, suffix, union.descriptors) for suffix in (START, END, NUM_ROWS)
        )
        if start.keys() != end.keys():
            odd = next(iter(start.keys() ^ end.keys()))
            raise LayoutError(f"start and end of {odd.component!r} on {timeline!r} must stand together")
        is_whole &= start.keys() == num_rows.keys()
        found += [DetailColumns(timeline, d, start[d], end[d], num_rows[d]) for d in start if d in num_rows]
    return found if is_whole and found else None


class _Columns:
    """The columns of a manifest by name, each claimed once."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._unclaimed: defaultdict[str, list[int]] = defaultdict(list)
        for i, name in enumerate(schema.names):
            self._unclaimed[name].append(i)

    def only(self, name: str) -> int:
        """The one column of ``name``."""
        found = self._unclaimed.pop(name, [])
        if len(found) != 1:
            raise LayoutError(f"it has the column {name!r} {len(found)} times instead of once")
        return found[0]

    def by_descriptor(
        self, timeline: str | None, suffix: str, known: list[ComponentDescriptor]
    ) -> dict[ComponentDescriptor, int]:
        """The columns of ``suffix`` on ``timeline``, by the component they speak of."""
        by_name: defaultdict[str, list[ComponentDescriptor]] = defaultdict(list)
        for descriptor in known:
            by_name[column_name(timeline, descriptor, suffix)].append(descriptor)
        found: dict[ComponentDescriptor, int] = {}
        for name, candidates in by_name.items():
            for i in self._unclaimed.pop(name, []):
                found[self._claimant(i, name, timeline, suffix, [c for c in candidates if c not in found])] = i
        return found

    def _claimant(
        self, i: int, name: str, timeline: str | None, suffix: str, candidates: list[ComponentDescriptor]
    ) -> ComponentDescriptor:
        metadata = text_metadata(self._schema.field(i).metadata)
        if "rerun:component" in metadata:
            descriptor = descriptor_in(metadata, metadata["rerun:component"])
            if column_name(timeline, descriptor, suffix) == name:
                return descriptor
        if not candidates:
            raise LayoutError(f"it has the column {name!r} more often than its schema explains")
        return candidates[0]

    def check_rest(self) -> None:
        """Raise :class:`LayoutError` if an unknown column is left."""
        for name, unclaimed in self._unclaimed.items():
            if unclaimed and name not in _ALLOWED:
                raise LayoutError(f"it has a column {name!r} that its schema does not explain")
