"""Lenses as one step of a pipeline, and the chunks that they make from one chunk."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Literal, Protocol, cast, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..engine.chunk import (
    Chunk,
    ChunkData,
    ChunkKind,
    Component,
    ComponentDescriptor,
    DescriptorLike,
    Fate,
    Timeline,
    TimelineKind,
    alternatives,
    descriptor_of,
    is_property,
    sorted_by_time,
)
from ..engine.errors import LensError, SelectorError
from ..engine.stream import Operator
from . import arrays
from .arrays import type_name
from .lens import (
    ChunkWork,
    CompiledDerive,
    CompiledLenses,
    CompiledMutate,
    Lens,
    LensOutput,
    OutputMode,
    Rows,
    Selected,
    SpreadOutput,
    as_lenses,
    check_lenses,
    checked_mode,
    compile_lenses,
    joined,
)
from .selector import Selector, execute_per_row, missing_field, pipeline_of, pipeline_text

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Assignment:
    """The work on one chunk.

    ``consumed`` are the derive lenses' inputs that no mutate lens keeps; ``errors`` are for lenses that are left out
    because an earlier one writes the same column.
    """

    mutates: list[CompiledMutate] = field(default_factory=list)
    merges: list[CompiledDerive] = field(default_factory=list)
    derived: list[CompiledDerive] = field(default_factory=list)
    consumed: set[str] = field(default_factory=set)
    errors: list[LensError] = field(default_factory=list)


def assign(lenses: CompiledLenses, components: set[str], entity: str, chunk_id: str) -> Assignment:
    """The work on a chunk of ``entity`` that has ``components``."""
    out = Assignment()
    claimed: dict[tuple[str | None, str | None], set[str]] = {}
    mutated: set[str] = set()

    def collide(where: str, what: str, lens: CompiledMutate | CompiledDerive) -> None:
        message = f"Lens collision at entity `{where}`: {what} already claimed by a prior lens"
        out.errors.append(LensError(message, entity_path=entity, component=lens.component, chunk_id=chunk_id))

    for mutate in lenses.mutates:
        if mutate.component in components:
            if mutate.component in mutated:
                collide(entity, f"mutate target `{mutate.component}`", mutate)
            else:
                mutated.add(mutate.component)
                out.mutates.append(mutate)
    matching = [d for d in lenses.derives if d.component in components]
    for derive in sorted(matching, key=lambda d: d.entity is not None or d.child is not None):
        if derive.component not in mutated:
            out.consumed.add(derive.component)
        if derive.condition is not None:
            out.derived.append(derive)
            continue
        taken = claimed.setdefault((derive.entity, derive.child), set())
        twice = _first_twice([d.component for d, _ in derive.outputs], taken)
        if twice is not None:
            collide(derive.target(entity), f"derive output `{twice}`", derive)
            continue
        taken.update(d.component for d, _ in derive.outputs)
        (out.merges if derive.merges else out.derived).append(derive)
    return out


def _first_twice(names: list[str], taken: set[str]) -> str | None:
    seen = set(taken)
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def own_output(work: ChunkWork, assignment: Assignment, mode: OutputMode) -> LensOutput:
    """Return the chunk with its forwarded columns and the lenses' new columns on the same rows.

    It is the very same chunk if nothing changes. There is no chunk if no column is left.
    """
    forwarded = _forwarded(work.data, assignment, mode)
    left = _left_over(work, assignment) if mode == "forward_unmatched" and assignment.consumed else {}
    if left and not forwarded and not assignment.merges:
        return LensOutput(_only_rows(work.data, left))
    for name, rows in left.items():
        forwarded[name] = _masked(work.data, name, rows)
    if not assignment.mutates and not assignment.merges:
        if len(forwarded) == len(work.data.components) and not left:
            return LensOutput(work.chunk)
        if not forwarded:
            return LensOutput(None)
        return LensOutput(Chunk.from_data(work.data.with_components(tuple(forwarded.values()))))
    errors: list[LensError] = []
    _mutate(work, assignment, forwarded, errors)
    _merge(work, assignment, forwarded, errors)
    if not forwarded:
        return LensOutput(None, tuple(errors))
    data = work.data
    if all(m.keep_row_ids for m in assignment.mutates):
        data = data.with_components(tuple(forwarded.values()))
    else:
        ordered = tuple(sorted(forwarded.values(), key=lambda c: c.descriptor.sort_key))
        data = sorted_by_time(data.entity_path, data.num_rows, data.timelines, ordered)
    return LensOutput(Chunk.from_data(data), tuple(errors))


def stored_output(work: ChunkWork, assignment: Assignment, mode: OutputMode) -> LensOutput | None:
    """Return the output of :func:`own_output` without decoding the other columns, or None if they must be decoded.

    This halves the time for chunks of 1,000 scalars (``benchmarks/table.py``, row "RRD lens").
    """
    mutates = assignment.mutates
    if not mutates or assignment.merges or assignment.derived or assignment.errors:
        return None
    work.stored = stored = work.chunk.stored()
    if stored is None:
        return None
    names, present = {mutate.component for mutate in mutates}, set(stored.component_names)
    if not names <= present or (mode == "drop_unmatched" and names != present):
        return None
    values = {}
    for mutate in mutates:
        try:
            column = work.column(mutate, mutate.selected, f"component '{mutate.component}'")
        except LensError:  # it is raised again
            return None
        if column is None:
            return None
        values[mutate.component] = arrays.without_hidden(column)
    chunk = stored.with_columns(values, keep_row_ids=all(mutate.keep_row_ids for mutate in mutates))
    return None if chunk is None else LensOutput(chunk)


def _forwarded(data: ChunkData, assignment: Assignment, mode: OutputMode) -> dict[str, Component]:
    columns = {c.descriptor.component: c for c in data.components}
    if mode == "forward_all":
        return columns
    if mode == "forward_unmatched":
        return {name: c for name, c in columns.items() if name not in assignment.consumed}
    return {m.component: columns[m.component] for m in assignment.mutates}


def _left_over(work: ChunkWork, assignment: Assignment) -> dict[str, Rows]:
    """Return the columns that lenses consume only in some rows, each with a mask of the rows that no lens reads."""
    covered: dict[str, Rows | None] = {}
    for lens in assignment.derived + assignment.merges:
        if lens.component not in assignment.consumed or covered.get(lens.component, True) is None:
            continue
        try:
            rows = work.rows_of(lens)
        except LensError:  # the lens itself reports it
            rows = None
        before = covered.get(lens.component)
        covered[lens.component] = rows if rows is None or before is None else before | rows
    return {name: ~rows for name, rows in covered.items() if rows is not None and not rows.all()}


def _only_rows(data: ChunkData, left: dict[str, Rows]) -> Chunk:
    """The columns in ``left``, with the rows that at least one of them still needs."""
    needed = np.flatnonzero(np.logical_or.reduce(list(left.values())))
    columns = tuple(_masked(data, name, rows) for name, rows in left.items())
    return Chunk.from_data(data.with_components(columns).take(needed))


def _masked(data: ChunkData, name: str, rows: Rows) -> Component:
    """A column with nulls in all other rows."""
    column = next(c for c in data.components if c.descriptor.component == name)
    values = pc.if_else(pa.array(rows), column.values, pa.scalar(None, column.values.type))
    return Component(column.descriptor, values)


def _mutate(work: ChunkWork, assignment: Assignment, columns: dict[str, Component], errors: list[LensError]) -> None:
    for mutate in assignment.mutates:
        try:
            values = work.column(mutate, mutate.selected, f"component '{mutate.component}'")
        except LensError as error:
            errors.append(error)
            continue
        if values is None:
            del columns[mutate.component]
        else:
            columns[mutate.component] = Component(columns[mutate.component].descriptor, arrays.without_hidden(values))


def _merge(work: ChunkWork, assignment: Assignment, columns: dict[str, Component], errors: list[LensError]) -> None:
    for derive in assignment.merges:
        for descriptor, selected in derive.outputs:
            component = _component(work, derive, descriptor, selected, errors)
            if component is not None:
                columns[descriptor.component] = component


def _component(
    work: ChunkWork,
    lens: CompiledDerive,
    descriptor: ComponentDescriptor,
    selected: Selected,
    errors: list[LensError],
) -> Component | None:
    """Compute one output column, or None if the selector gives nothing; collect failures in ``errors``."""
    try:
        values = work.column(lens, selected, f"component '{descriptor}'")
    except LensError as error:
        errors.append(error)
        return None
    return None if values is None else Component(descriptor, arrays.without_hidden(values))


def _spread_components(spread: SpreadOutput, column: pa.ListArray) -> list[Component]:
    """The fields of the structs in ``column`` (one per row) as components, without fields that are null in all rows.

    Raises :class:`~chunkmill.engine.errors.SelectorError` if a row is not exactly one struct.
    """
    if not pa.types.is_struct(column.type.value_type) or not arrays.is_one_a_row(column):
        raise SelectorError(f"components '{spread.prefix}*' need one struct per row, got {type_name(column.type)}")
    structs = column.flatten()
    fields = zip(structs.type, structs.flatten(), strict=True)
    return [Component(spread.descriptor(f.name), _rows(v)) for f, v in fields if v.null_count < len(v)]


def _rows(values: pa.Array) -> pa.ListArray:
    """Return each row's instances: the elements of a list; any other value is one instance."""
    if pa.types.is_list(values.type):
        elements, offsets = arrays.grouped(values, hidden=False)
        return arrays.list_array(elements, offsets, arrays.validity_of(values))
    return arrays.list_array(values, np.arange(len(values) + 1, dtype=np.int32), arrays.validity_of(values))


