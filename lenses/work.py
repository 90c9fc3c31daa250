"""One chunk under lenses: its columns, the results of selectors on them, lists as rows, and errors that say where."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..engine.chunk import Chunk, ChunkData, Timeline, TimelineKind
from ..engine.errors import LensError, SelectorError
from .compiled import CompiledDerive, CompiledLenses, CompiledMutate, Selected, SelectorResults
from .selector import lists
from .selector.type_names import type_name


def is_one_each(column: pa.ListArray) -> bool:
    """Whether every row is a list of exactly one element."""
    offsets = lists.offsets_of(column)
    return column.null_count == 0 and bool((offsets[1:] - offsets[:-1] == 1).all())


def is_at_most_one_each(column: pa.ListArray) -> bool:
    """Whether no row has several elements."""
    return bool((_lengths(column) <= 1).all())


def source_rows(column: pa.ListArray, *, keep_empty: bool = True) -> npt.NDArray[np.int64] | None:
    """The input row of each output row; None where every row gives one."""
    lengths = _lengths(column)
    if lengths.max(initial=0) <= 1 and (keep_empty or lengths.min(initial=1) == 1):
        return None
    if not keep_empty:
        return np.repeat(np.arange(len(column), dtype=np.int64), lengths)
    return np.repeat(np.arange(len(column), dtype=np.int64), np.maximum(lengths, 1))


def exploded(column: pa.ListArray, *, keep_empty: bool = True) -> pa.ListArray:
    """One list of one element for each element, null for a null one.

    Null and empty rows stay one row each, or none without ``keep_empty``.
    """
    elements, offsets = lists.grouped(column, hidden=False)
    present = lists.validity_of(elements)
    lengths = offsets[1:] - offsets[:-1]
    if lengths.min(initial=1) > 0 or not keep_empty:
        return lists.list_array(elements, np.arange(len(elements) + 1, dtype=np.int32), present)
    return _with_gaps(elements, lengths, present, lists.validity_of(column))


def _with_gaps(
    elements: pa.Array,
    lengths: npt.NDArray[np.integer],
    present: lists.Validity | None,
    valid: lists.Validity | None,
) -> pa.ListArray:
    """:func:`exploded` where some rows have no element."""
    counts = np.maximum(lengths, 1)
    ends = np.cumsum(counts)
    gaps = (ends - counts)[lengths == 0]
    takes = np.ones(int(ends[-1]), dtype=np.int32)
    takes[gaps] = 0
    offsets = np.zeros(len(takes) + 1, dtype=np.int32)
    np.cumsum(takes, out=offsets[1:])
    shown = np.ones(len(takes), dtype=bool)
    if present is not None:
        shown[takes == 1] = present
    if valid is not None:
        shown[gaps] = valid[lengths == 0]
    return lists.list_array(elements, offsets, shown)


def _lengths(column: pa.ListArray) -> npt.NDArray[np.int32]:
    offsets = lists.offsets_of(column)
    lengths = offsets[1:] - offsets[:-1]
    valid = lists.validity_of(column)
    return lengths if valid is None else lengths * valid


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
        """Return what a selector of ``lens`` gives; None for nothing. Raises :class:`LensError` about ``what``."""
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
        """Return what a selector gives where that is one value a row; None where it is not, or fails."""
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
        """Return the rows that the lens is for, one bool a row; None: all. Raises as :meth:`part` does."""
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
        if column.type.value_type != pa.bool_() or not is_at_most_one_each(column):
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
