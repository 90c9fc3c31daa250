"""The two kinds of lens and their outputs, and lenses compiled once for many chunks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..engine.chunk import (
    Chunk,
    ChunkData,
    ComponentDescriptor,
    DescriptorLike,
    StoredColumns,
    Timeline,
    TimelineKind,
    descriptor_of,
    parse_entity_path,
)
from ..engine.errors import LensError, SelectorError, check_argument
from . import archetypes, arrays
from .arrays import type_name
from .selector import (
    Selector,
    SelectorPipeline,
    SelectorResults,
    SelectorTable,
    pipeline_of,
    pipeline_text,
    scalars,
    vector,
)

OutputMode = Literal["drop_unmatched", "forward_unmatched", "forward_all"]
"""Keep only the lenses' output, or also the columns that no lens reads, or also all original columns."""


def checked_mode(text: str) -> OutputMode:
    """Return ``text`` as a mode. Raises ``ValueError``, which lists the modes."""
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
"""The names of the kinds of timeline. Times are always in ns."""


@dataclass(frozen=True, slots=True)
class ComponentOutput:
    """A component column and the selector of its values.

    ``required``: a selector without a result is an error. ``nullable``: the column's type allows null instances.
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
        """The component for a field."""
        return ComponentDescriptor(f"{self.prefix}{field}", self.archetype)

    def describe(self) -> str:
        """``prefix* = selector``."""
        return f"{self.prefix}* = {pipeline_text(self.pipeline)}"


@dataclass(frozen=True, slots=True)
class ConstantOutput:
    """A constant for all rows: the row of a static chunk next to the lens's other chunks."""

    descriptor: ComponentDescriptor
    instances: pa.Array

    @classmethod
    def of(cls, descriptor: ComponentDescriptor, instances: pa.Array | Iterable[Any]) -> ConstantOutput:
        """Return the output. Instances that are not an Arrow array get the type that Arrow infers."""
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
    """A lens that derives component columns and timelines from one component of a chunk.

    It applies to chunks with a component named exactly ``input_component``. The new columns go to the same entity, to
    ``output_entity``, or to ``output_child``, a path below the input's entity. With ``scatter``, each element becomes a
    row of its own: an input row of n elements gives n rows at its time. A null or empty row gives one row, or none
    without ``keep_empty``. With ``static`` the rows have no timelines. :meth:`where` restricts the lens to some rows.
    With ``strict``, it is an error if the input lacks the field of a selector. A lens with ``scatter``, or with times
    in its output, raises an error if none of its selectors has a result.

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
        """Apply the lens only to rows for which ``selector`` is true.

        It must give one bool per row; null counts as false.

        Several such lenses can divide the rows of a component. Rows that match no lens stay in the input column, if
        unmatched data is forwarded. Rows that match two lenses go to both. ``otherwise`` is a text that describes the
        other rows.

        >>> moving = DeriveLens("Car:state").where(".moving").to_component("Car:speed", ".speed")
        >>> moving.describe()
        'Car:state where .moving -> Car:speed = .speed'
        """
        return replace(self, condition=pipeline_of(selector), otherwise=otherwise)

    def remark(self, selector: Selector | str, text: str) -> DeriveLens:
        """Report rows with incomplete values: those for which ``selector``, one bool per row, is true.

        Readers warn once with the number of these rows and ``text``, such as "have data that ends early"; a stage of
        lenses logs it. The output of this lens is a separate chunk.
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

        Values keep the selector's type, or are cast to the Arrow type ``cast_to``. ``"auto"`` means Rerun's Arrow type
        for the descriptor's component type. A value that does not fit is an error. If the input has no such field, no
        column is made, or, with ``required``, an error is raised. Without ``nullable``, the type of the column excludes
        null instances, and a null instance is an error.
        """
        descriptor, pipeline = descriptor_of(component), pipeline_of(selector)
        if cast_to is not None:
            pipeline = Selector.of(pipeline).cast(archetypes.cast_type(descriptor, cast_to)).pipeline
        return replace(self, outputs=(*self.outputs, ComponentOutput(descriptor, pipeline, required, nullable)))

    def to_packed_component(
        self, component: DescriptorLike | str, *fields: str, cast_to: pa.DataType | str | None = "auto"
    ) -> DeriveLens:
        """Add a component column of fixed-size lists with one value from each field.

        All fields must have the same type.

        A null field makes the list null; a missing field is an error. ``cast_to`` as in :meth:`to_component`.

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

        The selector must give exactly one int64 per row; see :meth:`Selector.nanoseconds` for stamps. A timeline of the
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
        """Add ``Scalars:scalars``, float64, with one series for each selector. A name without a leading dot is a field.

        ``names`` are the names of the series, in a static chunk next to each derived chunk. ``unit`` is the data's unit
        or a factor. Values are converted to ``to_unit``, by default the SI unit.
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
        """Add a component that is the same for all rows, in a static chunk of one row next to each derived chunk."""
        constant = ConstantOutput.of(descriptor_of(component), instances)
        return replace(self, constants=(*self.constants, constant))

    def to_components(self, prefix: str, selector: Selector | str, *, archetype: str | None = None) -> DeriveLens:
        """Add a component for each field of the selector's structs, named ``prefix`` plus the name of the field.

        The selector must give one struct per row. The elements of a list field are the instances of the row; any other
        value is one instance. A field gives no component if it is null in all rows, or if another output of the lens
        already has this component.

        >>> DeriveLens("Scan:message").to_components("Points3D:", ".fields").describe()
        'Scan:message -> Points3D:* = .fields'
        """
        spread = SpreadOutput(prefix, archetype, pipeline_of(selector))
        return replace(self, spreads=(*self.spreads, spread))

    def to_translation3d(
        self, *selectors: Selector | str, unit: float | str | None = None, to_unit: str | None = None
    ) -> DeriveLens:
        """Add ``Transform3D:translation`` from three selectors (x, y, z), or from one that gives all three.

        A null coordinate makes the translation null. Units as in :meth:`to_scalars`.
        """
        return self.to_component(archetypes.TRANSLATION, vector("to_translation3d", selectors, "xyz", unit, to_unit))

    def to_rotation_quat(self, *selectors: Selector | str) -> DeriveLens:
        """Add ``Transform3D:quaternion`` from four selectors (x, y, z, w), or from one that gives all four."""
        return self.to_component(archetypes.QUATERNION, vector("to_rotation_quat", selectors, "xyzw", None, None))

    def to_translation(self, x: str, y: str, z: str) -> DeriveLens:
        """Add ``Transform3D:translation`` from the fields of these names; a missing field is an error.

        Otherwise, this method and the three methods below work like :meth:`to_translation3d`.

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
        """Apply both :meth:`to_translation3d` and :meth:`to_rotation_quat`. ``unit`` is the unit of the translation."""
        lens = self.to_translation3d(*_several(translation), unit=unit, to_unit=to_unit)
        return lens.to_rotation_quat(*_several(rotation))

    def describe(self) -> str:
        """Describe inputs and outputs in one line."""
        described = [o.describe() for o in self.outputs] + [s.describe() for s in self.spreads]
        outputs = ", ".join([*described, *(t.describe() for t in self.timelines)])
        rows = f" where {pipeline_text(self.condition)}" if self.condition is not None else ""
        where = f" at {self.output_entity}" if self.output_entity is not None else ""
        where = f" below at {self.output_child}" if self.output_child is not None else where
        return f"{self.input_component}{rows} ->{where} {outputs}{' (scattered)' if self.scatter else ''}"