def derived_output(work: ChunkWork, lens: CompiledDerive) -> LensOutput:
    """Return the chunk of one lens: rows in time order, with new ids. There is no chunk if nothing is selected."""
    try:
        part = work.part(lens)
    except LensError as error:
        return LensOutput(None, (error,))
    if part is None:
        return LensOutput(None)
    return (_Scattered if lens.scatter else _Derived)(part, lens).output()


def constant_output(work: ChunkWork, lens: CompiledDerive) -> LensOutput:
    """The static chunk with a lens's constant values."""
    columns = [(constant.descriptor, constant.column) for constant in lens.constants]
    return LensOutput(Chunk.build(lens.target(work.data.entity_path), {}, columns), constant=True)


class _Derived:
    """A derived chunk in the making, one row for each row of the input."""

    def __init__(self, work: ChunkWork, lens: CompiledDerive) -> None:
        self.work = work
        self.lens = lens
        self.entity = lens.target(work.data.entity_path)
        self.errors: list[LensError] = []

    def output(self) -> LensOutput:
        components = self.components()
        if not components:
            return LensOutput(None, tuple(self.errors or self.nothing()))
        rows = len(components[0].values)
        if rows == 0 and self.work.data.num_rows:
            return LensOutput(None, tuple(self.errors))
        lines = {t.name: t for t in self.kept_timelines()}
        for name, kind, selected in () if self.lens.static else self.lens.timelines:
            try:
                line = self.timeline(name, kind, selected, rows)
            except LensError as error:
                self.errors.append(error)
                continue
            if line is not None:
                lines[name] = line
        try:
            remarks = self.work.remarks(self.lens)
        except LensError as error:
            self.errors.append(error)
            remarks = ()
        return LensOutput(self.chunk(components, lines, rows), tuple(self.errors), remarks=remarks)

    def nothing(self) -> list[LensError]:
        """Return the error for a chunk without columns, or nothing if it would also have no times."""
        timeless = self.lens.static or not (self.work.data.timelines or self.lens.timelines)
        if not self.lens.outputs or self.lens.spreads or (timeless and not self.lens.scatter):
            return []
        error = self.work.error(f"No component outputs were produced for target entity `{self.entity}`", self.lens)
        error.selector = ", ".join(selected.text for _, selected in self.lens.outputs)
        return [error]

    def chunk(self, components: list[Component], lines: dict[str, Timeline], rows: int) -> Chunk:
        timelines = tuple(sorted(lines.values(), key=lambda t: t.name.encode()))
        columns = tuple(sorted(components, key=lambda c: c.descriptor.sort_key))
        return Chunk.from_data(sorted_by_time(self.entity, rows, timelines, columns))

    def components(self) -> list[Component]:
        made = [_component(self.work, self.lens, d, selected, self.errors) for d, selected in self.lens.outputs]
        out = [component for component in made if component is not None]
        for spread, selected in self.lens.spreads:
            try:
                column = self.work.column(self.lens, selected, f"components '{spread.prefix}*'")
                components = [] if column is None else _spread_components(spread, column)
                taken = {c.descriptor.component for c in out}
                out += [c for c in components if c.descriptor.component not in taken]
            except LensError as error:
                self.errors.append(error)
            except SelectorError as error:
                self.errors.append(self.work.error(error.reason, self.lens, selected))
        return out

    def kept_timelines(self) -> tuple[Timeline, ...]:
        return () if self.lens.static else self.work.data.timelines

    def timeline(self, name: str, kind: TimelineKind, selected: Selected, rows: int) -> Timeline | None:
        shared = None if self.lens.scatter else self.work.timeline(self.lens, name, kind, selected)
        if shared is not None and len(shared.times) == rows:
            return shared
        column = self.work.column(self.lens, selected, f"timeline '{name}'")
        if column is None:
            return None
        if column.type.value_type != pa.int64():
            message = (
                f"Invalid time column type for timeline '{name}': "
                f"expected List<Int64>, got {type_name(column.type.value_type)}"
            )
            raise self.work.error(message, self.lens, selected)
        times = self.times(name, column)
        if len(times) != rows:
            message = (
                "Chunk validation failed: Detected malformed Chunk: All timelines in a chunk must have the same number "
                f"of timestamps, matching the number of row IDs. Found {rows} row IDs but {len(times)} timestamps "
                f"for timeline '{name}'"
            )
            raise self.work.error(message, self.lens, selected)
        return Timeline(name, kind, times.view(kind.arrow_type))

    def times(self, name: str, column: pa.ListArray) -> pa.Array:
        times = column.flatten()
        if times.null_count:
            self.warn(name, f"{times.null_count:,} nulls became 0")
            times = pc.fill_null(times, 0)
        if len(times) == len(column) and not arrays.is_one_a_row(column):
            self.warn(name, "some rows have no time, others several")
        return times

    def warn(self, name: str, what: str) -> None:
        _log.warning("timeline '%s' of %s, from %s in %s: %s", name, self.entity, self.lens.component,
                     self.work.chunk.id, what)  # fmt: skip


