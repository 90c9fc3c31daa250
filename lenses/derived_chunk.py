"""Chunks of their own that derive lenses make: rows as in the input, or one row an element."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..engine.chunk import Chunk, Component, Timeline, TimelineKind, sorted_by_time
from ..engine.errors import LensError, SelectorError
from .compiled import CompiledDerive, Selected
from .lens_outputs import SpreadOutput
from .selector import lists
from .selector.type_names import type_name
from .work import ChunkWork, LensOutput, exploded, is_one_each, source_rows


def spread_components(spread: SpreadOutput, column: pa.ListArray) -> list[Component]:
    """The fields of the structs in ``column`` (one a row) as components, those that hold anything.

    Raises :class:`~chunkmill.engine.errors.SelectorError` where a row is not exactly one struct.
    """
    if not pa.types.is_struct(column.type.value_type) or not is_one_each(column):
        raise SelectorError(f"components '{spread.prefix}*' need one struct a row, got {type_name(column.type)}")
    structs = column.flatten()
    fields = zip(structs.type, structs.flatten(), strict=True)
    return [Component(spread.descriptor(f.name), _rows(v)) for f, v in fields if v.null_count < len(v)]


def _rows(values: pa.Array) -> pa.ListArray:
    """A row's instances: the elements of a list, or the one value that is none."""
    if pa.types.is_list(values.type):
        elements, offsets = lists.grouped(values, hidden=False)
        return lists.list_array(elements, offsets, lists.validity_of(values))
    return lists.list_array(values, np.arange(len(values) + 1, dtype=np.int32), lists.validity_of(values))


_log = logging.getLogger(__name__)


def derived_output(work: ChunkWork, lens: CompiledDerive) -> LensOutput:
    """The chunk of one lens, its rows in the order of their times, under new ids; nothing where nothing is selected."""
    try:
        part = work.part(lens)
    except LensError as error:
        return LensOutput(None, (error,))
    if part is None:
        return LensOutput(None)
    return (_Scattered if lens.scatter else _Derived)(part, lens).output()


def constant_output(work: ChunkWork, lens: CompiledDerive) -> LensOutput:
    """The static chunk of what is the same for all rows of a lens."""
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
                found = self.timeline(name, kind, selected, rows)
            except LensError as error:
                self.errors.append(error)
                continue
            if found is not None:
                lines[name] = found
        return LensOutput(self.chunk(components, lines, rows), tuple(self.errors))

    def nothing(self) -> list[LensError]:
        """The error for a chunk that no selector gave a column to; none where it would have had no times either."""
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
        out = []
        for descriptor, selected in self.lens.outputs:
            try:
                values = self.work.column(self.lens, selected, f"component '{descriptor}'")
            except LensError as error:
                self.errors.append(error)
                continue
            if values is not None:
                out.append(Component(descriptor, lists.without_hidden(values)))
        for spread, selected in self.lens.spreads:
            try:
                column = self.work.column(self.lens, selected, f"components '{spread.prefix}*'")
                found = [] if column is None else spread_components(spread, column)
                taken = {c.descriptor.component for c in out}
                out += [c for c in found if c.descriptor.component not in taken]
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
        if len(times) == len(column) and not is_one_each(column):
            self.warn(name, "rows have none or several times, so times and rows do not belong together")
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
            exploded_values = exploded(values, keep_empty=self.lens.keep_empty)
            if not out:
                self.source_rows = source_rows(values, keep_empty=self.lens.keep_empty)
            elif len(exploded_values) != len(out[0].values):
                message = (
                    f"Output component '{descriptor}' for entity `{self.entity}` produced {len(exploded_values)} rows, "
                    f"expected {len(out[0].values)} — row counts must be consistent across all output components"
                )
                self.errors.append(self.work.error(message, self.lens, selected))
                continue
            out.append(Component(descriptor, lists.without_hidden(exploded_values)))
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