@dataclass(frozen=True, slots=True, init=False)
class MutateLens:
    """A lens that changes one component of a chunk.

    Rows get new ids, in the order of their times, unless ``keep_row_ids``. If the selector gives nothing, the column is
    removed.

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
        """Describe input and selector in one line."""
        return f"{self.input_component} = {pipeline_text(self.pipeline)}"


Lens = DeriveLens | MutateLens
"""A lens of either kind."""


def _several(selectors: Selector | str | Iterable[Selector | str]) -> tuple[Selector | str, ...]:
    return (selectors,) if isinstance(selectors, (str, Selector)) else tuple(selectors)


def _field_query(path: str) -> str:
    """The query of a field that is named without a leading dot (``pose.x``); a query stays as it is.

    >>> _field_query("pose.x"), _field_query(".pose.x"), _field_query('"text" | .')
    ('.pose.x', '.pose.x', '"text" | .')
    """
    check_argument("field", path, str)
    return f".{path}" if path[:1].isalpha() and not path.startswith(("map(", "pack(")) else path


def _axis_angles(rotations: pa.FixedSizeListArray) -> pa.StructArray:
    """Rotations about an axis, from lists of four float32: the axis and the angle in radians. Null lists stay null."""
    numbers = rotations.fill_null([0.0] * 4) if rotations.null_count else rotations
    flat = numbers.flatten().to_numpy().reshape(-1, 4)
    axis = arrays.fixed_lists(pa.array(flat[:, :3].reshape(-1)), 3)
    mask = rotations.is_null() if rotations.null_count else None
    fields = [pa.field("axis", axis.type, nullable=False), pa.field("angle", pa.float32(), nullable=False)]
    return pa.StructArray.from_arrays([axis, pa.array(flat[:, 3])], fields=fields, mask=mask)


@dataclass(frozen=True, slots=True)
class Selected:
    """A selector's slot in its input's table, and its text.

    ``required``: a selector without a result is an error. ``nullable``: whether the column's type allows null values.
    """

    slot: int
    text: str
    required: bool = False
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class CompiledMutate:
    """A mutate lens."""

    component: str
    selected: Selected
    keep_row_ids: bool


@dataclass(frozen=True, slots=True)
class CompiledDerive:
    """A derive lens. Without ``entity``, the outputs are at the input's entity, or at ``child`` below it."""

    component: str
    entity: str | None
    child: str | None
    scatter: bool
    keep_empty: bool
    static: bool
    condition: Selected | None
    outputs: tuple[tuple[ComponentDescriptor, Selected], ...]
    spreads: tuple[tuple[SpreadOutput, Selected], ...]
    timelines: tuple[tuple[str, TimelineKind, Selected], ...]
    constants: tuple[ConstantOutput, ...]
    remarks: tuple[tuple[Selected, str], ...] = ()

    @property
    def merges(self) -> bool:
        """Return whether the outputs go into the input's own chunk."""
        elsewhere = self.entity is not None or self.child is not None
        other_rows = self.scatter or self.static or self.condition is not None
        return not (elsewhere or other_rows or self.timelines or self.spreads or self.remarks)

    def target(self, entity_path: str) -> str:
        """The entity of the outputs for an input at ``entity_path``."""
        if self.child is not None:
            return entity_path.rstrip("/") + self.child
        return self.entity if self.entity is not None else entity_path


