"""Lenses made ready to be applied: checked once, entity paths parsed, selectors in tables that share prefixes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..engine.chunk import ComponentDescriptor, TimelineKind, parse_entity_path
from .lens import DeriveLens, Lens, MutateLens
from .lens_outputs import ConstantOutput, SpreadOutput
from .selector.syntax import Pipeline, pipeline_text
from .selector_table import SelectorTable


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
