"""Many small segments, read as if they were one: a call of numpy costs as much for ten rows as for ten thousand.

Each segment has a slot, a range of integers of its own: its index values are moved there, so that whatever is sorted,
searched or filled in the index of one long segment is so in all of them. What lies before a slot is never looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import ChunkData, ComponentColumnDescriptor
from ..errors import ReadError
from ..limits import MIB
from ..rrd import ChunkTable, OpenFiles
from ..task_context import TaskContext
from .events import ComponentValues, Events, Key, Mask, SegmentEvents
from .pruning import SegmentChunks, index_guarantee, satisfiable
from .query import AnswerColumns, Integers
from .rows import SegmentRows
from .segments import QueriedSegment
from .sources import LayerChunks
from .values import ColumnValues

GROUP_BYTES: Final = 16 * MIB
"""Bytes of chunks as they are stored of the segments of a group, about."""
_GROUP_SEGMENTS: Final = 256
_WIDEST: Final = 1 << 62
_LEAST: Final = -(1 << 63)


@dataclass(frozen=True)
class SegmentGroup:
    """Neighbours that are read together. It pickles."""

    segments: tuple[QueriedSegment, ...]

    @property
    def segment_id(self) -> str:
        """The names of the first and the last."""
        return f"{self.segments[0].segment_id} to {self.segments[-1].segment_id}"

    @property
    def columns(self) -> AnswerColumns:
        """The columns of the answer."""
        return self.segments[0].columns

    @property
    def stored_bytes(self) -> int:
        """The bytes of all chunks as stored, about."""
        return sum(segment.stored_bytes for segment in self.segments)

    def cut(self, budget_bytes: int = 0) -> list[SegmentGroup]:  # noqa: ARG002 (that of segments)
        """The group, which is small."""
        return [self]

    def needed(
        self, columns: AnswerColumns, predicate: pc.Expression | None
    ) -> tuple[None, list[tuple[LayerChunks, Integers]]]:
        """The chunks that are needed of each segment; see :meth:`QueriedSegment.needed`."""
        windows = _windows(self.segments, columns, predicate)
        return None, [] if windows is None else list(GroupChunks(self.segments).needed(columns, windows))

    def batches(
        self, names: Sequence[str] | None = None, predicate: pc.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the segments, one behind the other; see :meth:`QueriedSegment.batches`.

        Raises ``ReadError`` with the name of a segment.
        """
        slots = Slots.of(self.segments)
        if slots is None:
            yield from self._one_by_one(names, predicate)
            return
        files = OpenFiles()
        try:
            yield from TaskContext(files).run(self._batches(slots, names, predicate))
        finally:
            files.close()

    def _batches(
        self, slots: Slots, names: Sequence[str] | None, predicate: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        columns = self.columns.narrowed(names, predicate)
        windows = _windows(self.segments, columns, predicate)
        if windows is None:
            return
        chunks = GroupChunks(self.segments).read(columns, windows)
        rows = GroupRows(self.segments, columns, slots, chunks, windows)
        if rows.are_in_slots:
            yield from rows.batches(names, predicate)
        else:
            yield from self._one_by_one(names, predicate)

    def _one_by_one(self, names: Sequence[str] | None, predicate: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        for segment in self.segments:
            with _named(segment):
                yield from segment.batches(names, predicate)


@contextmanager
def _named(segment: QueriedSegment) -> Iterator[None]:
    """Say in errors of reading which segment it was."""
    try:
        yield
    except ReadError as error:
        error.message += f", in segment {segment.segment_id}"
        raise


def grouped(segments: Sequence[QueriedSegment]) -> list[QueriedSegment | SegmentGroup]:
    """The segments, those that are small together with their neighbours. All of them may have rows."""
    found: list[QueriedSegment | SegmentGroup] = []
    first, size = 0, 0
    sizes = [segment.stored_bytes for segment in segments]
    for number in range(1, len(segments) + 1):
        size += sizes[number - 1]
        if (
            number == len(segments)
            or size + sizes[number] > GROUP_BYTES
            or number - first == _GROUP_SEGMENTS
            or not _alike(segments[first], segments[number])
        ):
            some = segments[first:number]
            found.append(SegmentGroup(tuple(some)) if len(some) > 1 else some[0])
            first, size = number, 0
    return found


def _alike(one: QueriedSegment, other: QueriedSegment) -> bool:
    is_whole = one.window is None and other.window is None and one.columns.query.index is not None
    return is_whole and one.there == other.there and one.columns is other.columns


class Slots(NamedTuple):
    """The index values of segments, each in a range of its own: ``first`` to ``last`` lie from ``base`` on."""

    first: Integers
    last: Integers
    base: Integers

    @classmethod
    def of(cls, segments: Sequence[QueriedSegment]) -> Slots | None:
        """None where there are not as many integers."""
        first, last, base = [], [], []
        end = 0
        for segment in segments:
            ends = [*(segment.span or ()), *(segment.bounds or ())]
            first.append(min(ends))
            last.append(max(ends))
            base.append(end)
            end += last[-1] - first[-1] + 2
            if end > _WIDEST:
                return None
        return cls(np.array(first), np.array(last), np.array(base))

    def places(self, slots: Integers, values: Integers) -> Integers:
        """The places of values of slots."""
        return values + (self.base - self.first)[slots]

    def numbers(self, places: Integers) -> Integers:
        """The slot of each place."""
        return np.searchsorted(self.base, places, side="right") - 1


def _windows(
    segments: Sequence[QueriedSegment], columns: AnswerColumns, predicate: pc.Expression | None
) -> tuple[Integers, Integers] | None:
    """The first and last index value of each segment that rows can have; None where there are none at all."""
    bounds = np.array([segment.bounds for segment in segments], np.int64)
    first, last = bounds[:, 0], bounds[:, 1]
    if predicate is not None:
        hull = _hull(_Asked(columns, predicate), int(first.min()), int(last.max()))
        if hull is None:
            return None
        first, last = np.maximum(first, hull[0]), np.minimum(last, hull[1])
    return first, last


class _Asked:
    """A predicate over columns, as something that can be kept: predicates have no hash."""

    def __init__(self, columns: AnswerColumns, predicate: pc.Expression) -> None:
        self.columns = columns
        self.predicate = predicate
        self._key = (str(predicate), columns.query.index, tuple(columns.arrow.names))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Asked) and self._key == other._key


@lru_cache(maxsize=256)
def _hull(asked: _Asked, first: int, last: int) -> tuple[int, int] | None:
    """The first and the last index value between two at which a predicate can hold; None where it cannot."""

    def can_hold(begin: int, end: int) -> bool:
        guarantee = index_guarantee(asked.columns, (begin, end))
        return bool(satisfiable(asked.predicate, [guarantee], asked.columns.arrow))

    if not can_hold(first, last):
        return None
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if can_hold(first, middle) else (middle + 1, high)
    begin, high = low, last
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if can_hold(middle, last) else (low, middle - 1)
    return begin, low


class GroupChunks:
    """The chunks of segments, as rows of one table."""

    def __init__(self, segments: Sequence[QueriedSegment]) -> None:
        self._segments = segments
        self._layers: list[LayerChunks] = []
        owners = []
        for number, segment in enumerate(segments):
            with _named(segment):
                layers = segment.source.references()
            self._layers += layers
            owners += [number] * len(layers)
        self._sizes = np.array([len(layer.table) for layer in self._layers], np.int64)
        self._segment = np.repeat(np.array(owners, np.int64), self._sizes)
        self._table = ChunkTable.concat([layer.table for layer in self._layers])

    def needed(
        self, columns: AnswerColumns, windows: tuple[Integers, Integers]
    ) -> Iterator[tuple[LayerChunks, Integers]]:
        """The layers of which chunks are needed for the rows in ``windows``, and which of these."""
        return ((layer, rows) for layer, rows, _ in self._needed(columns, windows))

    def read(self, columns: AnswerColumns, windows: tuple[Integers, Integers]) -> Iterator[tuple[int, ChunkData]]:
        """The chunks that are needed for the rows in ``windows``, and the number of the segment of each."""
        for layer, rows, number in self._needed(columns, windows):
            with _named(self._segments[number]):
                for data in layer.read(rows):
                    yield number, data

    def _needed(
        self, columns: AnswerColumns, windows: tuple[Integers, Integers]
    ) -> Iterator[tuple[LayerChunks, Integers, int]]:
        is_needed = SegmentChunks(columns, [self._table]).needed_of_each(self._segment, *windows)
        ends = np.cumsum(self._sizes)
        for layer, end, size in zip(self._layers, ends.tolist(), self._sizes.tolist(), strict=True):
            rows = np.flatnonzero(is_needed[end - size : end])
            if len(rows):
                yield layer, rows, int(self._segment[end - 1])


class GroupEvents(SegmentEvents):
    """The events of several segments: their index values are moved to the slots of these."""

    def __init__(
        self,
        chunks: Iterable[tuple[int, ChunkData]],
        columns: AnswerColumns,
        there: Collection[Key],
        slots: Slots,
    ) -> None:
        self._slots = slots
        self._reading = 0
        self._owners: list[int] = []
        self._static_of: dict[Key, dict[int, tuple[bytes, pa.ListArray]]] = {}
        self._without_static: dict[object, Events] = {}
        super().__init__(self._each(chunks), columns.visible, columns.query.index, there)

    def _each(self, chunks: Iterable[tuple[int, ChunkData]]) -> Iterator[ChunkData]:
        for self._reading, data in chunks:
            yield data

    def _add(self, data: ChunkData) -> None:
        super()._add(data)
        self._owners.append(self._reading)

    def _add_static(self, data: ChunkData) -> None:
        self._static = {}
        for (entity, component), value in self._static_of.items():
            if self._reading in value:
                self._static[entity, component] = value[self._reading]
        super()._add_static(data)
        for key, one in self._static.items():
            self._static_of.setdefault(key, {})[self._reading] = one
        self._static = {}

    @cached_property
    def owners(self) -> Integers:
        """The segment of each row."""
        return np.repeat(np.array(self._owners, np.int64), np.diff(self._starts))

    def are_in_slots(self, events: Events) -> bool:
        """Whether the index values of events are where the entries of segments say that they are."""
        owners = self.owners[events.rows]
        inside = events.times - self._slots.base[owners]
        return bool(((inside >= 0) & (inside <= (self._slots.last - self._slots.first)[owners])).all())

    def _moved(self, times: Integers) -> Integers:
        return self._slots.places(self.owners, times)

    def of(self, column: ComponentColumnDescriptor, *, clears: bool = True) -> Events | None:
        """The events of a component, but for those of segments in which it is static."""
        found = super().of(column, clears=clears)
        static = self._static_of.get((column.entity_path, column.component))
        if found is None or not static:
            return found
        kept = ~np.isin(self.owners[found.rows], list(static))
        return Events(*(None if some is None else some[kept] for some in found)) if kept.any() else None

    # --- static values: rows behind all others

    @cached_property
    def _first_static(self) -> dict[Key, int]:
        counts = [0, *(len(values) for values in self._static_of.values())]
        return dict(zip(self._static_of, (int(self._starts[-1]) + np.cumsum(counts)).tolist(), strict=False))

    def static_rows(self, column: ComponentColumnDescriptor) -> Integers | None:
        """The row of the static value of each segment, or -1; None where none has one."""
        key = column.entity_path, column.component
        if key not in self._static_of:
            return None
        found = np.full(len(self._slots.base), -1, np.int64)
        for number, segment in enumerate(self._static_of[key]):
            found[segment] = self._first_static[key] + number
        return found

    def values(self, column: ComponentColumnDescriptor) -> ComponentValues:
        """The values of a component, the static ones among them."""
        found = super().values(column)
        key = column.entity_path, column.component
        if key not in self._static_of:
            return found
        static = [value for _, value in self._static_of[key].values()]
        starts = self._first_static[key] + np.arange(len(static))
        return ComponentValues(np.concatenate([found.starts, starts]), [*found.arrays, *static])

    def times_on(self, index: str, rows: Integers) -> tuple[Integers, Mask] | None:
        """The times on another index of rows, of which static values have none."""
        has_some = rows < self._starts[-1]
        if has_some.all():
            return super().times_on(index, rows)
        if not has_some.any():
            return None
        found = super().times_on(index, np.where(has_some, rows, 0))
        return None if found is None else (found[0], found[1] & has_some)


class GroupRows(SegmentRows):
    """The rows of several segments, one behind the other."""

    def __init__(
        self,
        segments: Sequence[QueriedSegment],
        columns: AnswerColumns,
        slots: Slots,
        chunks: Iterable[tuple[int, ChunkData]],
        windows: tuple[Integers, Integers],
    ) -> None:
        self.columns = columns
        self._query = columns.query
        self._slots = slots
        self._segments = segments
        self._events: GroupEvents = GroupEvents(chunks, columns, segments[0].there, slots)
        self._bounds = windows
        self._windows = None
        self._given = self._placed()
        self._values: dict[str, ColumnValues] = {}

    def _placed(self) -> Integers | None:
        """The places of the index values that are given."""
        if self._query.values is None:
            return None
        found = [np.empty(0, np.int64) if one.given is None else one.given for one in self._segments]
        owners = np.repeat(np.arange(len(found)), list(map(len, found)))
        return self._slots.places(owners, np.concatenate(found))

    @property
    def are_in_slots(self) -> bool:
        """Whether segments hold what their entries say; else they must be read one by one."""
        return all(map(self._events.are_in_slots, self._found.values()))

    @cached_property
    def index_values(self) -> Integers:
        """The places of the rows."""
        found = super().index_values
        slots = self._slots.numbers(found)
        begin, end = (self._slots.places(np.arange(len(some)), some) for some in self._bounds)
        is_inside = (found >= begin[slots]) & (found <= end[slots])
        return found if is_inside.all() else found[is_inside]

    def located(self, times: Integers) -> dict[str, tuple[Integers, Mask | None]]:
        """The row whose value each place has; those of static values, too."""
        found = super().located(times)
        slots = self._slots.numbers(times)
        for column in self.columns.visible:
            static = self._events.static_rows(column)
            if static is None:
                continue
            rows = static[slots]
            if column.name in found:
                others, cleared = found[column.name]
                found[column.name] = np.where(rows < 0, others, rows), cleared
            else:
                found[column.name] = rows, None
        return found

    def _latest(self, events: Events, times: Integers, *, exactly: bool) -> tuple[Integers, Mask | None]:
        rows, cleared = super()._latest(events, times, exactly=exactly)
        if exactly or rows is events.rows:
            return rows, cleared
        is_own = self._events.owners[np.maximum(rows, 0)] == self._slots.numbers(times)
        return np.where(is_own, rows, -1), None if cleared is None else cleared & is_own

    def segment_ids(self, times: Integers | None, count: int) -> pa.Array:
        """The segment of each row."""
        if times is None:
            return super().segment_ids(times, count)
        names = pa.array([segment.segment_id for segment in self._segments], pa.string())
        return names.take(pa.array(self._slots.numbers(times)))

    def plain_times(self, times: Integers) -> Integers:
        """Index values of places."""
        slots = self._slots.numbers(times)
        return times - (self._slots.base - self._slots.first)[slots]
