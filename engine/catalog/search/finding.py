"""Events: runs of rows of a dataset in which a condition on values is true.

A segment is read only if the statistics of its chunks (:class:`~chunkmill.engine.rrd.LeafStatistics`) do not rule out
the condition, and only in the ranges of the index in which a chunk may fulfil it. The rows are those of
:meth:`DatasetView.reader`, so several values at one time, clears, layers and static values have the same effect.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...chunk import ComponentColumnDescriptor, Schema, TimelineKind
from ...errors import ReadWarning, UsageError, check_argument
from ...execution import RunOptions, executor_name
from ...query import SEGMENT_ID, ComponentFilter, QueriedSegment, Query, Windows
from ...rrd import ChunkTable, LeafStatistics, Times, Validity
from ...stream import Content, ContentFilter
from ...units import seconds_of
from ..segments import frame_of
from .conditions import TRUE, Condition, LeafComparison, Mask, Outcomes, ValueLeaf, Values, parse_condition

if TYPE_CHECKING:
    import datafusion

    from ..dataset import DatasetView

Integers = npt.NDArray[np.int64]

_TOMBSTONE: Final = "Clear:is_recursive"


@dataclass(frozen=True)
class Search:
    """A condition, the index of its rows, and the columns of its components. Picklable."""

    condition: Condition
    index: str | None
    columns: tuple[ComponentColumnDescriptor, ...]
    window: int | None

    @property
    def peaks(self) -> LeafComparison | None:
        """The comparison whose most extreme value each event reports, or None."""
        condition = self.condition
        is_ordered = isinstance(condition, LeafComparison) and condition.op in ("<", "<=", ">", ">=")
        return condition if isinstance(condition, LeafComparison) and is_ordered else None

    @property
    def peak_type(self) -> pa.DataType:
        """The type of the extreme value."""
        peaks = self.peaks
        if peaks is None or not pa.types.is_integer(peaks.leaf.kind):
            return pa.float64()
        return pa.uint64() if pa.types.is_unsigned_integer(peaks.leaf.kind) else pa.int64()

    @property
    def is_true_of_nulls(self) -> bool:
        """Whether the condition is true in a row without values."""
        nothing = Values(np.empty(0), np.empty(0, np.int64), 1)
        return bool(self.condition.truth(lambda _: nothing).is_true[0])


class _Choice(NamedTuple):
    """The part of a segment to read: ``windows`` of the index, or None for all. ``parting`` are the index values of
    rows outside of the windows. ``is_known``: the segment has statistics.
    """

    windows: Windows | None
    parting: Integers
    is_known: bool = True


_NO_VALUES: Final = np.empty(0, np.int64)
_NOTHING: Final = _Choice((), _NO_VALUES)
_ALL: Final = _Choice(None, _NO_VALUES)

Chunks = tuple[Times, Integers]
"""The times of a layer, and some of its chunks."""


@dataclass(frozen=True)
class SearchedSegment(QueriedSegment):
    """A segment, or a piece of one, whose batches are the runs of rows in which a condition is true.

    Each row of a batch is a run. With ``is_run`` false, it represents rows in which the condition is not true; with
    ``is_known`` false, it marks a segment without statistics.
    """

    search: Search | None = None
    choice: _Choice | None = None

    def batches(
        self,
        names: Sequence[str] | None = None,  # noqa: ARG002
        predicate: pc.Expression | None = None,  # noqa: ARG002
    ) -> Iterator[pa.RecordBatch]:
        """The runs, in the order of the index. Raises ``ReadError`` like a query, and for damaged statistics."""
        search = self.search
        assert search is not None
        if not self.may_have_rows:
            return
        choice = self._chosen()
        runs = _Runs(search, choice.parting)
        wanted = [*([search.index] if search.index else []), *(column.name for column in search.columns)]
        rows = iter(()) if choice.windows == () else QueriedSegment.batches(replace(self, choice=choice), wanted)
        yield from runs.batches(rows, is_known=choice.is_known)

    def reached(self, windows: Windows) -> Windows:
        """The ranges of the index in which the condition may be true."""
        choice = self.choice or self._chosen()
        return windows if choice.windows is None else choice.windows

    def _chosen(self) -> _Choice:
        search = self.search
        assert search is not None
        times = self.source.times()
        if any(some is None or not some.directory.has_statistics for some in times):
            return _ALL._replace(is_known=False)
        layers = [(some, np.arange(len(some))) for some in times if some is not None]
        if self._is_ruled_out(search, layers, {}):
            return _NOTHING
        tables = [layer.table for layer in self.source.references()]
        of_entity = {
            path: [(some, np.flatnonzero(_is_of(table, path))) for (some, _), table in zip(layers, tables, strict=True)]
            for path in {column.entity_path for column in search.columns}
        }
        if self._is_ruled_out(search, layers, of_entity):
            return _NOTHING
        is_static = any(
            table.is_static[rows].any()
            for some in of_entity.values()
            for (_, rows), table in zip(some, tables, strict=True)
        )
        if search.index is None or len(search.columns) > 1 or is_static or _have(layers, _TOMBSTONE):
            return _ALL
        return self._of_one(search, of_entity[search.columns[0].entity_path])

    def _is_ruled_out(self, search: Search, layers: Sequence[Chunks], of_entity: dict[str, list[Chunks]]) -> bool:
        """Return whether statistics of all chunks, or of the entities' chunks, rule out the condition in all rows."""
        is_one = len(search.columns) == 1
        if search.is_true_of_nulls and (not is_one or _have(layers, _TOMBSTONE)):
            return False
        chunks = {
            column.name: _having(of_entity.get(column.entity_path, layers), column.component)
            for column in search.columns
        }
        if is_one:
            return not (_outcomes(search, chunks[search.columns[0].name]) & TRUE).any()

        components = {column.name: column.component for column in search.columns}

        def whole(leaf: ValueLeaf) -> LeafStatistics:
            return _whole(_statistics(leaf, components[leaf.column], chunks[leaf.column]))

        return not (search.condition.outcomes(whole) & TRUE).any()

    def _of_one(self, search: Search, layers: Sequence[Chunks]) -> _Choice:
        """Choose windows for a condition on one component without static or cleared values."""
        component, index = search.columns[0].component, search.index
        assert index is not None
        windows: list[tuple[int, int]] = []
        others: list[Integers] = []
        for times, chunks in _having(layers, component):
            kinds = {kind for name, kind in times.timelines(chunks) if name == index}
            if len(kinds) > 1:
                return _ALL
            is_possible = (_outcomes(search, [(times, chunks)]) & TRUE) > 0
            for kind in kinds:
                some = times.index(index, kind, chunks[is_possible])
                windows += _ranges(some.values, some.ends)
                if search.window is None:
                    others += _event_times(times, index, kind, component, chunks[~is_possible])
        first, last = self.window or self.span or (0, -1)
        merged = _merged([(max(a, first), min(b, last)) for a, b in windows if a <= last and b >= first])
        parting = np.unique(np.concatenate([_NO_VALUES, *others]))
        parting = parting[(parting >= first) & (parting <= last)]
        starts, ends = np.array(merged, np.int64).reshape(-1, 2).T
        at = np.searchsorted(starts, parting, side="right") - 1
        is_inside = (at >= 0) & (parting <= ends[at]) if len(ends) else np.zeros(len(parting), np.bool_)
        return _Choice(tuple(merged), parting[~is_inside])


