"""Many small segments, read like one: a numpy call takes as long for ten rows as for ten thousand.

Each segment has a slot: a separate range of integers to which its index values are moved. So one sort, search or fill,
like that of one long segment, handles all segments. Values before a slot never fill rows in the slot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import ComponentColumnDescriptor
from ..limits import MIB
from ..rrd import ChunkTable, OpenFiles, Recent, Times
from ..task_context import TaskContext, find
from .events import ChunkRows, Events, Presence, SegmentEvents
from .query import AnswerColumns, Integers, Key, SegmentFigures
from .rows import Located, SegmentRows, StaticColumns, within
from .segment_chunks import HashedPredicate, SegmentChunks, hull_of, is_implied
from .segments import (
    LayerChunks,
    NamedLayer,
    OpenSegment,
    QueriedSegment,
    references_of,
    rows_of_layers,
    saves,
    segment_named,
)

GROUP_BYTES: Final = 16 * MIB
"""The approximate stored bytes of the chunks in a group of segments."""
_GROUP_SEGMENTS: Final = 256
_WIDEST: Final = 1 << 62


@dataclass(frozen=True)
class SegmentGroup:
    """Neighbouring segments that are read together. Picklable."""

    segments: tuple[QueriedSegment, ...]

    @property
    def segment_id(self) -> str:
        """The ids of the first and the last segment."""
        return f"{self.segments[0].segment_id} to {self.segments[-1].segment_id}"

    @property
    def columns(self) -> AnswerColumns:
        """The columns of the result."""
        return self.segments[0].columns

    @property
    def stored_bytes(self) -> int:
        """The approximate stored bytes of all chunks."""
        return sum(segment.stored_bytes for segment in self.segments)

    def cut(self, budget_bytes: int = 0) -> list[SegmentGroup]:  # noqa: ARG002 (that of segments)
        """The group itself, as it is small."""
        return [self]

    def needed(
        self, columns: AnswerColumns, predicate: pc.Expression | None
    ) -> tuple[None, Sequence[tuple[LayerChunks, Integers]]]:
        """The needed chunks of each segment; see :meth:`QueriedSegment.needed`."""
        windows = _windows(self.segments, columns, predicate)
        return None, [] if windows is None else GroupChunks.of(self.segments, columns, windows).by_layer()

    def plan(self, columns: AnswerColumns, predicate: pc.Expression | None) -> None:
        """Count the chunks that rows need, without reading them. Raises ``ReadError``."""
        self.needed(columns, predicate)

    def batches(
        self, names: Sequence[str] | None = None, predicate: pc.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one segment after another; see :meth:`QueriedSegment.batches`.

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
        chunks = GroupChunks.of(self.segments, columns, windows)
        events = GroupEvents.of_chunks(chunks, self.segments, columns, slots, names)
        rows = GroupRows(self.segments, columns, slots, events, windows)
        if rows.are_in_slots:
            yield from rows.batches(names, None if _holds(columns, predicate, windows) else predicate)
        else:
            yield from self._one_by_one(names, predicate)

    def _one_by_one(self, names: Sequence[str] | None, predicate: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        for segment in self.segments:
            with segment_named(segment.segment_id):
                yield from segment.batches(names, predicate)


def grouped(segments: Sequence[QueriedSegment]) -> list[QueriedSegment | SegmentGroup]:
    """The segments, with small neighbours joined in groups. All segments must be able to have rows."""
    groups: list[QueriedSegment | SegmentGroup] = []
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
            groups.append(SegmentGroup(tuple(some)) if len(some) > 1 else some[0])
            first, size = number, 0
    return groups


def _alike(segment: QueriedSegment, other: QueriedSegment) -> bool:
    have_index = segment.columns is other.columns and segment.columns.query.index is not None
    return have_index and segment.component_keys == other.component_keys and segment.window == other.window


class Slots(NamedTuple):
    """Separate ranges for the index values of segments: the values ``first`` to ``last`` are moved to ``base``."""

    first: Integers
    last: Integers
    base: Integers

    @classmethod
    def of(cls, segments: Sequence[QueriedSegment]) -> Slots | None:
        """Return the slots of the segments, or None if 62 bits are not enough."""
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
        """The places of index values in slots."""
        return values + (self.base - self.first)[slots]

    def numbers(self, places: Integers) -> Integers:
        """The slot of each place."""
        return np.searchsorted(self.base, places, side="right") - 1


def _windows(
    segments: Sequence[QueriedSegment], columns: AnswerColumns, predicate: pc.Expression | None
) -> tuple[Integers, Integers] | None:
    """Return the first and last possible index value of each segment's rows, or None if no segment has rows."""
    bounds = np.array([segment.bounds for segment in segments], np.int64)
    first, last = bounds[:, 0], bounds[:, 1]
    if predicate is not None:
        hull = hull_of(HashedPredicate(columns, predicate), int(first.min()), int(last.max()))
        if hull is None:
            return None
        first, last = np.maximum(first, hull[0]), np.minimum(last, hull[1])
    return first, last


