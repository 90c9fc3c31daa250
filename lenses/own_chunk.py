"""The chunk on the input's own entity: forwarded columns, columns changed in place, columns merged in."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..engine.chunk import Chunk, ChunkData, Component, sorted_by_time
from ..engine.errors import LensError
from .compiled import CompiledDerive, CompiledLenses, CompiledMutate
from .lens_outputs import OutputMode
from .selector import lists
from .work import ChunkWork, LensOutput, Rows


@dataclass(slots=True)
class Assignment:
    """The work on one chunk.

    ``consumed`` are the inputs of derive lenses that no mutate lens keeps; ``errors`` the lenses left out because an
    earlier one writes the same column.
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
    """The chunk with what is forwarded and what lenses make beside it, on the same rows.

    The very same chunk where nothing changes; nothing where no column is left.
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


def with_new_row_ids(data: ChunkData) -> ChunkData:
    """The same rows in the same order, under a fresh chunk id and row ids that follow from it."""
    return ChunkData.fresh(data.entity_path, data.num_rows, data.timelines, data.components)


def _forwarded(data: ChunkData, assignment: Assignment, mode: OutputMode) -> dict[str, Component]:
    columns = {c.descriptor.component: c for c in data.components}
    if mode == "forward_all":
        return columns
    if mode == "forward_unmatched":
        return {name: c for name, c in columns.items() if name not in assignment.consumed}
    return {m.component: columns[m.component] for m in assignment.mutates}


def _left_over(work: ChunkWork, assignment: Assignment) -> dict[str, Rows]:
    """The columns that lenses consume for some of their rows only, with the rows that no lens is for."""
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
    """The columns with the rows that at least one of them still needs."""
    needed = np.flatnonzero(np.logical_or.reduce(list(left.values())))
    columns = tuple(_masked(data, name, rows) for name, rows in left.items())
    return Chunk.from_data(data.with_components(columns).take(needed))


def _masked(data: ChunkData, name: str, rows: Rows) -> Component:
    """A column with nulls in all other rows."""
    column = next(c for c in data.components if c.descriptor.component == name)
    kept = pc.if_else(pa.array(rows), column.values, pa.scalar(None, column.values.type))
    return Component(column.descriptor, kept)


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
            columns[mutate.component] = Component(columns[mutate.component].descriptor, lists.without_hidden(values))


def _merge(work: ChunkWork, assignment: Assignment, columns: dict[str, Component], errors: list[LensError]) -> None:
    for derive in assignment.merges:
        for descriptor, selected in derive.outputs:
            try:
                values = work.column(derive, selected, f"component '{descriptor}'")
            except LensError as error:
                errors.append(error)
                continue
            if values is not None:
                columns[descriptor.component] = Component(descriptor, lists.without_hidden(values))