def _is_of(table: ChunkTable, entity: str) -> Mask:
    codes, paths = table.entity_codes
    return codes == paths.index(entity) if entity in paths else np.zeros(len(table), np.bool_)


def _have(layers: Sequence[Chunks], component: str) -> bool:
    return any(len(chunks) for _, chunks in _having(layers, component))


def _having(layers: Sequence[Chunks], component: str) -> list[Chunks]:
    """The chunks in which at least one row of a component is not null."""
    return [(times, chunks[times.states(component, chunks) != Validity.NULL]) for times, chunks in layers]


def _outcomes(search: Search, layers: Sequence[Chunks]) -> Outcomes:
    """Return the truth values that a condition on one component can have in each chunk."""
    component = search.columns[0].component
    return search.condition.outcomes(lambda leaf: _statistics(leaf, component, layers))


def _statistics(leaf: ValueLeaf, component: str, layers: Sequence[Chunks]) -> LeafStatistics:
    """The statistics of all values of a leaf in each chunk of layers."""
    some = [times.statistics(component, path, chunks) for path in leaf.paths for times, chunks in layers]
    count = sum(len(chunks) for _, chunks in layers)
    if not some:
        return LeafStatistics.unknown(count)
    paths = [_joined(some[at : at + len(layers)]) for at in range(0, len(some), len(layers))]
    merged = reduce(_merged_statistics, paths)
    return merged._replace(nulls=merged.nulls + 1) if leaf.may_lack else merged


def _joined(some: Sequence[LeafStatistics]) -> LeafStatistics:
    """The joined statistics of chunks, in order."""
    *arrays, texts = zip(*some, strict=True)
    return LeafStatistics._make([*map(np.concatenate, arrays), list(chain.from_iterable(texts))])


