"""Lenses made ready to be applied: checked once, entity paths parsed, selectors in tables that share prefixes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from ..engine.chunk import ComponentDescriptor, TimelineKind, parse_entity_path
from .lens import DeriveLens, Lens, MutateLens
from .lens_outputs import ConstantOutput, SpreadOutput
from .selector.evaluation import Groups, Rows, Tracking, step
from .selector.syntax import Node, Pipeline, holds_code, pipeline_text


class SelectorTable:
    """A tree of stages: each slot is one stage behind another slot; slot 0 is the input itself."""

    __slots__ = ("_slots", "stages", "whole")

    def __init__(self) -> None:
        self.stages: list[tuple[int, Node | None]] = [(0, None)]
        self.whole = False
        self._slots: dict[tuple[int, Node], int] = {}

    def add(self, pipeline: Pipeline) -> int:
        """The slot at which the selector's result will be."""
        self.whole = self.whole or holds_code(pipeline)
        slot = 0
        for node in pipeline.nodes:
            key = (slot, node)
            if key not in self._slots:
                self._slots[key] = len(self.stages)
                self.stages.append(key)
            slot = self._slots[key]
        return slot


class SelectorResults:
    """The results of a table's selectors on one column, computed when asked for, each stage once."""

    __slots__ = ("_columns", "_groups", "_rows", "_table")

    def __init__(self, table: SelectorTable, column: pa.ListArray) -> None:
        self._table = table
        self._rows = Rows(column, whole=table.whole)
        self._groups: dict[int, Groups | None] = {0: self._rows.start()}
        self._columns: dict[int, pa.ListArray | None] = {}

    def column(self, slot: int) -> pa.ListArray | None:
        """The selector's list array, one list a row of the input; None where it gives nothing.

        Raises :class:`~chunkmill.engine.errors.SelectorError`.
        """
        if slot not in self._columns:
            found = self._at(slot)
            self._columns[slot] = None if found is None else self._rows.regrouped(found)
        return self._columns[slot]

    def one_each(self, slot: int) -> pa.Array | None:
        """The selector's values where each row of the input has just one, and none is null; else None.

        Raises :class:`~chunkmill.engine.errors.SelectorError`.
        """
        found = self._at(slot)
        if found is None or found.offsets is not None or found.valid is not None or not self._rows.all_there:
            return None
        return None if found.values.null_count else found.values

    def _at(self, slot: int) -> Groups | None:
        path = []
        while slot not in self._groups:
            path.append(slot)
            slot = self._table.stages[slot][0]
        found = self._groups[slot]
        for slot in reversed(path):
            node = self._table.stages[slot][1]
            assert node is not None
            found = None if found is None else step(node, found, Tracking(True, self._rows))
            self._groups[slot] = found
        return found


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

    @property
    def merges(self) -> bool:
        """Whether the outputs go into the input's own chunk."""
        elsewhere = self.entity is not None or self.child is not None
        other_rows = self.scatter or self.static or self.condition is not None
        return not (elsewhere or other_rows or self.timelines or self.spreads)

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
    """The lenses of an argument: one, or any number. Raises ``TypeError`` for what is none."""
    if isinstance(lenses, (DeriveLens, MutateLens)):
        return (lenses,)
    found = tuple(lenses)
    for lens in found:
        if not isinstance(lens, (DeriveLens, MutateLens)):
            raise TypeError(f"a DeriveLens or MutateLens was expected, got a '{type(lens).__name__}' object")
    return found


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

    def selected(pipeline: Pipeline, required: bool = False, nullable: bool = True) -> Selected:
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
    )
