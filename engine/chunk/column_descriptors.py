"""What a schema says of a column: read-only descriptors of timelines and components."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from .descriptor import ComponentDescriptor
from .header import TimelineKind
from .natural_order import Key, path_order

PROPERTIES = "/__properties"
"""The entity that holds what is true of a recording as a whole."""

_TOMBSTONE = "Clear:is_recursive"


def is_property(entity_path: str) -> bool:
    """Whether an entity holds properties of the recording rather than data."""
    return entity_path == PROPERTIES or entity_path.startswith(f"{PROPERTIES}/")


def column_name(entity_path: str, component: str) -> str:
    """The name of a component's column.

    >>> column_name("/arm", "Scalars:scalars"), column_name("/__properties/episode", "index")
    ('/arm:Scalars:scalars', 'property:episode:index')
    """
    if not is_property(entity_path):
        return f"{entity_path}:{component}"
    return ":".join(["property", *filter(None, [entity_path[len(PROPERTIES) + 1 :]]), component])


@dataclass(frozen=True, slots=True, repr=False)
class IndexColumnDescriptor:
    """A timeline's column. To select one, use :class:`IndexColumnSelector`.

    >>> IndexColumnDescriptor("frame")
    Index(timeline:frame)
    """

    name: str
    kind: TimelineKind = TimelineKind.SEQUENCE

    @property
    def is_static(self) -> bool:
        """Always False: there is a time in every row."""
        return False

    def __repr__(self) -> str:
        return f"Index(timeline:{self.name})"


@dataclass(frozen=True, slots=True, repr=False)
class ComponentColumnDescriptor:
    """A component's column on one entity. To select one, use :class:`ComponentColumnSelector`.

    ``datatype`` is the Arrow type as stored, ``list<T>``. ``is_static``: some chunk holds it without a time.
    ``is_semantically_empty``: all values known are nulls or empty lists.

    >>> print(ComponentColumnDescriptor("/arm", "volume", is_static=True).name)
    /arm:volume
    """

    entity_path: str
    component: str
    archetype: str | None = None
    component_type: str | None = None
    is_static: bool = False
    datatype: pa.DataType = field(default_factory=lambda: pa.list_(pa.null()))
    is_semantically_empty: bool = False

    @property
    def name(self) -> str:
        """The name of the column: ``/arm:Scalars:scalars``; ``property:…`` for properties of the recording."""
        return column_name(self.entity_path, self.component)

    @property
    def is_property(self) -> bool:
        """Whether it belongs to the recording's properties, ``/__properties`` and below."""
        return is_property(self.entity_path)

    @property
    def is_tombstone(self) -> bool:
        """Whether its values clear other components rather than say something."""
        return self.component == _TOMBSTONE

    @property
    def descriptor(self) -> ComponentDescriptor:
        """The component without its entity."""
        return ComponentDescriptor(self.component, self.archetype, self.component_type)

    @property
    def sort_key(self) -> tuple[Key, tuple[str, str, str]]:
        """The order of columns: entity path as people count, then as in a chunk."""
        return path_order(self.entity_path), self.descriptor.sort_key

    def __repr__(self) -> str:
        lines = [
            f"Column name: {self.name}",
            f"Entity path: {self.entity_path}",
            f"Archetype: {self.archetype}",
            f"Component type: {self.component_type or ''}",
            f"Component: {self.component}",
        ]
        return "\n\t".join([*lines, "Static: true"] if self.is_static else lines)