def _holds(columns: AnswerColumns, predicate: pc.Expression | None, windows: tuple[Integers, Integers]) -> bool:
    """Return whether a predicate is true in all rows of windows, so that no row needs a test."""
    return predicate is None or is_implied(
        HashedPredicate(columns, predicate), int(windows[0].min()), int(windows[1].max())
    )


class GroupChunks(NamedTuple):
    """The chunks of segments, as rows of one table; ``owner`` is the segment number of each chunk.

    ``needed`` has the numbers of the needed chunks except static chunks, which are in ``static``.
    """

    layers: Sequence[NamedLayer]
    chunks: SegmentChunks
    owner: Integers
    needed: Integers
    static: Integers

    @classmethod
    def of(
        cls, segments: Sequence[QueriedSegment], columns: AnswerColumns, windows: tuple[Integers, Integers]
    ) -> GroupChunks:
        """The chunks for the rows in ``windows`` (one for each segment). Raises ``ReadError`` with a segment's id."""
        layers: list[NamedLayer] = []
        owners = []
        together = references_of([segment.source for segment in segments])
        for number, segment in enumerate(segments):
            with segment_named(segment.segment_id):
                some = segment.source.references() if together is None else together[number]
            names = segment.source.layer_names
            layers += [NamedLayer(layer, segment.segment_id, name) for layer, name in zip(some, names, strict=True)]
            owners += [number] * sum(len(layer.table) for layer in some)
        owner = np.array(owners, np.int64)
        chunks = SegmentChunks(columns, [_joined(tuple([layer.table for layer in layers]))])
        static = chunks.static[(windows[0] <= windows[1])[owner[chunks.static]]]
        group = cls(layers, chunks, owner, chunks.needed_of_each(owner, *windows), static)
        figures = find(SegmentFigures)
        if figures is not None:
            for layer, rows in group.by_layer():
                figures.need(layer.segment_id, [(layer.name, layer.table, rows)])
        return group

    def by_layer(self) -> list[tuple[NamedLayer, Integers]]:
        """The layers with needed chunks, and the rows of these chunks."""
        numbers = np.union1d(self.needed, self.static)
        bounds = np.cumsum([0, *(len(layer.table) for layer in self.layers)])
        return [(self.layers[at], rows) for at, rows in rows_of_layers(numbers, bounds)]


def _joined(tables: tuple[ChunkTable, ...]) -> ChunkTable:
    """Return one table with the rows of all tables. Recent results are cached."""
    key = tuple(map(id, tables))  # ids are unique, as the cache also holds the tables
    entry = _RECENT.find(key)
    if entry is None:
        entry = tables, ChunkTable.concat(tables)
        _RECENT.keep(key, entry, 2 * sum(table.batch.nbytes for table in tables))
    return entry[1]


_RECENT: Final = Recent[tuple[tuple[ChunkTable, ...], ChunkTable]](largest=8 * MIB)


