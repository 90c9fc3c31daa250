"""The rows of a segment: for each index value of its events, or each that is given, a value of each component.

Rows are found in times and row ids alone. Values are taken once, for rows and columns that are wanted, in batches of
bounded size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import ChunkData, ComponentColumnDescriptor
from ..limits import MIB
from .events import Events, Key, Mask, SegmentEvents
from .query import SEGMENT_ID, AnswerColumns, Integers
from .values import ColumnValues, as_type

BATCH_BYTES: Final = 64 * MIB
"""The most that the values of a batch take, unless it is one row."""
_BATCH_ROWS: Final = 1 << 16
_SMALL: Final = 256
"""Bytes of a value that are not counted one by one: 65,536 rows of 4 such columns make a batch."""

Windows = Sequence[tuple[int, int]]
"""Ranges of index values, both ends included."""


class SegmentRows:
    """The rows of a segment, from decoded chunks that may have something to do with them.

    Order: by the index. ``there`` are the components that the segment has, as for :class:`SegmentEvents`. ``given``
    are the index values that are wanted, in place of those of events. Rows outside of ``windows`` are left out; events
    before them count where rows are filled.
    """

    def __init__(
        self,
        columns: AnswerColumns,
        segment_id: str,
        chunks: Iterable[ChunkData],
        *,
        there: Collection[Key] | None = None,
        given: Integers | None = None,
        windows: Windows | None = None,
    ) -> None:
        self.columns = columns
        self._query = columns.query
        self.segment_id = segment_id
        self._events = SegmentEvents(chunks, columns.visible, self._query.index, there)
        self._given = given
        self._windows = windows
        self._values: dict[str, ColumnValues] = {}

    @cached_property
    def index_values(self) -> Integers:
        """The index values of the rows; one row without an index has none."""
        if self._given is not None:
            found = self._given
        else:
            distinct = {id(events): events.times for events in self._found.values()}
            found = _united(list(distinct.values()))
        if self._windows is None:
            return found
        return np.concatenate([found[:0], *(within(found, window) for window in self._windows)])

    def batches(
        self, names: Sequence[str] | None = None, predicate: pc.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows in which ``predicate`` is true, with the columns ``names`` (None: all). None is empty."""
        names = self.columns.arrow.names if names is None else names
        if self._query.index is None:
            yield from self._block(None, 1 if self._has_row else 0, names, predicate)
            return
        for start in range(0, len(self.index_values), _BATCH_ROWS):
            times = self.index_values[start : start + _BATCH_ROWS]
            yield from self._block(times, len(times), names, predicate)

    @property
    def _has_row(self) -> bool:
        """Whether a segment has its row of static values."""
        if not self._query.semantics.static_rows_need_values:
            return True
        return any(self._events.static(column) is not None for column in self.columns.components)

    @cached_property
    def _found(self) -> dict[str, Events]:
        """The events of each column that has some."""
        if self._query.index is None:
            return {}
        found = {column.name: self._events.of(column) for column in self.columns.visible}
        return {name: events for name, events in found.items() if events is not None}

    def _block(
        self, times: Integers | None, count: int, names: Sequence[str], predicate: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        block = _Block(self, times, count)
        kept = block.kept(predicate) if predicate is not None else np.arange(count)
        for rows in block.batches(kept, names):
            yield block.batch(rows, names)

    # --- what a block asks

    def located(self, times: Integers) -> dict[str, tuple[Integers, Mask | None]]:
        """For each column that has events: the row of the segment whose value each time has (-1: none), and whether it
        is a clear.
        """
        known: dict[int, tuple[Integers, Mask | None]] = {}
        for name, events in self._found.items():
            if id(events) not in known:
                known[id(events)] = self._located(name, times)
        return {name: known[id(events)] for name, events in self._found.items()}

    @cached_property
    def _uncleared(self) -> dict[str, Events | None]:
        """The events of what is cleared, without the clears, where these do not end what is filled."""
        if not (self._query.fill_latest_at and self._query.semantics.cleared_values_return):
            return {}
        cleared = {name for name, events in self._found.items() if events.cleared is not None}
        return {c.name: self._events.of(c, clears=False) for c in self.columns.visible if c.name in cleared}

    def _located(self, name: str, times: Integers) -> tuple[Integers, Mask | None]:
        events, is_filled = self._found[name], self._query.fill_latest_at
        if name not in self._uncleared:
            return self._latest(events, times, exactly=not is_filled)
        rows, cleared = self._latest(events, times, exactly=True)
        uncleared = self._uncleared[name]
        if uncleared is not None:
            rows = np.where(rows < 0, self._latest(uncleared, times, exactly=False)[0], rows)
        return rows, cleared

    def _latest(self, events: Events, times: Integers, *, exactly: bool) -> tuple[Integers, Mask | None]:
        """The row of the event at each of ``times``, or else before it; -1 where there is none."""
        if len(events.times) == len(times) and bool((events.times == times).all()):
            return events.rows, events.cleared
        if not len(events.times):
            return np.full(len(times), -1, np.int64), None
        at = np.searchsorted(events.times, times, side="right") - 1
        there = at >= 0
        np.maximum(at, 0, out=at)
        if exactly:
            there &= events.times[at] == times
        cleared = None if events.cleared is None else events.cleared[at] & there
        return np.where(there, events.rows[at], -1), cleared

    def segment_ids(self, times: Integers | None, count: int) -> pa.Array:  # noqa: ARG002 (where there are several)
        """The segment of each row."""
        return pa.repeat(pa.scalar(self.segment_id, pa.string()), count)

    def plain_times(self, times: Integers) -> Integers:
        """The index values of rows, as they are."""
        return times

    def other_times(self, index: str, located: Iterable[Integers], count: int) -> pa.Array:
        """The latest time on another index of the events that rows take their values of; null where there is none."""
        latest, known = np.full(count, np.iinfo(np.int64).min), np.zeros(count, np.bool_)
        for rows in located:
            found = self._events.times_on(index, np.maximum(rows, 0))
            if found is not None:
                ticks, there = found
                there = there & (rows >= 0)
                np.maximum(latest, ticks, out=latest, where=there)
                known |= there
        return pa.array(latest, mask=~known)

    def static(self, column: ComponentColumnDescriptor) -> pa.Array | None:
        """The one static value of a column."""
        value = self._events.static(column)
        return None if value is None else as_type(value, column.datatype)

    def values(self, column: ComponentColumnDescriptor) -> ColumnValues:
        """The values of a column that has events."""
        if column.name not in self._values:
            self._values[column.name] = ColumnValues(self._events.values(column), column.datatype)
        return self._values[column.name]


class _Block:
    """Some rows of a segment, before their values are taken."""

    def __init__(self, of: SegmentRows, times: Integers | None, count: int) -> None:
        self._of = of
        self._times = times
        self._count = count
        self._located = {} if times is None else of.located(times)
        self._made: dict[str, pa.Array] = {}

    def kept(self, predicate: pc.Expression) -> Integers:
        """The rows in which ``predicate`` is true."""
        text = str(predicate)
        schema = self._of.columns.arrow
        names = [name for name in schema.names if name in text]
        columns = {name: self._stand_in(name) for name in names}
        number = "row" * (1 + max((len(name) for name in schema.names), default=0))
        table = pa.table({**columns, number: pa.array(np.arange(self._count))})
        found = table.filter(predicate)
        return np.asarray(found[number], dtype=np.int64)

    def batches(self, rows: Integers, names: Sequence[str]) -> Iterator[Integers]:
        """The rows in runs whose values take :data:`BATCH_BYTES` at most."""
        if not len(rows):
            return
        total = np.zeros(len(rows), np.int64)
        fixed = 64
        for name in names:
            column = self._of.columns.component(name)
            if column is None:
                continue
            static = self._of.static(column)
            if static is not None:
                fixed += int(static.nbytes)
            elif name in self._located:
                values = self._of.values(column)
                if values.widest <= _SMALL:
                    fixed += values.widest
                else:
                    found, cleared = self._located[name]
                    found = found[rows] if cleared is None else np.where(cleared[rows], -1, found[rows])
                    total += values.sizes(found)
        ends = np.cumsum(total + fixed)
        start, before = 0, 0
        while start < len(rows):
            stop = max(int(np.searchsorted(ends, before + BATCH_BYTES, side="right")), start + 1)
            yield rows[start:stop]
            start, before = stop, int(ends[stop - 1])

    def batch(self, rows: Integers, names: Sequence[str]) -> pa.RecordBatch:
        """These rows, with the values of these columns."""
        arrays = [self._column(name, rows) for name in names]
        schema = pa.schema([self._of.columns.arrow.field(name) for name in names], self._of.columns.arrow.metadata)
        if not names:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(self, name: str, rows: Integers) -> pa.Array:
        column = self._of.columns.component(name)
        if column is None:
            whole = self._plain(name)
            return whole if len(rows) == self._count else whole.take(pa.array(rows))
        static = self._of.static(column)
        if static is not None:
            return static.take(pa.array(np.zeros(len(rows), np.int64))) if len(rows) != 1 else static
        if name not in self._located:
            return pa.nulls(len(rows), column.datatype)
        found, cleared = self._located[name]
        return self._of.values(column).take(found[rows], None if cleared is None else cleared[rows])

    def _plain(self, name: str) -> pa.Array:
        """The column of segment ids or of an index, of all rows."""
        if name not in self._made:
            self._made[name] = self._plain_of(name)
        return self._made[name]

    def _plain_of(self, name: str) -> pa.Array:
        if name == SEGMENT_ID:
            return self._of.segment_ids(self._times, self._count)
        datatype = self._of.columns.arrow.field(name).type
        if self._times is None:
            return pa.nulls(self._count, datatype)
        if name == self._of.columns.query.index:
            return pa.array(self._of.plain_times(self._times)).view(datatype)
        distinct = {id(rows): rows for rows, _ in self._located.values()}
        return self._of.other_times(name, distinct.values(), self._count).view(datatype)

    def _stand_in(self, name: str) -> pa.Array:
        """A column with nulls where the real one has them, as a predicate looks into no list."""
        column = self._of.columns.component(name)
        if column is None:
            return self._plain(name)
        if self._of.static(column) is not None:
            return pa.array([[]] * self._count, column.datatype)
        if name not in self._located:
            return pa.nulls(self._count, column.datatype)
        rows, _ = self._located[name]
        offsets = pa.array(np.zeros(self._count + 1, np.int32), mask=np.append(rows < 0, False))
        empty = pa.nulls(0, column.datatype.value_type)
        return pa.ListArray.from_arrays(offsets, empty, type=column.datatype)


def _united(times: Sequence[Integers]) -> Integers:
    """All times, ascending, each once."""
    if not times:
        return np.empty(0, np.int64)
    if len(times) == 1:
        return times[0]
    whole: Integers = np.sort(np.concatenate(times), kind="stable")
    return np.extract(np.append(True, whole[1:] != whole[:-1]), whole)


def within(values: Integers, window: tuple[int, int]) -> Integers:
    """Ascending values, those of them that are in a window."""
    first, stop = np.searchsorted(values, window[0]), np.searchsorted(values, window[1], side="right")
    return values[first:stop]
