"""What a lens writes: component columns and timelines, each with the selector it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from ..engine.chunk import ComponentDescriptor, TimelineKind
from .selector import Selector, pipeline_of
from .selector.syntax import Pipeline, pipeline_text

TIMELINE_TYPES = MappingProxyType(
    {
        "sequence": TimelineKind.SEQUENCE,
        "duration_ns": TimelineKind.DURATION,
        "timestamp_ns": TimelineKind.TIMESTAMP,
    }
)
"""The words for the kinds of timeline."""


@dataclass(frozen=True, slots=True)
class ComponentOutput:
    """A component column and the selector that gives its values."""

    descriptor: ComponentDescriptor
    pipeline: Pipeline

    def describe(self) -> str:
        """``component = selector``."""
        return f"{self.descriptor} = {pipeline_text(self.pipeline)}"


@dataclass(frozen=True, slots=True)
class TimeOutput:
    """A timeline and the selector that gives its times, int64."""

    name: str
    kind: TimelineKind
    pipeline: Pipeline

    @classmethod
    def of(cls, name: str, timeline_type: str, selector: Selector | str) -> TimeOutput:
        """Checked. Raises ``ValueError`` for a type that is none."""
        if timeline_type not in TIMELINE_TYPES:
            raise ValueError(
                f"Unknown timeline type '{timeline_type}', expected 'sequence', 'duration_ns', or 'timestamp_ns'"
            )
        return cls(name, TIMELINE_TYPES[timeline_type], pipeline_of(selector))

    def describe(self) -> str:
        """``timeline name = selector``."""
        return f"timeline {self.name} = {pipeline_text(self.pipeline)}"


@dataclass(frozen=True, slots=True)
class SeriesNames:
    """Names of the scalars that a lens writes, for a static chunk beside them."""

    names: tuple[str, ...]
