"""Lenses at work: compiled once, with selectors in tables that share prefixes, and their results on one chunk.

Errors say where: the chunk, its entity, the component and the selector.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..engine.chunk import Chunk, ChunkData, ComponentDescriptor, Timeline, TimelineKind, parse_entity_path
from ..engine.errors import LensError, SelectorError
from . import arrays
from .arrays import type_name
from .lens import ConstantOutput, DeriveLens, Lens, MutateLens, SpreadOutput
from .selector import SelectorPipeline, SelectorResults, SelectorTable, pipeline_text


@dataclass(frozen=True, slots=True)
class Selected:
    """A selector's place in the table of its input, and its text.

    ``required``: giving nothing is an error. ``nullable``: whether values may be null, by the column's type.
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
    """A derive lens; ``entity`` None: the input's own, or ``child`` below it."""

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
    """Ready to be applied. Raises ``ValueError`` as :func:`check_lenses` does."""
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
    """A chunk made by lenses, if any, and what went wrong on the way to it.

    ``constant``: it holds what a lens says of all rows, and is the same for every chunk. ``remarks``: numbers of rows
    and what a lens reports about them.
    """

    chunk: Chunk | None
    errors: tuple[LensError, ...] = ()
    constant: bool = False
    remarks: tuple[tuple[int, str], ...] = ()


@dataclass(slots=True)
class ChunkWork:
    """A chunk, and what selectors gave on its columns so far."""

    chunk: Chunk
    data: ChunkData
    lenses: CompiledLenses
    _results: dict[str, SelectorResults] = field(default_factory=dict)
    _rows: dict[tuple[str, int], Rows] = field(default_factory=dict)
    _parts: dict[tuple[str, int], ChunkWork] = field(default_factory=dict)
    _timelines: dict[tuple[str, int, str, TimelineKind], Timeline] = field(default_factory=dict)

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
                f"(entity: `{self.data.entity_path}`, input: `{lens.component}`): {error.reason}"
            )
            raise self.error(message, lens, selected) from error

    def timeline(self, lens: CompiledDerive, name: str, kind: TimelineKind, selected: Selected) -> Timeline | None:
        """Return the timeline of a selector, the same object for all lenses, or None unless it has one int64 a row."""
        # Without lists around the times, 15 % less on IMUs in chunks of 1,000 rows; benchmarks/bench_convert.py.
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
        """Return the rows of the lens as work of their own, or None if it is for no row.

        Raises :class:`LensError` if its condition fails, or is not one bool a row.
        """
        rows = self.rows_of(lens)
        if rows is None or rows.all():
            return self
        if lens.condition is None or not rows.any():
            return None
        key = (lens.component, lens.condition.slot)
        if key not in self._parts:
            self._parts[key] = ChunkWork(self.chunk, self.data.take(np.flatnonzero(rows)), self.lenses)
        return self._parts[key]

    def rows_of(self, lens: CompiledDerive) -> Rows | None:
        """Return the rows that the lens is for, one bool a row; None: all. Raises as :meth:`part` does."""
        if lens.condition is None:
            return None
        key = (lens.component, lens.condition.slot)
        if key not in self._rows:
            self._rows[key] = self._condition(lens, lens.condition)
        return self._rows[key]

    def remarks(self, lens: CompiledDerive) -> tuple[tuple[int, str], ...]:
        """Return the numbers of rows that a lens has remarks about, with these. Raises as :meth:`part` does."""
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
            message = f"A condition must give one bool a row, got {type_name(column.type)}"
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
            entity_path=self.data.entity_path,
            component=lens.component,
            selector=None if selected is None else selected.text,
            chunk_id=self.chunk.id,
        )

    def _results_on(self, component: str) -> SelectorResults:
        results = self._results.get(component)
        if results is None:
            values = next(c.values for c in self.data.components if c.descriptor.component == component)
            results = SelectorResults(self.lenses.tables[component], values)
            self._results[component] = results
        return results


def joined(errors: tuple[LensError, ...], prefix: str = "") -> LensError:
    """One error for several: their messages in one line, below it where each was, the first one's place."""
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
    )
    whole.__cause__ = first.__cause__
    return whole
