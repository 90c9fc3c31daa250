"""Which columns a manifest must, may and must not have: derived from the recording's union schema."""

from __future__ import annotations

from collections import defaultdict
from typing import Final, NamedTuple

import pyarrow as pa

from ..chunk.descriptor import ComponentDescriptor
from ..chunk.entity_path import parse_entity_path
from ..chunk.header import TimelineKind
from .column_names import ALLOWED, END, FIXED, HAS_STATIC_DATA, NUM_ROWS, START, column_name

_INDEX_KINDS: Final = ("index", "time")
_CONTROL_KINDS: Final = ("control", "row_id")


class KnownComponent(NamedTuple):
    """What the union schema says of one component of one entity."""

    datatype: pa.DataType
    is_empty: bool | None


class UnionSchema(NamedTuple):
    """A recording's union schema, taken apart. Raises nothing; made by :func:`read_union_schema`."""

    timelines: dict[str, TimelineKind]
    descriptors: list[ComponentDescriptor]
    components: dict[tuple[str, ComponentDescriptor], KnownComponent | None]
    """None where the schema has the component more than once, with different types."""


def read_union_schema(schema: pa.Schema) -> UnionSchema:
    """Take a ``sorbet_schema`` apart. Raises ``ValueError`` for what is none."""
    timelines: dict[str, TimelineKind] = {}
    components: dict[tuple[str, ComponentDescriptor], KnownComponent | None] = {}
    for field in schema:
        metadata = {k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in (field.metadata or {}).items()}
        kind = metadata.get("rerun:kind", "data")
        if kind in _INDEX_KINDS:
            name = metadata.get("rerun:index_name", field.name)
            timeline = TimelineKind.of(field.type)
            if timeline is None:
                raise ValueError(f"the timeline {name!r} has the type {field.type}")
            timelines[name] = timeline
        elif kind not in _CONTROL_KINDS:
            key = _component_key(field.name, metadata)
            is_empty = True if metadata.get("rerun:is_semantically_empty", "false") not in ("false", "no") else None
            components[key] = None if key in components else KnownComponent(field.type, is_empty)
    descriptors = sorted({d for _, d in components}, key=lambda d: d.sort_key)
    return UnionSchema(timelines, descriptors, components)


def _component_key(name: str, metadata: dict[str, str]) -> tuple[str, ComponentDescriptor]:
    """Entity path and descriptor of a component's field; from its name where the metadata does not say."""
    component = metadata.get("rerun:component")
    if component is None:
        entity, _, component = name.partition(":")
    else:
        entity = name.removesuffix(f":{component}")
    entity = metadata.get("rerun:entity_path") or _entity_of(entity)
    descriptor = ComponentDescriptor(
        component, metadata.get("rerun:archetype") or None, metadata.get("rerun:component_type") or None
    )
    return parse_entity_path(entity), descriptor


def _entity_of(prefix: str) -> str:
    if prefix == "property":
        return "/__properties"
    return f"/__properties/{prefix[9:]}" if prefix.startswith("property:") else prefix


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

    Names are not unique: columns of one name belong, in order, to the components in their own order.
    """
    columns: defaultdict[str, list[int]] = defaultdict(list)
    for i, name in enumerate(schema.names):
        columns[name].append(i)
    fixed = {name: _only(columns, name) for name in FIXED}
    statics = {
        d: i for d in union.descriptors if (i := _take(columns, column_name(None, d, HAS_STATIC_DATA))) is not None
    }
    timelines = {}
    for name in union.timelines:
        timelines[name] = (_only(columns, column_name(name, None, START)), _only(columns, column_name(name, None, END)))
    details = _details(columns, union)
    _check_rest(columns)
    return Layout(fixed, statics, timelines, details)


def _details(columns: defaultdict[str, list[int]], union: UnionSchema) -> list[DetailColumns] | None:
    found: list[DetailColumns] = []
    is_whole = True
    for timeline in sorted(union.timelines, key=str.encode):
        for descriptor in union.descriptors:
            names = [column_name(timeline, descriptor, s) for s in (START, END, NUM_ROWS)]
            start, end, num_rows = (_take(columns, n) for n in names)
            if (start is None) != (end is None):
                raise LayoutError(f"{names[0]!r} and {names[1]!r} must stand together")
            if start is not None and end is not None and num_rows is not None:
                found.append(DetailColumns(timeline, descriptor, start, end, num_rows))
            elif start is not None or num_rows is not None:
                is_whole = False
    return found if is_whole and found else None


def _take(columns: defaultdict[str, list[int]], name: str) -> int | None:
    """The next column of ``name`` that nothing has claimed yet."""
    found = columns.get(name)
    return found.pop(0) if found else None


def _only(columns: defaultdict[str, list[int]], name: str) -> int:
    found = columns.pop(name, [])
    if len(found) != 1:
        raise LayoutError(f"it has the column {name!r} {len(found)} times instead of once")
    return found[0]


def _check_rest(columns: defaultdict[str, list[int]]) -> None:
    for name, unclaimed in columns.items():
        if unclaimed and name not in ALLOWED:
            raise LayoutError(f"it has a column {name!r} that its schema does not explain")