def _merged_statistics(a: LeafStatistics, b: LeafStatistics) -> LeafStatistics:
    """The joint statistics of two leaves' values."""
    return LeafStatistics(
        a.is_known & b.is_known,
        np.minimum(a.low, b.low),
        np.maximum(a.high, b.high),
        a.num_values + b.num_values,
        a.nulls + b.nulls,
        a.has_nan | b.has_nan,
        [None if x is None or y is None else x | y for x, y in zip(a.texts, b.texts, strict=True)],
    )


def _whole(some: LeafStatistics) -> LeafStatistics:
    """The statistics of all chunks as one chunk. It has a null, as there may be times before the first value."""
    texts = None if None in some.texts else frozenset[str]().union(*filter(None, some.texts))
    return LeafStatistics(
        np.array([some.is_known.all()]),
        np.array([some.low.min(initial=np.inf)]),
        np.array([some.high.max(initial=-np.inf)]),
        np.array([some.num_values.sum()]),
        np.array([some.nulls.sum() + 1]),
        np.array([some.has_nan.any()]),
        [texts],
    )


def _ranges(values: Integers, ends: Integers) -> list[tuple[int, int]]:
    """The first and the last value of each chunk with values."""
    starts = ends[:-1][np.diff(ends) > 0]
    if not len(starts):
        return []
    return list(
        zip(np.minimum.reduceat(values, starts).tolist(), np.maximum.reduceat(values, starts).tolist(), strict=True)
    )


def _event_times(times: Times, index: str, kind: TimelineKind, component: str, chunks: Integers) -> list[Integers]:
    """The index values of the rows of chunks in which a component is not null."""
    if not len(chunks):
        return []
    values, validity = times.index(index, kind, chunks), times.validity(component, chunks)
    has_index = np.repeat(np.diff(values.ends) > 0, np.diff(validity.ends))
    return [values.values[validity.values[has_index] != Validity.NULL]]


