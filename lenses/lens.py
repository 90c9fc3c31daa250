"""The two kinds of lens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ..engine.chunk import ComponentDescriptor
from ..engine.chunk.columns import descriptor_of
from . import vectors
from .lens_outputs import ComponentOutput, SeriesNames, TimeOutput
from .selector import Selector, pipeline_of
from .selector.syntax import Pipeline, pipeline_text


@dataclass(frozen=True, slots=True)
class DeriveLens:
    """New component columns, and new timelines, from one component of a chunk.

    Applies to the chunks that have a component called exactly ``input_component``. The new columns go to the same
    entity, or to ``output_entity``. With ``scatter`` each element becomes a row of its own: an input row of n elements
    gives n rows at its time, a null or empty one gives one row.

    Lenses do not change: each ``to_…`` returns another one. They pickle wherever their callables do.

    >>> lens = DeriveLens("Imu:accel").to_component("norm", ".norm").to_timeline("t", "sequence", ".t")
    >>> lens.describe()
    'Imu:accel -> norm = .norm, timeline t = .t'
    """

    input_component: str
    output_entity: str | None = field(default=None, kw_only=True)
    scatter: bool = field(default=False, kw_only=True)
    outputs: tuple[ComponentOutput, ...] = field(default=(), kw_only=True, repr=False)
    timelines: tuple[TimeOutput, ...] = field(default=(), kw_only=True, repr=False)
    series: tuple[SeriesNames, ...] = field(default=(), kw_only=True, repr=False)

    def __post_init__(self) -> None:
        _check_component(self.input_component)

    def to_component(self, component: ComponentDescriptor | str | Any, selector: Selector | str) -> DeriveLens:
        """One more component column. A name alone gives a descriptor without archetype and component type.

        Values are written as the selector gives them; see :meth:`Selector.cast` for another type.
        """
        output = ComponentOutput(descriptor_of(component), pipeline_of(selector))
        return replace(self, outputs=(*self.outputs, output))

    def to_timeline(self, timeline_name: str, timeline_type: str, selector: Selector | str) -> DeriveLens:
        """One more timeline: ``"sequence"``, ``"duration_ns"`` or ``"timestamp_ns"``.

        The selector must give exactly one int64 a row; see :meth:`Selector.nanoseconds` for stamps. A timeline that the
        chunk has by this name is replaced.
        """
        output = TimeOutput.of(timeline_name, timeline_type, selector)
        return replace(self, timelines=(*self.timelines, output))

    def to_scalars(
        self,
        *selectors: Selector | str,
        names: Iterable[str] | None = None,
        unit: float | str | None = None,
        to_unit: str | None = None,
    ) -> DeriveLens:
        """``Scalars:scalars``, float64: one series for each selector.

        ``names`` name the series, in a static chunk beside each derived one. ``unit`` is the data's unit or a factor;
        values come out in ``to_unit``, or the SI unit.
        """
        lens = self.to_component(vectors.SCALARS, Selector.of(vectors.scalars(selectors, unit, to_unit)))
        return lens if names is None else replace(lens, series=(*lens.series, SeriesNames(tuple(names))))

    def to_translation3d(
        self, *selectors: Selector | str, unit: float | str | None = None, to_unit: str | None = None
    ) -> DeriveLens:
        """``Transform3D:translation`` from three selectors, or from one (fields x, y, z, or lists of three).

        A null coordinate makes the translation null. Units as in :meth:`to_scalars`.
        """
        return self.to_component(vectors.TRANSLATION, Selector.of(vectors.translation(selectors, unit, to_unit)))

    def to_rotation_quat(self, *selectors: Selector | str) -> DeriveLens:
        """``Transform3D:quaternion`` from four selectors (x, y, z, w), or from one (these fields, or lists of four)."""
        return self.to_component(vectors.QUATERNION, Selector.of(vectors.quaternion(selectors)))

    def to_transform3d(
        self,
        translation: Selector | str | Iterable[Selector | str],
        rotation: Selector | str | Iterable[Selector | str],
        *,
        unit: float | str | None = None,
        to_unit: str | None = None,
    ) -> DeriveLens:
        """Both :meth:`to_translation3d` and :meth:`to_rotation_quat`; ``unit`` is that of the translation."""
        lens = self.to_translation3d(*_several(translation), unit=unit, to_unit=to_unit)
        return lens.to_rotation_quat(*_several(rotation))

    def describe(self) -> str:
        """Inputs and outputs in one line."""
        outputs = ", ".join([*(o.describe() for o in self.outputs), *(t.describe() for t in self.timelines)])
        where = f" at {self.output_entity}" if self.output_entity is not None else ""
        return f"{self.input_component} ->{where} {outputs}{' (scattered)' if self.scatter else ''}"


@dataclass(frozen=True, slots=True, init=False)
class MutateLens:
    """One component of a chunk, changed in place.

    Rows get new ids, in the order of their times, unless ``keep_row_ids``. Where the selector gives nothing the column
    is removed.

    >>> MutateLens("Imu:accel", ".x").describe()
    'Imu:accel = .x'
    """

    input_component: str
    pipeline: Pipeline
    keep_row_ids: bool

    def __init__(self, input_component: str, selector: Selector | str, *, keep_row_ids: bool = False) -> None:
        _check_component(input_component)
        object.__setattr__(self, "input_component", input_component)
        object.__setattr__(self, "pipeline", pipeline_of(selector))
        object.__setattr__(self, "keep_row_ids", keep_row_ids)

    def describe(self) -> str:
        """Input and selector in one line."""
        return f"{self.input_component} = {pipeline_text(self.pipeline)}"


Lens = DeriveLens | MutateLens
"""A lens of either kind."""


def _check_component(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"argument 'input_component': '{type(name).__name__}' object is not an instance of 'str'")


def _several(selectors: Selector | str | Iterable[Selector | str]) -> tuple[Selector | str, ...]:
    return (selectors,) if isinstance(selectors, (str, Selector)) else tuple(selectors)
