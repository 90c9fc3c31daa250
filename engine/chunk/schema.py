"""The columns of a recording, a store or a dataset; conversion to Arrow fields with Rerun's metadata, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from ..errors import NotFoundError
from .columns import (
    PROPERTIES,
    ComponentColumnDescriptor,
    ComponentColumnSelector,
    IndexColumnDescriptor,
    SelectorTypeError,
)
from .data import ChunkHeader, ComponentDescriptor, TimelineKind, parse_entity_path
from .sorbet import component_metadata, index_field, row_id_field, text_metadata


class Schema:
    """The columns of a recording: timelines by name, then components by entity, archetype and component.

    Iteration gives the index columns first. Two schemas are equal if their columns and types are equal.

    >>> arm = ComponentColumnDescriptor("/arm", "volume")
    >>> Schema([IndexColumnDescriptor("frame")], [arm]).column_names()
    ['frame', '/arm:volume']
    """

    __slots__ = ("_components", "_indexes")
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, indexes: Iterable[IndexColumnDescriptor], components: Iterable[ComponentColumnDescriptor]
    ) -> None:
        self._indexes = sorted(indexes, key=lambda c: c.name.encode())
        self._components = sorted(components, key=lambda c: c.sort_key)

    @classmethod
    def from_headers(cls, headers: Iterable[ChunkHeader]) -> Schema:
        """The union of the columns of chunks, from their headers only.

        If chunks disagree on the type of a timeline or component, the first chunk wins. Headers from an RRD's footer
        lack components without any value. To include those, use :meth:`from_arrow` with the footer's schema.
        """
        timelines: dict[str, TimelineKind] = {}
        components: dict[tuple[str, ComponentDescriptor], ComponentColumnDescriptor] = {}
        for header in headers:
            for timeline in header.timelines:
                timelines.setdefault(timeline.name, timeline.kind)
            for component in header.components:
                key = (header.entity_path, component.descriptor)
                existing = components.get(key)
                is_empty = component.is_empty is True
                if existing is None:
                    components[key] = _column(*key, header.is_static, component.datatype, is_empty)
                elif (header.is_static and not existing.is_static) or (existing.is_semantically_empty and not is_empty):
                    components[key] = replace(
                        existing,
                        is_static=existing.is_static or header.is_static,
                        is_semantically_empty=existing.is_semantically_empty and is_empty,
                    )
        return cls((IndexColumnDescriptor(n, k) for n, k in timelines.items()), components.values())

    @classmethod
    def from_arrow(cls, schema: pa.Schema) -> Schema:
        """Make a schema from its Arrow form, as given by :meth:`to_arrow` and the footer of an RRD.

        Raises ``ValueError`` if the type of a timeline is invalid.
        """
        return cls(*columns_of_arrow(schema))

    def to_arrow(self) -> pa.Schema:
        """The schema as Arrow fields: row ids, timelines, components, each with Rerun's metadata."""
        return to_arrow_schema(self._indexes, self._components)

    def index_columns(self) -> list[IndexColumnDescriptor]:
        """The timelines."""
        return list(self._indexes)

    def component_columns(self) -> list[ComponentColumnDescriptor]:
        """The components of all entities."""
        return list(self._components)

    def column_names(self) -> list[str]:
        """The names of all columns, index columns first."""
        return [c.name for c in self]

    def archetypes(self, *, include_properties: bool = False) -> list[str]:
        """The full names of all archetypes, sorted."""
        columns = self.columns_for(include_properties=include_properties)
        return sorted({c.archetype for c in columns if c.archetype})

    def component_types(self, *, include_properties: bool = False) -> list[str]:
        """The full names of all component types, sorted."""
        columns = self.columns_for(include_properties=include_properties)
        return sorted({c.component_type for c in columns if c.component_type})

    def entity_paths(self, *, include_properties: bool = False) -> list[str]:
        """All entity paths, sorted as text."""
        return sorted({c.entity_path for c in self.columns_for(include_properties=include_properties)})

    def columns_for(
        self,
        *,
        entity_path: str | None = None,
        archetype: str | type | None = None,
        component_type: str | None = None,
        include_properties: bool = False,
    ) -> list[ComponentColumnDescriptor]:
        """The component columns that match all given conditions.

        ``archetype`` is a full name (``rerun.archetypes.Points3D``), its last part (``Points3D``), or one of Rerun's
        archetype classes. Columns of recording properties are left out unless ``include_properties``.
        """
        path = None if entity_path is None else parse_entity_path(entity_path)
        wanted = None if archetype is None else _archetype_name(archetype)
        return [
            c
            for c in self._components
            if (include_properties or not c.is_property)
            and (path is None or c.entity_path == path)
            and (wanted is None or _is_archetype(c.archetype, wanted))
            and (component_type is None or c.component_type == component_type)
        ]

    def column_names_for(
        self,
        *,
        entity_path: str | None = None,
        archetype: str | type | None = None,
        component_type: str | None = None,
        include_properties: bool = False,
    ) -> list[str]:
        """The names of the columns of :meth:`columns_for`."""
        columns = self.columns_for(
            entity_path=entity_path,
            archetype=archetype,
            component_type=component_type,
            include_properties=include_properties,
        )
        return [c.name for c in columns]

    def column_for(self, entity_path: str, component: str) -> ComponentColumnDescriptor | None:
        """The column of a component (``Points3D:positions``) on an entity, or None."""
        path = parse_entity_path(entity_path)
        return next((c for c in self._components if c.entity_path == path and c.component == component), None)

    def column_for_selector(
        self, selector: str | ComponentColumnSelector | ComponentColumnDescriptor
    ) -> ComponentColumnDescriptor:
        """The column that a selector or a text ``<entity path>:<component>`` selects.

        A descriptor is returned unchanged, even if there is no such column.

        Raises
        ------
        NotFoundError
            There is no such column. It is a ``LookupError``.
        ValueError
            The text is not a selector, or the argument has another type (in this case the error is also a
            ``TypeError``).
        """
        if isinstance(selector, ComponentColumnDescriptor):
            return selector
        if isinstance(selector, str):
            selector = ComponentColumnSelector.parse(selector)
        elif not isinstance(selector, ComponentColumnSelector):
            raise SelectorTypeError(
                "argument 'selector': expected str, ComponentColumnSelector or ComponentColumnDescriptor, "
                f"got {type(selector).__name__}"
            )
        column = self.column_for(selector.entity_path, selector.component)
        if column is None:
            raise NotFoundError(f"Could not find column for selector {selector}")
        return column

    def __iter__(self) -> Iterator[IndexColumnDescriptor | ComponentColumnDescriptor]:
        yield from self._indexes
        yield from self._components

    def __arrow_c_schema__(self) -> Any:
        return self.to_arrow().__arrow_c_schema__()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        return self._indexes == other._indexes and self._components == other._components

    def __repr__(self) -> str:
        return "\n".join(map(repr, self))

    def _repr_html_(self) -> str:
        from .panels import schema_panel

        return schema_panel(self._indexes, self._components)