def _merged(windows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ascending ranges without overlap.

    >>> _merged([(5, 9), (0, 3), (8, 12)])
    [(0, 3), (5, 12)]
    """
    merged: list[tuple[int, int]] = []
    for first, last in sorted(windows):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return merged


# --- runs of rows


@dataclass
class _Run:
    """Rows in which the condition is true, from index value ``start`` to ``end``."""

    start: int
    end: int
    rows: int
    peak: Any = None
    peak_at: int | None = None

    def add(self, other: _Run, sign: int) -> None:
        """Join a later run into this one."""
        self.end = max(self.end, other.end)
        self.rows += other.rows
        if self.peak is None or (
            other.peak is not None and (other.peak > self.peak if sign > 0 else other.peak < self.peak)
        ):
            self.peak, self.peak_at = other.peak, other.peak_at


_ROWS: Final = 4096
"""The least number of runs of a batch, except the last."""


class _Runs:
    """Finds the runs in the rows of a segment, or a piece of one, as they are read."""

    def __init__(self, search: Search, parting: Integers) -> None:
        self._search = search
        self._parting = parting
        self._schema = pa.schema(
            [
                ("is_known", pa.bool_()),
                ("is_run", pa.bool_()),
                ("start", pa.int64()),
                ("end", pa.int64()),
                ("rows", pa.int64()),
                ("peak", search.peak_type),
                ("peak_at", pa.int64()),
            ]
        )
        self._first = 0
        self._open: tuple[_Run, int] | None = None

    def batches(self, rows: Iterable[pa.RecordBatch], *, is_known: bool) -> Iterator[pa.RecordBatch]:
        """The runs, with a row for other rows between two runs."""
        waiting: list[_Run | None] = []
        previous: tuple[int | None, int] = None, 0
        if not is_known:
            yield self._batch([None], is_known=False)
        for batch in rows:
            for run, first, stop in self._runs_of(batch):
                if self._is_parted(previous, run.start, first):
                    waiting.append(None)
                waiting.append(run)
                previous = run.end, stop
            if len(waiting) >= _ROWS:
                yield self._batch(waiting)
                waiting = []
        if self._is_parted(previous, None, self._first):
            waiting.append(None)
        if waiting:
            yield self._batch(waiting)

    def _is_parted(self, previous: tuple[int | None, int], start: int | None, first: int) -> bool:
        """Return whether there are rows between two runs in which the condition is not true."""
        end, stop = previous
        if first > stop:
            return True
        begin = 0 if end is None else np.searchsorted(self._parting, end, side="right")
        return bool((len(self._parting) if start is None else np.searchsorted(self._parting, start)) > begin)

    def _batch(self, runs: Sequence[_Run | None], *, is_known: bool = True) -> pa.RecordBatch:
        rows = [
            {"is_known": is_known, "is_run": False} if run is None else {"is_known": True, "is_run": True, **vars(run)}
            for run in runs
        ]
        return pa.RecordBatch.from_pylist(rows, self._schema)

    def _runs_of(self, batch: pa.RecordBatch) -> Iterator[tuple[_Run, int, int]]:
        """The runs of a batch, each with the number of its first row and the number after its last row."""
        search, offset = self._search, self._first
        self._first += len(batch)
        if not len(batch):
            return
        cache: dict[ValueLeaf, Values] = {}

        def values(leaf: ValueLeaf) -> Values:
            if leaf not in cache:
                cache[leaf] = leaf.values(batch.column(leaf.column))
            return cache[leaf]

        rows = np.flatnonzero(search.condition.truth(values).is_true)
        if not len(rows):
            return
        times = np.zeros(len(batch), np.int64)
        if search.index is not None:
            times = np.asarray(batch.column(search.index).cast(pa.int64()))
        ticks = times[rows]
        breaks = np.diff(rows) > 1
        if search.window is not None:
            breaks = np.diff(ticks) > search.window
        elif len(self._parting):
            breaks |= np.diff(np.searchsorted(self._parting, ticks)) > 0
        starts = np.concatenate([[0], np.flatnonzero(breaks) + 1])
        stops = np.append(starts[1:], len(rows))
        peaks = search.peaks
        extremes = None if peaks is None else _extremes(peaks, values(peaks.leaf), rows)
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            run = _Run(int(ticks[start]), int(ticks[stop - 1]), stop - start)
            if extremes is not None and peaks is not None:
                some = extremes[start:stop]
                at = int(some.argmax() if peaks.op in (">", ">=") else some.argmin())
                run.peak, run.peak_at = some[at].item(), int(ticks[start + at])
            yield run, offset + int(rows[start]), offset + int(rows[stop - 1]) + 1


def _extremes(comparison: LeafComparison, some: Values, rows: Integers) -> npt.NDArray[Any]:
    """The most extreme value of each of ``rows``, in which the comparison is true."""
    holds = comparison.holds(some.values)
    values, owners = some.values[holds], some.owners[holds]
    function = np.maximum if comparison.op in (">", ">=") else np.minimum
    extremes: npt.NDArray[Any] = function.reduceat(values, np.searchsorted(owners, rows))
    return extremes


# --- the method


class ValueSearch:
    """The method of a dataset or view that finds events."""

    def find(
        self,
        condition: str,
        *,
        index: str | None = None,
        window: float | str | timedelta | None = None,
        contents: Content | None = None,
        segments: Any = None,
        executor: str | None = None,
    ) -> datafusion.DataFrame:
        """Find events: runs of rows in which a condition on values is true.

        The rows are those of :meth:`reader` with the columns in the condition; with several columns, each has its
        latest value. Segments and chunks whose statistics rule out the condition are not read. Recordings copied into a
        lake have statistics; for others, :meth:`do_maintenance` with ``optimize_indexes`` creates them.

        The columns are ``rerun_segment_id``, ``start`` and ``end`` (index values, both inclusive), ``peak`` and
        ``peak_at``, and ``rows``. If the condition is a single ``>`` or ``>=``, ``peak`` is the largest value and
        ``peak_at`` its first index value; for ``<`` or ``<=``, the smallest value; otherwise both are null. Events are
        in the order of the segments and of the index. You can pass them to :meth:`filter_segments`.

        Parameters
        ----------
        condition
            Comparisons of leaves, as in ``/imu:Imu:accel[0] > 9.8 AND NOT /robot:State:mode = 'manual'``. See
            `Find by value <../queries.md#find-by-value>`_ for its parts.
        index
            The index of rows; optional if the dataset has only one. If all columns are static, no index is needed, and
            ``start`` and ``end`` are null.
        window
            Matching rows at most this far apart are one event: seconds or ``"10s"``, or steps of a sequence index. By
            default, the first row that does not match ends an event.
        contents
            Only columns of these entities, as for :meth:`filter_contents`.
        segments
            Only these segments, as for :meth:`filter_segments`.
        executor
            ``inline`` or ``spark``, as for :meth:`reader`.

        Raises
        ------
        ValueError
            The condition is invalid, a column, leaf or index does not exist, or there are several indexes and ``index``
            is missing.
        TypeError
            An argument has another type.
        """
        check_argument("condition", condition, str)
        view: Any = self
        if contents is not None:
            view = view.filter_contents(contents)
        if segments is not None:
            view = view.filter_segments(segments)
        executor_name(executor)
        return frame_of(_events_of(view, condition, index, window, RunOptions(executor)))


def _events_of(
    view: DatasetView, text: str, index: str | None, window: float | str | timedelta | None, run: RunOptions
) -> pa.Table:
    schema = view.arrow_schema()
    described = Schema.from_arrow(schema)
    by_name = {column.name: column for column in described.component_columns()}
    condition = parse_condition(text, {name: schema.field(name).type for name in by_name})
    columns = tuple(by_name[name] for name in dict.fromkeys(leaf.column for leaf in condition.leaves()))
    if index is None and not all(column.is_static for column in columns):
        index = _only_index([column.name for column in described.index_columns()])
    entities = dict.fromkeys(column.entity_path for column in columns)
    rules = tuple(
        (ContentFilter((entity,)), frozenset(column.component for column in columns if column.entity_path == entity))
        for entity in entities
    )
    query = Query.of(
        index,
        ContentFilter(tuple(entities)),
        include_semantically_empty_columns=True,
        include_tombstone_columns=True,
        fill_latest_at=index is not None and len(columns) > 1,
        semantics=view.dataset.catalog.semantics,
    )
    answer, queried = view.queried(replace(query, components=ComponentFilter(rules)))
    index = answer.query.index
    kind = pa.int64() if index is None else answer.arrow.field(index).type
    search = Search(condition, index, columns, _ticks(window, kind, index))
    searched = [SearchedSegment(**vars(segment), search=search) for segment in queried]
    table, unknown = _events(searched, search, kind, run)
    if unknown:
        warnings.warn(
            f"{unknown:,} of {len(searched):,} segments of dataset {view.dataset.name!r} have no "
            "statistics of values, and were read completely; "
            "dataset.do_maintenance(optimize_indexes=True) creates them",
            ReadWarning,
            stacklevel=3,
        )
    return table


def _only_index(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    if not names:
        raise UsageError("the dataset has no index, but the condition needs one")
    raise UsageError("there are several indexes, but index= is missing", hint=f"There are: {', '.join(names)}.")


def _ticks(window: float | str | timedelta | None, kind: pa.DataType, index: str | None) -> int | None:
    """Return the largest distance between rows of one event, in units of the index."""
    if window is None or index is None:
        return None
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        seconds = window.total_seconds() if isinstance(window, timedelta) else seconds_of(window)
        ticks = seconds * 1e9
    else:
        if isinstance(window, timedelta) or (isinstance(window, str) and not window.strip().isdigit()):
            raise UsageError(
                f"window={window!r} is a time, but the index {index} has no times", hint="Give a number of steps."
            )
        ticks = float(window)
    if not 0 <= ticks < 1 << 63:
        raise UsageError(f"window={window!r} is not a distance on the index {index}")
    return int(ticks)


def _events(
    segments: Sequence[SearchedSegment], search: Search, kind: pa.DataType, run: RunOptions
) -> tuple[pa.Table, int]:
    """The events of segments, and the number of segments without statistics."""
    from ...frames import RowRequest, rows_of

    sign = 1 if search.peaks is None or search.peaks.op in (">", ">=") else -1
    events: list[tuple[str, _Run]] = []
    unknown = 0
    rows = rows_of(segments, RowRequest(), run)
    try:
        for number, segment in enumerate(segments):
            last: _Run | None = None
            is_known = True
            for batch in rows.rows(number):
                for row in batch.to_pylist():
                    has_statistics = row.pop("is_known")
                    is_known &= has_statistics
                    if not row.pop("is_run"):
                        last = None if has_statistics and search.window is None else last
                        continue
                    event = _Run(**row)
                    if last is not None and (search.window is None or event.start - last.end <= search.window):
                        last.add(event, sign)
                    else:
                        last = event
                        events.append((segment.segment_id, event))
            unknown += not is_known
    finally:
        rows.close()
    has_index = search.index is not None
    columns = {
        SEGMENT_ID: pa.array([id_ for id_, _ in events], pa.string()),
        **{
            name: pa.array([getattr(event, name) if has_index else None for _, event in events], pa.int64()).cast(kind)
            for name in ("start", "end")
        },
        "peak": pa.array([event.peak for _, event in events], search.peak_type),
        "peak_at": pa.array([event.peak_at if has_index else None for _, event in events], pa.int64()).cast(kind),
        "rows": pa.array([event.rows for _, event in events], pa.int64()),
    }
    return pa.table(columns), unknown
