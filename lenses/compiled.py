"""Lenses made ready to be applied: checked once, entity paths parsed, selectors in tables that share prefixes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..engine.chunk import ComponentDescriptor, TimelineKind, parse_entity_path
from .lens import DeriveLens, Lens, MutateLens
from .selector.syntax import pipeline_text
from .selector_table import SelectorTable


@dataclass(frozen=True, slots=True)
class Selected:
    """A selector's place in the table of its input, and its text."""

    slot: int
    text: str


@dataclass(frozen=True, slots=True)
class CompiledMutate:
    """A mutate lens."""

    component: str
    selected: Selected
    keep_row_ids: bool


@dataclass(frozen=True, slots=True)
class CompiledDerive:
    """A derive lens; ``entity`` None: the input's own."""

    component: str
    entity: str | None
    scatter: bool
    outputs: tuple[tuple[ComponentDescriptor, Selected], ...]
    timelines: tuple[tuple[str, TimelineKind, Selected], ...]
    series: tuple[str, ...] | None

    @property
    def merges(self) -> bool:
        """Whether the outputs go into the input's own chunk."""
        return self.entity is None and not self.scatter and not self.timelines


@dataclass(frozen=True, slots=True)
class CompiledLenses:
    """All lenses of a set, by kind, in the order given."""

    mutates: tuple[CompiledMutate, ...]
    derives: tuple[CompiledDerive, ...]
    tables: dict[str, SelectorTable]


def as_lenses(lenses: Iterable[Lens] | Lens) -> tuple[Lens, ...]:
    """The lenses of an argument: one, or any number. Raises ``AttributeError`` for what is none."""
    if isinstance(lenses, (DeriveLens, MutateLens)):
        return (lenses,)
    found = tuple(lenses)
    for lens in found:
        if not isinstance(lens, (DeriveLens, MutateLens)):
            raise AttributeError(f"a DeriveLens or MutateLens was expected, got a '{type(lens).__name__}' object")
    return found


def check_lenses(lenses: tuple[Lens, ...]) -> None:
    """Raise ``ValueError`` for a lens that cannot be applied to any chunk."""
    for lens in lenses:
        if not isinstance(lens, DeriveLens):
            continue
        name = lens.input_component
        if not lens.outputs:
            raise ValueError(f"Lens for input component `{name}` is missing output components")
        if lens.output_entity is None and any(o.descriptor.component == name for o in lens.outputs):
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
    names = [name for series in lens.series for name in series.names]
    return CompiledDerive(
        lens.input_component,
        None if lens.output_entity is None else parse_entity_path(lens.output_entity),
        lens.scatter,
        tuple((o.descriptor, Selected(table.add(o.pipeline), pipeline_text(o.pipeline))) for o in lens.outputs),
        tuple((t.name, t.kind, Selected(table.add(t.pipeline), pipeline_text(t.pipeline))) for t in lens.timelines),
        tuple(names) or None,
    )
