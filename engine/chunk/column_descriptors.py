"""Columns of a schema: read-only descriptors of timelines and components, in order, and selectors of one of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa

from ..errors import check_argument
from .descriptor import ComponentDescriptor
from .entity_path import parse_entity_path, split_parts
from .header import TimelineKind

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


_TOKENS = re.compile(r"[0-9]+|[^0-9]", re.DOTALL)

Key = tuple[tuple[bool, tuple[tuple[str, int, str], ...]], ...]


@lru_cache(maxsize=65_536)
def path_order(entity_path: str) -> Key:
    """A sort key for entity paths: part by part, a parent before its children.

    Runs of digits compare as numbers (those with leading zeros first, as text), letters of the English alphabet
    without their case (``A`` before ``a`` where nothing else differs), other characters by code point. Parts that
    start with two underscores come last among their siblings.

    >>> sorted(["/__properties", "/b10", "/b2", "/b", "/B", "/"], key=path_order)
    ['/', '/B', '/b', '/b2', '/b10', '/__properties']
    """
    return tuple(
        (part.startswith("__"), tuple(map(_token, _TOKENS.findall(part)))) for part in split_parts(entity_path)
    )


def _token(token: str) -> tuple[str, int, str]:
    if token[0] in "0123456789":
        return "0", 0 if token[0] == "0" else len(token), token
    return token.lower() if token.isascii() else token, 0, token


class SelectorTypeError(TypeError, ValueError):
    """A selector is none of the kinds that are understood."""


@dataclass(frozen=True, slots=True, repr=False)
class ComponentColumnSelector:
    """Selects one component of one entity.

    >>> ComponentColumnSelector("world/arm/", "Scalars:scalars")
    /world/arm:Scalars:scalars
    """

    entity_path: str
    component: str

    def __post_init__(self) -> None:
        check_argument("component", self.component, str)
        object.__setattr__(self, "entity_path", parse_entity_path(self.entity_path))

    @classmethod
    def parse(cls, text: str) -> ComponentColumnSelector:
        """The selector written as ``<entity path>:<component>``; raises ``ValueError`` for other text.

        >>> ComponentColumnSelector.parse("arm:Scalars:scalars").component
        'Scalars:scalars'
        """
        if not text:
            raise ValueError("Expected column selector, found empty string")
        entity_path, colon, component = text.partition(":")
        if not colon:
            raise ValueError(f"Expected string in the form of `entity_path:component_type`, got: {text}")
        return cls(entity_path, component)

    def __repr__(self) -> str:
        return f"{self.entity_path}:{self.component}"


@dataclass(frozen=True, slots=True, repr=False, init=False)
class IndexColumnSelector:
    """Selects a timeline.

    >>> IndexColumnSelector("frame")
    Index(timeline:frame)
    """

    name: str

    def __init__(self, index: str) -> None:
        check_argument("index", index, str)
        object.__setattr__(self, "name", index)

    def __repr__(self) -> str:
        return f"Index(timeline:{self.name})"
