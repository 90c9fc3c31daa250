"""Which column a user means: by entity and component, or by timeline."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import check_argument
from .entity_path import parse_entity_path


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