class _Scattered(_Derived):
    """A derived chunk in the making, one row for each element of its first output."""

    def __init__(self, work: ChunkWork, lens: CompiledDerive) -> None:
        super().__init__(work, lens)
        self.source_rows: np.ndarray[tuple[int], np.dtype[np.int64]] | None = None

    def components(self) -> list[Component]:
        out: list[Component] = []
        for descriptor, selected in self.lens.outputs:
            try:
                values = self.work.column(self.lens, selected, f"component '{descriptor}'")
            except LensError as error:
                self.errors.append(error)
                if not out:
                    return []
                continue
            if values is None:
                continue
            exploded_values = arrays.exploded(values, keep_empty=self.lens.keep_empty)
            if not out:
                self.source_rows = arrays.source_rows(values, keep_empty=self.lens.keep_empty)
            elif len(exploded_values) != len(out[0].values):
                message = (
                    f"Output component '{descriptor}' for entity `{self.entity}` produced {len(exploded_values)} rows, "
                    f"expected {len(out[0].values)} — row counts must be consistent across all output components"
                )
                self.errors.append(self.work.error(message, self.lens, selected))
                continue
            out.append(Component(descriptor, arrays.without_hidden(exploded_values)))
        return out

    def kept_timelines(self) -> tuple[Timeline, ...]:
        rows = self.source_rows
        if rows is None or self.lens.static:
            return super().kept_timelines()
        return tuple(
            Timeline(t.name, t.kind, pa.array(t.ticks[rows]).view(t.kind.arrow_type)) for t in self.work.data.timelines
        )

    def times(self, name: str, column: pa.ListArray) -> pa.Array:  # noqa: ARG002 - nothing to warn of
        return column.flatten().drop_null()


