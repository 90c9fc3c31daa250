"""The two kinds of lens, and their outputs: component columns and timelines, each with its selector."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

import pyarrow as pa

from ..engine.chunk import ComponentDescriptor, DescriptorLike, TimelineKind, descriptor_of
from ..engine.errors import check_argument
from . import archetypes, arrays
from .selector import Selector, SelectorPipeline, pipeline_of, pipeline_text, scalars, vector

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
    """A component column and the selector of its values.

    ``required``: a selector without result is an error. ``nullable``: the column's type allows null instances.
    """

    descriptor: ComponentDescriptor
    pipeline: SelectorPipeline
    required: bool = False
    nullable: bool = True

    def describe(self) -> str:
        """``component = selector``."""
        return f"{self.descriptor} = {pipeline_text(self.pipeline)}"


@dataclass(frozen=True, slots=True)
class TimeOutput:
    """A timeline and the selector of its times, int64."""

    name: str
    kind: TimelineKind
    pipeline: SelectorPipeline

    @classmethod
    def of(cls, name: str, timeline_type: str, selector: Selector | str) -> TimeOutput:
        """Return the checked output. Raises ``ValueError`` for an unknown type."""
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
    """Components named by the data: one for each field of the selector's structs."""

    prefix: str
    archetype: str | None
    pipeline: SelectorPipeline

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
        """Return the single row."""
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


