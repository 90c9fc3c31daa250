"""Chunks beside what a footer or a manifest says of them, which decides what is read of them and what is not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import Chunk, ChunkData, ChunkHeader, ComponentDescriptor, TimelineKind
from ..errors import ReadError
from .chunk_table import ChunkTable

_HINT = "Its footer was made wrong: write the file anew by what made it, or from RrdReader(path, recover=True)."


def difference(there: ChunkHeader, told: ChunkHeader) -> str | None:
    """The fact of a chunk that is told otherwise than it is, if any. A header without components tells of none."""
    for what in ("chunk_id", "entity_path", "num_rows", "is_static", "timelines"):
        is_so, is_told = getattr(there, what), getattr(told, what)
        if is_so != is_told:
            return f"the {what} of a chunk is {_text(is_so)}; it is told to be {_text(is_told)}"
    if not told.components:
        return None
    components = {c.descriptor: c for c in there.components}
    for component in told.components:
        found = components.pop(component.descriptor, None)
        name = component.descriptor.component
        if found is None or found.ranges != component.ranges:
            return f"component {name} of a chunk is not there, or not at the times told"
        if found.datatype != component.datatype:
            return f"component {name} of a chunk is of type {found.datatype}; it is told to be {component.datatype}"
        if component.is_empty and not found.is_empty:
            return f"component {name} of a chunk has values; it is told to have none"
    return None


def _text(fact: Any) -> str:
    if isinstance(fact, bytes):
        return fact.hex()
    if isinstance(fact, tuple):
        return ", ".join(f"{line.name} from {line.start} to {line.end}" for line in fact) or "none"
    return str(fact)


def untold(there: ChunkHeader, told: ChunkHeader) -> str | None:
    """The component of a chunk that is not told of, though others are; None where there is none but of nulls."""
    names = {c.descriptor for c in told.components}
    for component in there.components if names else ():
        if component.descriptor not in names and not _is_null(component.ranges, component.is_empty):
            return f"a chunk has component {component.descriptor.component}, which is not told of"
    return None


def difference_of(data: ChunkData, told: ChunkHeader) -> str | None:
    """The fact of a chunk that is told otherwise than it is, or not told though others are, if any."""
    there = Chunk.from_data(data).header
    return difference(there, told) or untold(there, told)


def _is_null(ranges: Sequence[object], is_empty: bool | None) -> bool:
    return all(getattr(some, "num_rows", 0) == 0 for some in ranges) if ranges else bool(is_empty)


def lying_footer(what: str, path: str, offset: int) -> ReadError:
    """The error for a chunk of which something else is told."""
    return ReadError(what, path=path, offset=offset, hint=_HINT)


class _Fact(NamedTuple):
    """A chunk as it is told of: its timelines with first and last time, its components with their types."""

    entity_path: str
    num_rows: int
    lines: list[tuple[tuple[str, TimelineKind], int, int]]
    components: list[tuple[ComponentDescriptor, pa.DataType]]


class ToldChunks:
    """The chunks of a table as they are told of."""

    def __init__(self, table: ChunkTable) -> None:
        self._table = table

    def difference(self, row: int, data: ChunkData) -> str | None:
        """The fact of the chunk in a row that is told otherwise than it is; None where there is none."""
        if self._is_as_told(row, data):
            return None
        (told,) = self._table.slice(row, row + 1).headers()
        return difference_of(data, told)

    def _is_as_told(self, row: int, data: ChunkData) -> bool:
        """Whether a chunk without nulls is surely as it is told, which costs a third of comparing all."""
        fact = self._fact(row)
        if fact is None or fact.num_rows != data.num_rows or fact.entity_path != data.entity_path:
            return False
        if len(fact.lines) != len(data.timelines) or len(fact.components) != len(data.components):
            return False
        for line, told in zip(data.timelines, fact.lines, strict=True):
            ticks = line.ticks
            start, end = (ticks[0], ticks[-1]) if line.is_sorted else (ticks.min(), ticks.max())
            if (line.name, line.kind) != told[0] or start != told[1] or end != told[2]:
                return False
        for component, (descriptor, datatype) in zip(data.components, fact.components, strict=True):
            values = component.values
            if values.null_count or component.descriptor != descriptor or values.type != datatype:
                return False
        return True

    def _fact(self, row: int) -> _Fact | None:
        """The fact of a row all components of which are told to have a value in every row; None for another."""
        if not self._is_whole[row]:
            return None
        table = self._table
        lines, parts = table.timelines, table.components
        (codes, paths), (sets, types) = table.entity_codes, table.type_sets
        on, of = slice(*lines.ends[row : row + 2].tolist()), slice(*parts.ends[row : row + 2].tolist())
        keys = [lines.keys[code] for code in lines.codes[on].tolist()]
        return _Fact(
            paths[codes[row]],
            int(table.num_rows[row]),
            list(zip(keys, lines.start[on].tolist(), lines.end[on].tolist(), strict=True)),
            [
                (parts.descriptors[code], datatype)
                for code, datatype in zip(parts.codes[of].tolist(), types[sets[row]], strict=True)
            ],
        )

    @cached_property
    def _is_whole(self) -> npt.NDArray[np.bool_]:
        """The rows whose components are all told to have a value in every row, at the times of the chunk."""
        lines, parts = self._table.timelines, self._table.components
        rows = np.asarray(self._table.num_rows, np.int64)
        counts = np.diff(parts.range_ends)
        row = np.repeat(np.arange(len(rows)), np.diff(parts.ends))
        is_whole = counts == np.diff(lines.ends)[row]
        cell = np.repeat(np.arange(len(counts)), counts)
        fits = is_whole[cell]
        line = np.where(fits, lines.ends[row[cell]] + np.arange(len(cell)) - parts.range_ends[cell], 0)
        if len(lines.codes):
            fits &= parts.is_known & (parts.start == lines.start[line]) & (parts.end == lines.end[line])
            fits &= parts.num_rows == rows[row[cell]]
        whole = (rows > 0) & (np.diff(parts.ends) > 0)
        whole[row[~is_whole]] = False
        whole[row[cell[~fits]]] = False
        return whole
