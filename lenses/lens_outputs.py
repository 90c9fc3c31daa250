"""The outputs of a lens, component columns and timelines, each with its selector; and what becomes of other columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

import pyarrow as pa

from ..engine.chunk import ComponentDescriptor, TimelineKind
from ..engine.errors import check_argument
from .selector import Selector, pipeline_of
from .selector.syntax import Pipeline, pipeline_text

OutputMode = Literal["drop_unmatched", "forward_unmatched", "forward_all"]
"""Keep only what lenses make; also the columns that no lens reads; or all original columns."""


def checked_mode(text: str) -> OutputMode:
    """The mode called ``text``. Raises ``ValueError`` with the modes there are."""
    check_argument("output_mode", text, str)
    if text not in get_args(OutputMode):
        raise ValueError(
            f"Unknown output_mode '{text}', expected 'forward_all', 'forward_unmatched', or 'drop_unmatched'"
        )
    return cast("OutputMode", text)


TIMELINE_TYPES = MappingProxyType(
    {
        "sequence": TimelineKind.SEQUENCE,
        "duration_ns": TimelineKind.DURATION,
        "timestamp_ns": TimelineKind.TIMESTAMP,
        "duration": TimelineKind.DURATION,
        "timestamp": TimelineKind.TIMESTAMP,
    }
)
"""The words for the kinds of timeline, whose times are always in ns."""


@dataclass(frozen=True, slots=True)
class ComponentOutput:
    """A component column and the selector that gives its values.

    ``required``: giving nothing is an error. ``nullable``: whether instances may be null, by the column's type.
    """

    descriptor: ComponentDescriptor
    pipeline: Pipeline
    required: bool = False
    nullable: bool = True

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
        check_argument("timeline_name", name, str)
        check_argument("timeline_type", timeline_type, str)
        if timeline_type not in TIMELINE_TYPES:
            raise ValueError(
                f"Unknown timeline type '{timeline_type}', expected 'sequence', 'duration_ns', or 'timestamp_ns' "
                "('duration' and 'timestamp' mean the same)"
            )
        return cls(name, TIMELINE_TYPES[timeline_type], pipeline_of(selector))

    def describe(self) -> str:
        """``timeline name = selector``."""
        return f"timeline {self.name} = {pipeline_text(self.pipeline)}"


@dataclass(frozen=True, slots=True)
class SpreadOutput:
    """Components named by the data: one for each field of the structs that the selector gives."""

    prefix: str
    archetype: str | None
    pipeline: Pipeline

    def descriptor(self, field: str) -> ComponentDescriptor:
        """The component that a field becomes."""
        return ComponentDescriptor(f"{self.prefix}{field}", self.archetype)

    def describe(self) -> str:
        """``prefix* = selector``."""
        return f"{self.prefix}* = {pipeline_text(self.pipeline)}"


@dataclass(frozen=True, slots=True)
class ConstantOutput:
    """A constant for all rows: one row of a static chunk beside those that the lens makes."""

    descriptor: ComponentDescriptor
    instances: pa.Array

    @classmethod
    def of(cls, descriptor: ComponentDescriptor, instances: pa.Array | Iterable[Any]) -> ConstantOutput:
        """The instances as an array; without a type of their own, of the type that Arrow infers."""
        return cls(descriptor, instances if isinstance(instances, pa.Array) else pa.array(list(instances)))

    @property
    def column(self) -> pa.ListArray:
        """The one row."""
        return pa.ListArray.from_arrays(pa.array([0, len(self.instances)], pa.int32()), self.instances)

    def describe(self) -> str:
        """``component = (values)``."""
        return f"{self.descriptor} = {tuple(self.instances.to_pylist())}"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ConstantOutput)
            and self.descriptor == other.descriptor
            and self.instances.equals(other.instances)
        )

    def __hash__(self) -> int:
        return hash((self.descriptor, str(self.instances.type), len(self.instances)))