def columns_of_headers(headers: Iterable[ChunkHeader]) -> Schema:
    """The columns of chunks with times; a component has one column for each of its types."""
    indexes: dict[str, IndexColumnDescriptor] = {}
    components: dict[tuple[str, ComponentDescriptor, pa.DataType], ComponentColumnDescriptor] = {}
    for header in headers:
        if header.is_static:
            continue
        for timeline in header.timelines:
            indexes.setdefault(timeline.name, IndexColumnDescriptor(timeline.name, timeline.kind))
        for part in header.components:
            key = header.entity_path, part.descriptor, part.datatype
            if key not in components:
                components[key] = _column(header.entity_path, part.descriptor, False, part.datatype, False)
    return Schema(indexes.values(), components.values())


def _column(
    entity_path: str, descriptor: ComponentDescriptor, is_static: bool, datatype: pa.DataType, is_empty: bool
) -> ComponentColumnDescriptor:
    return ComponentColumnDescriptor(
        entity_path,
        descriptor.component,
        descriptor.archetype,
        descriptor.component_type,
        is_static,
        datatype,
        is_empty,
    )


def _archetype_name(archetype: Any) -> str:
    if isinstance(archetype, str):
        return archetype
    name = getattr(archetype, "archetype", None)
    if not callable(name):
        raise TypeError(f"argument 'archetype': expected a name or an archetype class, got {archetype!r}")
    return str(name())


def _is_archetype(archetype: str | None, wanted: str) -> bool:
    if archetype is None:
        return False
    return archetype == wanted or ("." not in wanted and archetype.rpartition(".")[2] == wanted)


_FLAGS = {
    "rerun:is_static": "is_static",
    "rerun:is_semantically_empty": "is_semantically_empty",
    "rerun:is_tombstone": "is_tombstone",
}


def to_arrow_schema(
    indexes: Sequence[IndexColumnDescriptor], components: Sequence[ComponentColumnDescriptor]
) -> pa.Schema:
    """The schema as Arrow fields: row ids, then one field per column; without schema metadata."""
    timelines = (index_field(index.name, index.kind) for index in indexes)
    return pa.schema([row_id_field(), *timelines, *map(_component_field, components)])


def _component_field(column: ComponentColumnDescriptor) -> pa.Field:
    flags = tuple(key for key, name in _FLAGS.items() if getattr(column, name))
    metadata = _column_metadata(column.descriptor, column.entity_path, flags)
    return pa.field(column.name, column.datatype, nullable=True, metadata=metadata)


@lru_cache(maxsize=16_384)
def _column_metadata(descriptor: ComponentDescriptor, entity_path: str, flags: tuple[str, ...]) -> pa.KeyValueMetadata:
    plain = text_metadata(component_metadata(descriptor))
    return pa.KeyValueMetadata({**plain, "rerun:entity_path": entity_path, **dict.fromkeys(flags, "true")})


def columns_of_arrow(schema: pa.Schema) -> tuple[list[IndexColumnDescriptor], list[ComponentColumnDescriptor]]:
    """The columns described by Arrow fields. Raises ``ValueError`` if the type of a timeline is invalid."""
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
        raise ValueError(f"the timeline '{name}' has the type {datatype}, which timelines cannot have")
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
