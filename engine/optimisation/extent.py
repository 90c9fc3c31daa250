"""Ranges and sizes of chunks, without their rows: all that decisions about them are made from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import ChunkData, Timeline, TimelineKind
from .size import ColumnSize, chunk_bytes, column_size

Span = tuple[int, int]
"""First and last time."""


class TimelineExtent(NamedTuple):
    """A timeline of a chunk: its range, and whether its times ascend in row order."""

    name: str
    kind: TimelineKind
    start: int
    end: int
    ascending: bool


class ColumnExtent(NamedTuple):
    """A component column; ``spans`` says for each timeline where rows have a value, None where none has."""

    datatype: pa.DataType
    size: ColumnSize
    spans: tuple[Span | None, ...]


class MergeCandidate(NamedTuple):
    """A temporal chunk that has rows and components, each of another name, as the merging of chunks sees it.

    ``size`` is in bytes; ``ascending`` says whether all timelines ascend.
    """

    entity_path: str
    num_rows: int
    first_row: bytes
    last_row: bytes
    timelines: tuple[TimelineExtent, ...]
    columns: dict[str, ColumnExtent]
    size: int
    ascending: bool

    def concatenable(self, other: MergeCandidate) -> bool:
        """Whether the rows of both can stand in one chunk: same entity, timelines and datatypes."""
        if self.entity_path != other.entity_path or len(self.timelines) != len(other.timelines):
            return False
        for mine, theirs in zip(self.timelines, other.timelines, strict=True):
            if mine.name != theirs.name or mine.kind is not theirs.kind:
                return False
        columns = other.columns
        return all(c.datatype == columns[name].datatype for name, c in self.columns.items() if name in columns)

    def is_before(self, other: MergeCandidate) -> bool:
        """Whether all its rows come before those of the other, by row ids and on every timeline; both ascend."""
        pairs = zip(self.timelines, other.timelines, strict=True)
        return self.last_row <= other.first_row and all(a.end <= b.start for a, b in pairs)

    def is_continued_by(self, run: MergeCandidate) -> bool:
        """Whether a run, in time order, has the same columns and comes behind all of this."""
        return (
            run.ascending
            and self.columns.keys() == run.columns.keys()
            and run.concatenable(self)
            and self.is_before(run)
        )

    @property
    def overhead(self) -> int:
        """Bytes that a chunk of the same columns takes beside its rows, at most."""
        bitmaps = sum(len(c.size.bitmaps) for c in self.columns.values())
        return chunk_bytes(0, len(self.timelines), [ColumnSize(0, ())] * len(self.columns)) + bitmaps

    def joined(self, later: MergeCandidate) -> MergeCandidate:
        """The extent of the rows of both; ``later`` has the larger first row id."""
        follows = self.last_row <= later.first_row
        timelines = tuple(_joined_timeline(a, b, follows) for a, b in zip(self.timelines, later.timelines, strict=True))
        columns: dict[str, ColumnExtent] = {}
        for name, column in self.columns.items():
            other = later.columns.get(name)
            columns[name] = _padded(column, later.num_rows) if other is None else _joined_column(column, other)
        for name, column in later.columns.items():
            if name not in columns:
                columns[name] = _padded(column, self.num_rows)
        rows = self.num_rows + later.num_rows
        return MergeCandidate(
            self.entity_path,
            rows,
            self.first_row,
            max(self.last_row, later.last_row),
            timelines,
            columns,
            chunk_bytes(rows, len(timelines), [c.size for c in columns.values()]),
            all(t.ascending for t in timelines),
        )


def extent_of(data: ChunkData, sizes: list[ColumnSize] | None = None) -> MergeCandidate:
    """The extent of a chunk with at least one row, one timeline and one component, whose row ids ascend.

    ``sizes`` are those of its columns, where they are known.
    """
    if sizes is None:
        sizes = [column_size(c.values) for c in data.components]
    timelines = tuple(
        TimelineExtent(t.name, t.kind, *_range(t.ticks, t.is_sorted), t.is_sorted) for t in data.timelines
    )
    full = tuple((t.start, t.end) for t in timelines)
    columns: dict[str, ColumnExtent] = {}
    for c, size in zip(data.components, sizes, strict=True):
        spans = full if not c.values.null_count else _spans_of_values(c.values, data.timelines)
        columns[c.descriptor.component] = ColumnExtent(c.values.type, size, spans)
    return MergeCandidate(
        data.entity_path,
        data.num_rows,
        *_row_id_bounds(data.row_ids),
        timelines,
        columns,
        chunk_bytes(data.num_rows, len(timelines), [c.size for c in columns.values()]),
        all(t.ascending for t in timelines),
    )


def _spans_of_values(values: pa.ListArray, timelines: tuple[Timeline, ...]) -> tuple[Span | None, ...]:
    if values.null_count == len(values):
        return (None,) * len(timelines)
    there = values.is_valid().to_numpy(zero_copy_only=False)
    return tuple(_range(t.ticks[there], t.is_sorted) for t in timelines)


def _range(ticks: npt.NDArray[np.int64], ascending: bool) -> Span:
    return (int(ticks[0]), int(ticks[-1])) if ascending else (int(ticks.min()), int(ticks.max()))


def _row_id_bounds(row_ids: pa.FixedSizeBinaryArray) -> tuple[bytes, bytes]:
    width = row_ids.type.byte_width
    held = memoryview(row_ids.buffers()[1])[width * row_ids.offset : width * (row_ids.offset + len(row_ids))]
    return bytes(held[:width]), bytes(held[-width:])


def _joined_timeline(earlier: TimelineExtent, later: TimelineExtent, follows: bool) -> TimelineExtent:
    ascending = follows and earlier.ascending and later.ascending and earlier.end <= later.start
    start, end = min(earlier.start, later.start), max(earlier.end, later.end)
    return TimelineExtent(earlier.name, earlier.kind, start, end, ascending)


def _joined_column(one: ColumnExtent, other: ColumnExtent) -> ColumnExtent:
    spans = tuple(_joined_span(a, b) for a, b in zip(one.spans, other.spans, strict=True))
    return ColumnExtent(one.datatype, one.size.plus(other.size), spans)


def _joined_span(one: Span | None, other: Span | None) -> Span | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one[0], other[0]), max(one[1], other[1])


def _padded(column: ColumnExtent, rows: int) -> ColumnExtent:
    return ColumnExtent(column.datatype, column.size.padded(rows), column.spans)