class GroupEvents(SegmentEvents):
    """The events of several segments, whose index values are moved to slots.

    ``owner`` is the segment of each chunk. In ``rows``, static chunks come last, from place ``temporal``.
    """

    def __init__(
        self,
        rows: ChunkRows,
        temporal: int,
        owner: Integers,
        columns: AnswerColumns,
        slots: Slots,
        component_keys: Collection[Key],
        claims: SegmentChunks,
    ) -> None:
        assert columns.query.index is not None
        super().__init__(rows, _NeverStatic(), columns.visible, columns.query.index, component_keys, claims)
        self._temporal = temporal
        self._owner = owner
        self._slots = slots
        self._static_rows: dict[Key, Integers | None] = {}

    @classmethod
    def of_chunks(
        cls,
        chunks: GroupChunks,
        segments: Sequence[QueriedSegment],
        columns: AnswerColumns,
        slots: Slots,
        names: Sequence[str] | None,
    ) -> Self:
        """Return the events in chunks, from recorded times or from the chunks. Raises ``ReadError``."""
        layers, segment_chunks, owner, needed, static = chunks
        wanted = segment_chunks.with_values(columns.keys(names))
        times: list[Times | None] = [None] * len(layers)
        if saves(layers, wanted, np.union1d(needed, static), is_asked=columns.query.values is not None):
            times = []
            for segment in segments:
                with segment_named(segment.segment_id):
                    times += segment.source.times()
        rows = OpenSegment(layers, times).rows(needed, columns.query.index, static)
        return cls(
            rows, len(rows.numbers) - len(static), owner, columns, slots, segments[0].component_keys, segment_chunks
        )

    @cached_property
    def owners(self) -> Integers:
        """The segment of each row."""
        return np.repeat(self._owner[self.rows.numbers], self.rows.counts)

    def are_in_slots(self, events: Events) -> bool:
        """Return whether all events are in the slots of their segments."""
        owners = self.owners[events.rows]
        inside = events.times - self._slots.base[owners]
        return bool(((inside >= 0) & (inside <= (self._slots.last - self._slots.first)[owners])).all())

    def _moved(self, times: Integers) -> Integers:
        return self._slots.places(self.owners, times)

    def _present(self, key: Key) -> Presence:
        chunks, mask = self.rows.presence(key)
        count = int(np.searchsorted(chunks, self._temporal))
        return Presence(chunks[:count], None if mask is None else mask[: int(self.rows.counts[chunks[:count]].sum())])

    def of(self, column: ComponentColumnDescriptor, *, clears: bool = True) -> Events | None:
        """The events of a component, without segments in which it is static."""
        events = super().of(column, clears=clears)
        static = self.static_rows((column.entity_path, column.component))
        if events is None or static is None:
            return events
        is_temporal = static[self.owners[events.rows]] < 0
        if not is_temporal.any():
            return None
        return Events(
            events.times[is_temporal],
            events.rows[is_temporal],
            None if events.cleared is None else events.cleared[is_temporal],
        )

    def static_rows(self, key: Key) -> Integers | None:
        """Return the row of the static value of each segment, or -1; None if no segment has one."""
        if key not in self._static_rows:
            self._static_rows[key] = self._find_static(key)
        return self._static_rows[key]

    def _find_static(self, key: Key) -> Integers | None:
        rows = self.rows.rows(self.rows.presence(key))
        rows = rows[rows >= self.rows.starts[self._temporal]]
        if not len(rows):
            return None
        high, low = self.rows.ids
        rows = rows[np.lexsort((-rows, low[rows], high[rows]))]
        static_rows = np.full(len(self._slots.base), -1, np.int64)
        static_rows[self.owners[rows]] = rows
        return static_rows


class _NeverStatic:
    """Static values of a group: no component counts as static in all segments."""

    def has(self, key: Key) -> bool:  # noqa: ARG002 (of none)
        """Return False: no component is static in all segments."""
        return False