OnError = Literal["raise", "skip", "quarantine"]
"""The ways to treat a chunk that a lens fails on: end the run, drop it, or hand it over and drop it."""

Quarantine = Callable[[Chunk, LensError], None]
"""Takes a chunk that failed, and its error."""


class ContentPredicate(Protocol):
    """A predicate that selects the entities that lenses apply to."""

    def matches(self, entity_path: str) -> bool:
        """Return whether the entity is selected."""
        ...


class LensSet(Operator):
    """Several lenses, applied to one chunk at a time.

    The output for a chunk is, in this order: its rows with the remaining and the new columns; then the separate chunks
    of lenses, those on the same entity first. An unmatched chunk is passed on unchanged or dropped, depending on
    ``output_mode``. Entities outside ``content`` are always passed on unchanged. Recording properties
    (``/__properties``) do not match any lens. A stored chunk is matched by its header. A column with only nulls does
    not match if the header lacks it.

    Selectors are compiled at the first chunk, once per process. Lenses on the same component evaluate common beginnings
    of their selectors only once. Can be pickled if the callables in its selectors can.

    Parameters
    ----------
    lenses
        One lens or any number.
    output_mode
        ``"drop_unmatched"``, ``"forward_unmatched"`` or ``"forward_all"``.
    content
        The entities that lenses apply to; None means all.
    on_error
        ``"raise"`` raises a :class:`LensError` (a ``RuntimeError`` that begins with ``Lenses error:``), ``"skip"``
        leaves the chunk out and logs it, and ``"quarantine"`` passes it to ``quarantine`` and continues.
    quarantine
        A function that is called with each failed chunk and its error, in the process that has the chunk.

    Raises
    ------
    ValueError
        A mode is unknown, or a lens has no output, or would overwrite its own input.
    TypeError
        An argument is not a lens, or has the wrong type.
    """

    has_fates = True

    __slots__ = ("_assignments", "_compiled", "content", "inputs", "lenses", "mode", "on_error", "quarantine")

    def __init__(
        self,
        lenses: Iterable[Lens] | Lens,
        output_mode: str = "drop_unmatched",
        *,
        content: ContentPredicate | None = None,
        on_error: str = "raise",
        quarantine: Quarantine | None = None,
    ) -> None:
        self.lenses = as_lenses(lenses)
        self.mode: OutputMode = checked_mode(output_mode)
        self.on_error = _on_error(on_error, quarantine)
        check_lenses(self.lenses)
        self.content = content
        self.quarantine = quarantine
        self.inputs = frozenset(lens.input_component for lens in self.lenses)
        self._compiled: CompiledLenses | None = None
        self._assignments: dict[frozenset[str], Assignment] = {}

    @property
    def compiled(self) -> CompiledLenses:
        """The compiled lenses."""
        if self._compiled is None:
            self._compiled = compile_lenses(self.lenses)
        return self._compiled

    def __call__(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield the chunks made of ``chunk``: all of them or, if a lens fails, none."""
        if self.content is not None and not self.content.matches(chunk.entity_path):
            yield chunk
            return
        try:
            chunks = self.apply(chunk, "Lenses error: ")
        except LensError as error:
            if self.on_error == "raise":
                raise
            if self.quarantine is not None:
                self.quarantine(chunk, error)
            else:
                _log.warning("left out %s: %s", chunk.id, error)
            return
        yield from chunks

    def apply(self, chunk: Chunk, prefix: str = "") -> list[Chunk]:
        """Return the output chunks of lenses for ``chunk``; ``content`` is ignored.

        Raises :class:`LensError` with ``prefix`` and the errors of the first failed chunk.
        """
        out = []
        for output in self.outputs(chunk):
            if output.errors:
                raise joined(output.errors, prefix)
            for count, text in output.remarks:
                _log.warning("%s, %s: %d rows %s", chunk.entity_path, chunk.id, count, text)
            if output.chunk is not None:
                out.append(output.chunk)
        return out

    def outputs(self, chunk: Chunk) -> Iterator[LensOutput]:
        """Yield each output chunk with its errors, in order. Collisions of lenses are reported with the first chunk."""
        components = self._matched(chunk)
        if not components:
            if self.mode != "drop_unmatched":
                yield LensOutput(chunk)
            return
        work = ChunkWork(chunk, self.compiled)
        assignment = self._assignment(components, chunk)
        own = stored_output(work, assignment, self.mode) or own_output(work, assignment, self.mode)
        yield LensOutput(own.chunk, (*assignment.errors, *own.errors))
        made = list(assignment.merges)
        for lens in assignment.derived:
            output = derived_output(work, lens)
            yield output
            if output.chunk is not None:
                made.append(lens)
        for lens in made:
            if lens.constants:
                yield constant_output(work, lens)

    def _assignment(self, components: set[str], chunk: Chunk) -> Assignment:
        """The work on a chunk. Chunks with the same components share it, unless it has errors."""
        key = frozenset(components)
        assignment = self._assignments.get(key)
        if assignment is None:
            assignment = assign(self.compiled, components, chunk.entity_path, chunk.id)
            if not assignment.errors:
                self._assignments[key] = assignment
        return assignment

    def _matched(self, chunk: Chunk) -> set[str]:
        """The inputs of lenses that the chunk has."""
        if is_property(chunk.entity_path):
            return set()
        is_decoded = chunk.payload is None and chunk.made is None
        columns = chunk.data.components if is_decoded else chunk.header.components
        return {c.descriptor.component for c in columns} & self.inputs

    def fate(self, kind: ChunkKind) -> Fate:
        """Return the outcome for a chunk, if its header is sufficient."""
        if self.content is not None and not self.content.matches(kind.entity_path):
            return Fate.PASSED_ON
        if not is_property(kind.entity_path) and (
            kind.components is None or not kind.components.isdisjoint(self.inputs)
        ):
            return Fate.LOOKED_INTO
        return Fate.LEFT_OUT if self.mode == "drop_unmatched" else Fate.PASSED_ON

    def describe(self) -> str:
        """Describe the lenses in one line for the plan: mode, entities, and each lens with its input and outputs."""
        shown = [f"output_mode={self.mode!r}"]
        exprs = getattr(self.content, "to_exprs", None)
        if self.content is not None:
            shown.append(f"content={' '.join(exprs()) if exprs is not None else self.content!r}")
        if self.on_error != "raise":
            shown.append(f"on_error={self.on_error!r}")
        return f"lenses({'; '.join([lens.describe() for lens in self.lenses])}; {', '.join(shown)})"

    def __reduce__(self) -> tuple[Any, ...]:
        made = partial(LensSet, content=self.content, on_error=self.on_error, quarantine=self.quarantine)
        return made, (self.lenses, self.mode)


def _on_error(text: str, quarantine: Quarantine | None) -> OnError:
    if text not in get_args(OnError):
        raise ValueError(f"Unknown on_error '{text}', expected 'raise', 'skip', or 'quarantine'")
    if (text == "quarantine") != (quarantine is not None):
        raise ValueError(
            "on_error='quarantine' and `quarantine`, the function for failed chunks, must be given together"
        )
    return cast("OnError", text)


def apply_lenses(chunk: Chunk, lenses: Iterable[Lens] | Lens, output_mode: str = "forward_unmatched") -> list[Chunk]:
    """Return the lenses' output chunks, with the columns that no lens consumed; see :class:`LensSet`.

    If no lens matches, the result is the chunk itself.

    Raises
    ------
    LensError
        (a ``ValueError``) A selector does not fit the data, or two lenses write the same column.
    ValueError
        A lens has no output, or would overwrite its own input.
    """
    return _lens_set(as_lenses(lenses), output_mode).apply(chunk)


@lru_cache(maxsize=64)
def _lens_set(lenses: tuple[Lens, ...], output_mode: str) -> LensSet:
    return LensSet(lenses, output_mode)


def apply_selector(chunk: Chunk, source: DescriptorLike | str, selector: Selector | str) -> Chunk:
    """Return ``chunk`` with ``selector`` applied to the component ``source`` (a name or descriptor).

    The new chunk has new row ids. Rows keep their order, and the column keeps its descriptor. Other columns are
    unchanged.

    Raises :class:`~chunkmill.engine.errors.LensError` (a ``ValueError``) if the component is missing, or the selector
    fails or gives nothing.
    """
    name = descriptor_of(source, "source").component
    pipeline = pipeline_of(selector)
    entity, text = chunk.entity_path, pipeline_text(pipeline)

    def failed(message: str, hint: str | None = None) -> LensError:
        place = LensError(message, entity_path=entity, component=name, selector=text, chunk_id=chunk.id, hint=hint)
        return joined((place,))

    stored = chunk.stored()
    if stored is not None and name in stored.component_names:
        old = stored.column(name)
    else:
        old = next((c.values for c in chunk.data.components if c.descriptor.component == name), None)
        stored = None
    if old is None:
        raise failed(f"Component '{name}' not found in chunk for entity `{entity}`")
    try:
        values = execute_per_row(pipeline, old)
    except SelectorError as error:
        raise failed(
            f"Failed to apply operations to component '{name}' (entity: `{entity}`, input: `{name}`): {error.reason}"
        ) from error
    if values is None:
        missing = missing_field(pipeline, old)
        hint = None if missing is None else f"There is no field {missing[0]!r}. {alternatives(*missing)}"
        raise failed(f"No component outputs were produced for target entity `{entity}`", hint)
    made = None if stored is None else stored.with_columns({name: values}, keep_row_ids=False)
    if made is not None:
        return made
    data = chunk.data
    new = tuple(
        Component(c.descriptor, values if c.descriptor.component == name else c.values) for c in data.components
    )
    return Chunk.from_data(ChunkData.fresh(data.entity_path, data.num_rows, data.timelines, new))
