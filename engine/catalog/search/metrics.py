"""Words about search indexes: columns, the measures of distance, and descriptions of an index."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from ...chunk import ComponentColumnDescriptor, ComponentColumnSelector, IndexColumnSelector
from ...errors import UsageError

AnyComponentColumn = str | ComponentColumnSelector | ComponentColumnDescriptor
"""A component of an entity: ``<entity path>:<component>``, a selector, or a column of a schema."""


class VectorDistanceMetric(Enum):
    """A measure of the distance of two vectors.

    ``L2`` is the square of the Euclidean distance, ``Cosine`` one less the cosine of the angle, ``Dot`` one less the
    dot product, ``Hamming`` the number of bits that differ, of vectors of bytes.

    >>> VectorDistanceMetric.of("cosine")
    <VectorDistanceMetric.Cosine: 'Cosine'>
    """

    L2 = "L2"
    Cosine = "Cosine"
    Dot = "Dot"
    Hamming = "Hamming"

    @classmethod
    def of(cls, metric: VectorDistanceMetricLike) -> VectorDistanceMetric:
        """The metric of a name, in whatever case. Raises ``ValueError`` for another one."""
        for member in cls:
            if member is metric or (isinstance(metric, str) and member.value.lower() == metric.lower()):
                return member
        raise UsageError(f"Unknown vector distance metric: {metric}")


VectorDistanceMetricLike = VectorDistanceMetric | Literal["L2", "Cosine", "Dot", "Hamming"]
"""A metric, or its name."""


@dataclass(frozen=True)
class IndexProperties:
    """The choices of an index: of words (``Inverted``), or of vectors (``VectorIvfPq``, ``VectorIvfFlat``)."""

    kind: str
    choices: dict[str, Any]

    def __repr__(self) -> str:
        choices = ", ".join(f"{name}: {str(value).lower()}" for name, value in self.choices.items())
        return f"{self.kind} {{ {choices} }}"

    def __hash__(self) -> int:
        return hash((self.kind, json.dumps(self.choices)))


@dataclass(frozen=True)
class IndexConfig:
    """A search index: the component of its elements, the index of their times, its choices."""

    time_column: IndexColumnSelector
    component_column: ComponentColumnSelector
    properties: IndexProperties

    def __repr__(self) -> str:
        return f"IndexConfig({self.told})"

    @property
    def told(self) -> str:
        """The component, the index and the choices, in words."""
        return f"'{self.component_column}' on '{self.time_column.name}': {self.properties}"


@dataclass(frozen=True)
class IndexingResult:
    """An existing search index, and its ``statistics`` as JSON: numbers of rows, partitions and more."""

    properties: IndexConfig
    statistics: str

    @property
    def column(self) -> ComponentColumnSelector:
        """The component of its elements."""
        return self.properties.component_column

    def debug_info(self) -> dict[str, Any] | None:
        """The statistics, as a dictionary."""
        statistics: dict[str, Any] = json.loads(self.statistics)
        return statistics

    def __repr__(self) -> str:
        return f"IndexingResult(index={self.properties.told})"