class _NoStatic(StaticColumns):
    """Static columns of a group: static values are rows like others."""

    def __init__(self) -> None:
        pass

    def has(self, column: ComponentColumnDescriptor) -> bool:  # noqa: ARG002 (of none)
        """Return False: no column is static in all segments."""
        return False


class GroupRows(SegmentRows):
    """The rows of several segments, one segment after another."""

    def __init__(
        self,
        segments: Sequence[QueriedSegment],
        columns: AnswerColumns,
        slots: Slots,
        events: GroupEvents,
        windows: tuple[Integers, Integers],
    ) -> None:
        self._slots = slots
        self._segments = segments
        super().__init__(columns, "", _NoStatic(), events, given=self._placed(columns))
        self._group = events
        self._bounds = windows
        self._with_static: dict[str, Located] = {}

    def _placed(self, columns: AnswerColumns) -> Integers | None:
        """The places of the given index values."""
        if columns.query.values is None:
            return None
        return self._places(
            [np.empty(0, np.int64) if segment.given is None else segment.given for segment in self._segments]
        )

    def _kept(self, ticks: Integers) -> Integers:
        values = self._query.rows.values
        if values is None:
            return ticks
        slots = zip(self._segments, self._slots.first.tolist(), self._slots.last.tolist(), strict=True)
        inside = [within(values.of_segment(segment.segment_id), (first, last)) for segment, first, last in slots]
        return np.intersect1d(ticks, self._places(inside), assume_unique=True)

    def _places(self, values: Sequence[Integers]) -> Integers:
        """The places of the index values of each segment."""
        owners = np.repeat(np.arange(len(values)), list(map(len, values)))
        return self._slots.places(owners, np.concatenate(values))

    @property
    def are_in_slots(self) -> bool:
        """Whether segments match the ranges in their entries; if not, they must be read one by one."""
        return all(map(self._group.are_in_slots, self.column_events.values()))

    @cached_property
    def index_values(self) -> Integers:
        """The places of the rows."""
        places = super().index_values
        slots = self._slots.numbers(places)
        begin, end = (self._slots.places(np.arange(len(some)), some) for some in self._bounds)
        is_inside = (places >= begin[slots]) & (places <= end[slots])
        return places if is_inside.all() else places[is_inside]

    def has(self, name: str) -> bool:
        """Return whether a column has values, including static ones."""
        return name in self.column_events or self._static_of(name) is not None

    def located(self, name: str) -> Located:
        """The values of a column in all rows, including static ones."""
        static = self._static_of(name)
        if static is None:
            return super().located(name)
        if name not in self._with_static:
            rows = static[self._slots.numbers(self.index_values)]
            cleared = None
            if name in self.column_events:
                others, cleared = super().located(name)
                rows = np.where(rows < 0, others, rows)
            self._with_static[name] = rows, cleared
        return self._with_static[name]

    def _static_of(self, name: str) -> Integers | None:
        column = self.columns.component(name)
        return None if column is None else self._group.static_rows((column.entity_path, column.component))

    def _latest(self, events: Events, times: Integers, *, exactly: bool) -> Located:
        rows, cleared = super()._latest(events, times, exactly=exactly)
        if exactly or rows is events.rows:
            return rows, cleared
        is_own = self._group.owners[np.maximum(rows, 0)] == self._slots.numbers(times)
        return np.where(is_own, rows, -1), None if cleared is None else cleared & is_own

    def segment_ids(self, start: int, stop: int) -> pa.Array:
        """The segment of each row."""
        names = pa.array([segment.segment_id for segment in self._segments], pa.string())
        return names.take(pa.array(self._slots.numbers(self.index_values[start:stop])))

    def plain_times(self, start: int, stop: int) -> Integers:
        """The index values of rows, without the moves to slots."""
        places = self.index_values[start:stop]
        return places - (self._slots.base - self._slots.first)[self._slots.numbers(places)]
