"""One chunk under lenses: its columns, the results of selectors on them, and errors that say where."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..engine.chunk import Chunk, ChunkData, Timeline, TimelineKind
from ..engine.errors import LensError, SelectorError
from . import scatter
from .compiled import CompiledDerive, CompiledLenses, CompiledMutate, Selected
from .selector import lists
from .selector.type_names import type_name
from .selector_table import SelectorResults

Rows = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LensOutput:
    """A chunk that came of lenses, if any, and what went wrong on the way to it.

    ``constant``: it holds what a lens says of all rows, and is the same for every chunk.
    """

    chunk: Chunk | None
    errors: tuple[LensError, ...] = ()
    constant: bool = False


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
        """What a selector of ``lens`` gives; None for nothing. Raises :class:`LensError` about ``what``."""
        try:
            found = self._results_on(lens.component).column(selected.slot)
            if found is None and selected.required:
                raise SelectorError(f"`{selected.text}` gives nothing: there is no such field")
            return found if found is None or selected.nullable else lists.without_nulls(found)
        except SelectorError as error:
            message = (
                f"Failed to apply operations to {what} "
                f"(entity: `{self.data.entity_path}`, input: `{lens.component}`): {error.reason}"
            )
            raise self.error(message, lens, selected) from error

    def timeline(self, lens: CompiledDerive, name: str, kind: TimelineKind, selected: Selected) -> Timeline | None:
        """The timeline of a selector that gives one int64 a row, the same object for all lenses; else None."""
        key = (lens.component, selected.slot, name, kind)
        if key not in self._timelines:
            times = self._one_each(lens, selected)
            if times is None or times.type != pa.int64():
                return None
            self._timelines[key] = Timeline(name, kind, times.view(kind.arrow_type))
        return self._timelines[key]

    def _one_each(self, lens: CompiledDerive, selected: Selected) -> pa.Array | None:
        """What a selector gives where that is one value a row; None where it is not, or fails."""
        try:
            return self._results_on(lens.component).one_each(selected.slot)
        except SelectorError:
            return None

    def part(self, lens: CompiledDerive) -> ChunkWork | None:
        """The rows that the lens is for, as work of their own; None where there are none.

        Raises :class:`LensError` where its condition fails, or is not one bool a row.
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
        """Which rows the lens is for, one bool a row; None: all. Raises as :meth:`part` does."""
        if lens.condition is None:
            return None
        key = (lens.component, lens.condition.slot)
        if key not in self._rows:
            self._rows[key] = self._condition(lens, lens.condition)
        return self._rows[key]

    def _condition(self, lens: CompiledDerive, condition: Selected) -> Rows:
        found = self._one_each(lens, condition)
        if found is not None and found.type == pa.bool_():
            each: Rows = found.to_numpy(zero_copy_only=False)
            return each
        column = self.column(lens, condition, "condition")
        if column is None:
            return np.zeros(self.data.num_rows, bool)
        if column.type.value_type != pa.bool_() or not scatter.is_at_most_one_each(column):
            message = f"A condition must give one bool a row, got {type_name(column.type)}"
            raise self.error(message, lens, condition)
        rows = np.zeros(self.data.num_rows, bool)
        filled = lists.offsets_of(column)
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