@dataclass(frozen=True, slots=True)
class CompiledLenses:
    """All lenses of a set, by kind, in the order given."""

    mutates: tuple[CompiledMutate, ...]
    derives: tuple[CompiledDerive, ...]
    tables: dict[str, SelectorTable]


def as_lenses(lenses: Iterable[Lens] | Lens) -> tuple[Lens, ...]:
    """Return the lenses of an argument: one, or any number. Raises ``TypeError`` for other values."""
    if isinstance(lenses, (DeriveLens, MutateLens)):
        return (lenses,)
    all_lenses = tuple(lenses)
    for lens in all_lenses:
        if not isinstance(lens, (DeriveLens, MutateLens)):
            raise TypeError(f"expected a DeriveLens or MutateLens, got a '{type(lens).__name__}' object")
    return all_lenses


def check_lenses(lenses: tuple[Lens, ...]) -> None:
    """Raise ``ValueError`` for a lens that cannot be applied to any chunk."""
    for lens in lenses:
        if not isinstance(lens, DeriveLens):
            continue
        name = lens.input_component
        if not (lens.outputs or lens.spreads):
            raise ValueError(f"Lens for input component `{name}` is missing output components")
        own = lens.output_entity is None and lens.output_child is None and lens.condition is None
        if own and any(o.descriptor.component == name for o in lens.outputs):
            raise ValueError(
                f"Derive lens targets the same component as its input `{name}` on the same entity "
                "- use a mutate lens instead"
            )