@dataclass(frozen=True, slots=True)
class DeriveLens:
    """New component columns, and new timelines, from one component of a chunk.

    Applies to the chunks that have a component called exactly ``input_component``. The new columns go to the same
    entity, to ``output_entity``, or to ``output_child``, a path below the input's entity. With ``scatter`` each element
    becomes a row of its own: an input row of n elements gives n rows at its time, a null or empty one gives one row,
    or none without ``keep_empty``. With ``static`` the rows have no timelines. :meth:`where` says which rows it is for.
    With ``strict`` it is an error if a selector gives nothing, because the input has no such field. It is always an
    error if no selector gives anything for rows of their own with times.

    Lenses are immutable: each ``to_…`` returns a new one. They can be pickled if their callables can.

    >>> lens = DeriveLens("Imu:accel").to_component("norm", ".norm").to_timeline("t", "sequence", ".t")
    >>> lens.describe()
    'Imu:accel -> norm = .norm, timeline t = .t'
    """

    input_component: str
    output_entity: str | None = field(default=None, kw_only=True)
    output_child: str | None = field(default=None, kw_only=True)
    scatter: bool = field(default=False, kw_only=True)
    keep_empty: bool = field(default=True, kw_only=True)
    static: bool = field(default=False, kw_only=True)
    strict: bool = field(default=False, kw_only=True)
    condition: SelectorPipeline | None = field(default=None, kw_only=True, repr=False)
    otherwise: str = field(default="", kw_only=True, repr=False)
    remarks: tuple[tuple[SelectorPipeline, str], ...] = field(default=(), kw_only=True, repr=False)
    outputs: tuple[ComponentOutput, ...] = field(default=(), kw_only=True, repr=False)
    timelines: tuple[TimeOutput, ...] = field(default=(), kw_only=True, repr=False)
    spreads: tuple[SpreadOutput, ...] = field(default=(), kw_only=True, repr=False)
    constants: tuple[ConstantOutput, ...] = field(default=(), kw_only=True, repr=False)

    def __post_init__(self) -> None:
        check_argument("input_component", self.input_component, str)
        check_argument("output_entity", self.output_entity, str, type(None))
        check_argument("output_child", self.output_child, str, type(None))
        for flag in ("scatter", "keep_empty", "static", "strict"):
            check_argument(flag, getattr(self, flag), bool)
        if self.output_entity is not None and self.output_child is not None:
            raise ValueError("`output_entity` and `output_child` exclude each other")

    def where(self, selector: Selector | str, *, otherwise: str = "") -> DeriveLens:
        """Apply the lens only to rows with a true ``selector``: one bool a row; a null is false.

        So several lenses can divide the rows of one component, each with its own outputs. Rows that are true for none
        of them stay in the input column, if unmatched data is forwarded. Rows that are true for two go to both.
        ``otherwise`` describes the other rows.

        >>> moving = DeriveLens("Car:state").where(".moving").to_component("Car:speed", ".speed")
        >>> moving.describe()
        'Car:state where .moving -> Car:speed = .speed'
        """
        return replace(self, condition=pipeline_of(selector), otherwise=otherwise)

    def remark(self, selector: Selector | str, text: str) -> DeriveLens:
        """Report the rows with a true ``selector``, one bool a row: their values are incomplete.

        Readers warn once with the number of these rows and ``text``, such as "have data that ends early"; a stage of
        lenses writes it to the log. The lens makes a chunk of its own.
        """
        return replace(self, remarks=(*self.remarks, (pipeline_of(selector), text)))

    def to_component(
        self,
        component: DescriptorLike | str,
        selector: Selector | str,
        *,
        cast_to: pa.DataType | str | None = None,
        required: bool = False,
        nullable: bool = True,
    ) -> DeriveLens:
        """Add a component column. A name alone gives a descriptor without archetype and component type.

        Values are written in the selector's type, or in the Arrow type ``cast_to``; ``"auto"`` is Rerun's type for the
        component type of the descriptor. A value that does not fit is an error. If the selector gives nothing, because
        the input has no such field, there is no column; with ``required`` that is an error. Without ``nullable`` the
        column's type excludes null instances, and a null one is an error.
        """
        descriptor, pipeline = descriptor_of(component), pipeline_of(selector)
        if cast_to is not None:
            pipeline = Selector.of(pipeline).cast(archetypes.cast_type(descriptor, cast_to)).pipeline
        return replace(self, outputs=(*self.outputs, ComponentOutput(descriptor, pipeline, required, nullable)))

    def to_packed_component(
        self, component: DescriptorLike | str, *fields: str, cast_to: pa.DataType | str | None = "auto"
    ) -> DeriveLens:
        """One more component column: lists of a fixed size, of one value from each field, all of one type.

        A null field makes the list null; one that is missing is an error. ``cast_to`` as in :meth:`to_component`.

        >>> lens = DeriveLens("data").to_packed_component("xy", "x", "y", cast_to=None)
        >>> lens.describe()
        'data -> xy = pack(.x!, .y!)'
        """
        if not fields:
            raise ValueError("to_packed_component requires at least one field")
        packed = f"pack({', '.join(f'{_field_query(f)}!' for f in fields)})"
        return self.to_component(component, packed, cast_to=cast_to)

    def to_timeline(self, timeline_name: str, timeline_type: str, selector: Selector | str) -> DeriveLens:
        """Add a timeline: ``"sequence"``, ``"duration_ns"`` or ``"timestamp_ns"``; ``_ns`` may be left off.

        The selector must give exactly one int64 a row; see :meth:`Selector.nanoseconds` for stamps. A timeline of the
        chunk with this name is replaced.
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
        """``Scalars:scalars``, float64: one series for each selector, or field that is named without a dot.

        ``names`` name the series, in a static chunk beside each derived one. ``unit`` is the data's unit or a factor;
        values come out in ``to_unit``, or the SI unit.
        """
        paths = tuple(_field_query(s) if isinstance(s, str) else s for s in selectors)
        lens = self.to_component(archetypes.SCALARS, scalars(paths, unit, to_unit))
        if names is None:
            return lens
        earlier = [c for c in lens.constants if c.descriptor == archetypes.SERIES_NAMES]
        named = [name for c in earlier for name in c.instances.to_pylist()]
        constant = ConstantOutput(archetypes.SERIES_NAMES, pa.array([*named, *names], pa.string()))
        return replace(lens, constants=(*(c for c in lens.constants if c not in earlier), constant))

    def to_constant(self, component: DescriptorLike | str, instances: pa.Array | Iterable[Any]) -> DeriveLens:
        """A component that is the same for all rows, in a static chunk of one row beside each derived one."""
        constant = ConstantOutput.of(descriptor_of(component), instances)
        return replace(self, constants=(*self.constants, constant))

    def to_components(self, prefix: str, selector: Selector | str, *, archetype: str | None = None) -> DeriveLens:
        """Add a component for each field of the selector's structs, called ``prefix`` and the field's name.

        The selector must give one struct a row. The elements of a list field are the instances of the row, any other
        value is one instance. A field gives no component if it is null in all rows, or if its component is an output
        of its own.

        >>> DeriveLens("Scan:message").to_components("Points3D:", ".fields").describe()
        'Scan:message -> Points3D:* = .fields'
        """
        spread = SpreadOutput(prefix, archetype, pipeline_of(selector))
        return replace(self, spreads=(*self.spreads, spread))

    def to_translation3d(
        self, *selectors: Selector | str, unit: float | str | None = None, to_unit: str | None = None
    ) -> DeriveLens:
        """``Transform3D:translation`` from three selectors, or from one (fields x, y, z, or lists of three).

        A null coordinate makes the translation null. Units as in :meth:`to_scalars`.
        """
        return self.to_component(archetypes.TRANSLATION, vector("to_translation3d", selectors, "xyz", unit, to_unit))

    def to_rotation_quat(self, *selectors: Selector | str) -> DeriveLens:
        """``Transform3D:quaternion`` from four selectors (x, y, z, w), or from one (these fields, or lists of four)."""
        return self.to_component(archetypes.QUATERNION, vector("to_rotation_quat", selectors, "xyzw", None, None))

    def to_translation(self, x: str, y: str, z: str) -> DeriveLens:
        """``Transform3D:translation`` from the fields of these names; one that is missing is an error.

        As :meth:`to_translation3d` otherwise, and so are the three below.

        >>> DeriveLens("Pose:message").to_translation("position.x", "position.y", "position.z").outputs[0].required
        True
        """
        return self._to_vector(archetypes.TRANSLATION, x, y, z)

    def to_quaternion(self, x: str, y: str, z: str, w: str) -> DeriveLens:
        """``Transform3D:quaternion`` from the fields of these names."""
        return self._to_vector(archetypes.QUATERNION, x, y, z, w)

    def to_scale(self, x: str, y: str, z: str) -> DeriveLens:
        """``Transform3D:scale`` from the fields of these names."""
        return self._to_vector(archetypes.SCALE, x, y, z)

    def to_rotation_axis_angle(self, axis_x: str, axis_y: str, axis_z: str, angle: str) -> DeriveLens:
        """``Transform3D:rotation_axis_angle`` from the fields of these names; the angle in radians."""
        packed = Selector.pack(*map(_field_query, (axis_x, axis_y, axis_z, angle)))
        return self.to_component(archetypes.AXIS_ANGLE, packed.pipe(_axis_angles), required=True)

    def _to_vector(self, component: ComponentDescriptor, *fields: str) -> DeriveLens:
        return self.to_component(component, Selector.pack(*map(_field_query, fields)), required=True)

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
        described = [o.describe() for o in self.outputs] + [s.describe() for s in self.spreads]
        outputs = ", ".join([*described, *(t.describe() for t in self.timelines)])
        rows = f" where {pipeline_text(self.condition)}" if self.condition is not None else ""
        where = f" at {self.output_entity}" if self.output_entity is not None else ""
        where = f" below at {self.output_child}" if self.output_child is not None else where
        return f"{self.input_component}{rows} ->{where} {outputs}{' (scattered)' if self.scatter else ''}"


@dataclass(frozen=True, slots=True, init=False)
class MutateLens:
    """One component of a chunk, changed in place.

    Rows get new ids, in the order of their times, unless ``keep_row_ids``. Where the selector gives nothing the column
    is removed.

    >>> MutateLens("Imu:accel", ".x").describe()
    'Imu:accel = .x'
    """

    input_component: str
    pipeline: SelectorPipeline
    keep_row_ids: bool

    def __init__(self, input_component: str, selector: Selector | str, *, keep_row_ids: bool = False) -> None:
        check_argument("input_component", input_component, str)
        check_argument("keep_row_ids", keep_row_ids, bool)
        object.__setattr__(self, "input_component", input_component)
        object.__setattr__(self, "pipeline", pipeline_of(selector))
        object.__setattr__(self, "keep_row_ids", keep_row_ids)

    def describe(self) -> str:
        """Input and selector in one line."""
        return f"{self.input_component} = {pipeline_text(self.pipeline)}"


Lens = DeriveLens | MutateLens
"""A lens of either kind."""


def _several(selectors: Selector | str | Iterable[Selector | str]) -> tuple[Selector | str, ...]:
    return (selectors,) if isinstance(selectors, (str, Selector)) else tuple(selectors)


def _field_query(path: str) -> str:
    """The query of a field that is named without its dot, ``pose.x``; a query stays as it is.

    >>> _field_query("pose.x"), _field_query(".pose.x"), _field_query('"text" | .')
    ('.pose.x', '.pose.x', '"text" | .')
    """
    check_argument("field", path, str)
    return f".{path}" if path[:1].isalpha() and not path.startswith(("map(", "pack(")) else path


def _axis_angles(rotations: pa.FixedSizeListArray) -> pa.StructArray:
    """Rotations about an axis, from lists of four float32: the axis and the angle in radians. A null one stays null."""
    numbers = rotations.fill_null([0.0] * 4) if rotations.null_count else rotations
    flat = numbers.flatten().to_numpy().reshape(-1, 4)
    axis = arrays.fixed_lists(pa.array(flat[:, :3].reshape(-1)), 3)
    mask = rotations.is_null() if rotations.null_count else None
    fields = [pa.field("axis", axis.type, nullable=False), pa.field("angle", pa.float32(), nullable=False)]
    return pa.StructArray.from_arrays([axis, pa.array(flat[:, 3])], fields=fields, mask=mask)