def compile_lenses(lenses: tuple[Lens, ...]) -> CompiledLenses:
    """Compile lenses for use on chunks. Raises ``ValueError`` like :func:`check_lenses`."""
    check_lenses(lenses)
    tables: dict[str, SelectorTable] = {}
    mutates, derives = [], []
    for lens in lenses:
        table = tables.setdefault(lens.input_component, SelectorTable())
        if isinstance(lens, MutateLens):
            selected = Selected(table.add(lens.pipeline), pipeline_text(lens.pipeline))
            mutates.append(CompiledMutate(lens.input_component, selected, lens.keep_row_ids))
        else:
            derives.append(_derive(lens, table))
    return CompiledLenses(tuple(mutates), tuple(derives), tables)


def _derive(lens: DeriveLens, table: SelectorTable) -> CompiledDerive:

    def selected(pipeline: SelectorPipeline, required: bool = False, nullable: bool = True) -> Selected:
        return Selected(table.add(pipeline), pipeline_text(pipeline), required or lens.strict, nullable)

    return CompiledDerive(
        lens.input_component,
        None if lens.output_entity is None else parse_entity_path(lens.output_entity),
        None if lens.output_child is None else parse_entity_path(lens.output_child),
        lens.scatter,
        lens.keep_empty,
        lens.static,
        None if lens.condition is None else selected(lens.condition),
        tuple((o.descriptor, selected(o.pipeline, o.required, o.nullable)) for o in lens.outputs),
        tuple((s, selected(s.pipeline)) for s in lens.spreads),
        tuple((t.name, t.kind, selected(t.pipeline)) for t in lens.timelines),
        lens.constants,
        tuple((selected(pipeline), text) for pipeline, text in lens.remarks),
    )


Rows = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LensOutput:
    """A chunk made by lenses, or None, and the errors that occurred.

    If ``constant``, the chunk has the constant values of a lens and is the same for every input chunk. ``remarks`` are
    the lenses' reports, each with its number of rows.
    """

    chunk: Chunk | None
    errors: tuple[LensError, ...] = ()
    constant: bool = False
    remarks: tuple[tuple[int, str], ...] = ()


@dataclass(slots=True)
class ChunkWork:
    """A chunk, and the results of selectors on its columns so far."""

    chunk: Chunk
    lenses: CompiledLenses
    stored: StoredColumns | None = None
    _data: ChunkData | None = None
    _results: dict[str, SelectorResults] = field(default_factory=dict)
    _rows: dict[tuple[str, int], Rows] = field(default_factory=dict)
    _parts: dict[tuple[str, int], ChunkWork] = field(default_factory=dict)
    _timelines: dict[tuple[str, int, str, TimelineKind], Timeline] = field(default_factory=dict)

    @property
    def data(self) -> ChunkData:
        """The columns of the chunk, with all rows or only those that a lens applies to."""
        return self.chunk.data if self._data is None else self._data

    def column(self, lens: CompiledMutate | CompiledDerive, selected: Selected, what: str) -> pa.ListArray | None:
        """Return the column of a selector of ``lens``, or None. Raises :class:`LensError` about ``what``."""
        try:
            column = self._results_on(lens.component).column(selected.slot)
            if column is None and selected.required:
                raise SelectorError(f"`{selected.text}` gives nothing: there is no such field")
            return column if column is None or selected.nullable else arrays.without_nulls(column)
        except SelectorError as error:
            message = (
                f"Failed to apply operations to {what} "
                f"(entity: `{self.chunk.entity_path}`, input: `{lens.component}`): {error.reason}"
            )
            raise self.error(message, lens, selected) from error

    def timeline(self, lens: CompiledDerive, name: str, kind: TimelineKind, selected: Selected) -> Timeline | None:
        """Return a selector's timeline, the same object for all lenses; None unless there is one int64 per row."""
        # Times without lists around them take 15 % less time (IMUs in chunks of 1,000 rows;
        # benchmarks/bench_convert.py).
        key = (lens.component, selected.slot, name, kind)
        if key not in self._timelines:
            times = self._one_each(lens, selected)
            if times is None or times.type != pa.int64():
                return None
            self._timelines[key] = Timeline(name, kind, times.view(kind.arrow_type))
        return self._timelines[key]

    def _one_each(self, lens: CompiledDerive, selected: Selected) -> pa.Array | None:
        """Return one value per row, or None if the selector fails or gives several."""
        try:
            return self._results_on(lens.component).one_each(selected.slot)
        except SelectorError:
            return None

    def part(self, lens: CompiledDerive) -> ChunkWork | None:
        """Return the rows that the lens applies to as separate work, or None if there are none.

        Raises :class:`LensError` if the lens's condition fails or does not give one bool per row.
        """
        rows = self.rows_of(lens)
        if rows is None or rows.all():
            return self
        if lens.condition is None or not rows.any():
            return None
        key = (lens.component, lens.condition.slot)
        if key not in self._parts:
            self._parts[key] = ChunkWork(self.chunk, self.lenses, _data=self.data.take(np.flatnonzero(rows)))
        return self._parts[key]

    def rows_of(self, lens: CompiledDerive) -> Rows | None:
        """Return a mask of the rows that the lens applies to, or None for all rows. Raises like :meth:`part`."""
        if lens.condition is None:
            return None
        key = (lens.component, lens.condition.slot)
        if key not in self._rows:
            self._rows[key] = self._condition(lens, lens.condition)
        return self._rows[key]

    def remarks(self, lens: CompiledDerive) -> tuple[tuple[int, str], ...]:
        """Return the remarks of a lens, each after its number of rows. Raises like :meth:`part`."""
        counts = [(int(self._condition(lens, selected).sum()), text) for selected, text in lens.remarks]
        return tuple(remark for remark in counts if remark[0])

    def _condition(self, lens: CompiledDerive, condition: Selected) -> Rows:
        values = self._one_each(lens, condition)
        if values is not None and values.type == pa.bool_():
            each: Rows = values.to_numpy(zero_copy_only=False)
            return each
        column = self.column(lens, condition, "condition")
        if column is None:
            return np.zeros(self.data.num_rows, bool)
        if column.type.value_type != pa.bool_() or (arrays.lengths_of(column) > 1).any():
            message = f"A condition must give one bool per row, got {type_name(column.type)}"
            raise self.error(message, lens, condition)
        rows = np.zeros(self.data.num_rows, bool)
        filled = arrays.offsets_of(column)
        has = (filled[1:] > filled[:-1]) & (column.is_valid().to_numpy(zero_copy_only=False))
        rows[has] = column.flatten().fill_null(False).to_numpy(zero_copy_only=False)
        return rows

    def error(self, message: str, lens: CompiledMutate | CompiledDerive, selected: Selected | None = None) -> LensError:
        """An error about this chunk."""
        return LensError(
            message,
            entity_path=self.chunk.entity_path,
            component=lens.component,
            selector=None if selected is None else selected.text,
            chunk_id=self.chunk.id,
        )

    def _results_on(self, component: str) -> SelectorResults:
        results = self._results.get(component)
        if results is None:
            results = SelectorResults(self.lenses.tables[component], self._values(component))
            self._results[component] = results
        return results

    def _values(self, component: str) -> pa.ListArray:
        if self.stored is not None:
            return self.stored.column(component)
        return next(c.values for c in self.data.components if c.descriptor.component == component)


def joined(errors: tuple[LensError, ...], prefix: str = "") -> LensError:
    """Join errors to one with the first error's place. Its message has all messages in one line, then all places."""
    first = errors[0]
    lines = [prefix + "; ".join(e.message for e in errors)]
    for error in errors:
        line = f"  in {error.chunk_id} of {error.entity_path}, component {error.component}"
        line += f", selector {error.selector}" if error.selector is not None else ""
        if line not in lines:
            lines.append(line)
    whole = LensError(
        "\n".join(lines),
        entity_path=first.entity_path,
        component=first.component,
        selector=first.selector,
        chunk_id=first.chunk_id,
        hint=first.hint,
    )
    whole.__cause__ = first.__cause__
    return whole
