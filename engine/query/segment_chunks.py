"""The chunks of a segment that a query needs, chosen by manifests and by the query's filter."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UnsupportedError
from ..rrd import ChunkTable
from .events import TOMBSTONE, ChunkRanges, ancestors, spread
from .query import SEGMENT_ID, AnswerColumns, Integers, Key, Mask

if TYPE_CHECKING:
    import pyarrow.dataset as ds

Windows = Sequence[tuple[int, int]]
"""Ascending ranges of index values without overlap, with both ends included."""

_MOST: Final = np.iinfo(np.int64).max


class ChunkCells(NamedTuple):
    """Components of a table's chunks: the chunk's row, the component, and the range of its events on the index."""

    rows: Integers
    keys: list[Key]
    codes: Integers
    starts: Integers
    ends: Integers


class SegmentChunks:
    """The chunks of a segment that are relevant to a query, from the manifests of its layers.

    Chunks are numbered consecutively over the layers. ``static`` are chunks without an index that may have a column of
    the result. ``unclear`` are other chunks, whose components are known only after reading.
    """

    def __init__(self, columns: AnswerColumns, tables: Sequence[ChunkTable]) -> None:
        self.is_filled = columns.query.fill_latest_at
        self._claimed: dict[Key, ChunkRanges] = {}
        self.layer_starts = np.cumsum([0, *map(len, tables)])
        unclear: list[Integers] = []
        lasting: list[tuple[int, Integers, Integers, list[Key]]] = []
        cells: list[ChunkCells] = []
        above = ancestors(c.entity_path for c in columns.visible)
        wanted = {(c.entity_path, c.component) for c in columns.visible} | {(entity, TOMBSTONE) for entity in above}
        for first, table in zip(self.layer_starts.tolist(), tables, strict=False):
            keys, is_wanted = _wanted(table, wanted)
            rows = np.repeat(np.arange(len(table)), np.diff(table.components.ends))
            at = np.flatnonzero((is_wanted >= 0) & table.is_static[rows])
            lasting.append((first, rows[at], is_wanted[at], keys))
            unclear.append(first + _unclear(table, above))
            cells.append(_cells(table, columns.query.index, keys, is_wanted))
        numbers: dict[Key, int] = {}
        for some in cells:
            for key in some.keys:
                numbers.setdefault(key, len(numbers))
        is_static = np.concatenate([np.empty(0, np.bool_), *(table.is_static for table in tables)])
        unknown = _joined(unclear)
        self.unclear = unknown[~is_static[unknown]]
        self._static = _joined([first + rows for first, rows, _, _ in lasting])
        self._static_key = _joined([_coded(numbers, keys, codes) for _, _, codes, keys in lasting])
        self.static = np.unique(np.concatenate([self._static, unknown[is_static[unknown]]]))
        self._chunk = _joined([first + c.rows for first, c in zip(self.layer_starts.tolist(), cells, strict=False)])
        self._keys = numbers
        self._key = _joined([_coded(numbers, some.keys, some.codes) for some in cells])
        self._is_clear = np.array([key[1] == TOMBSTONE for key in numbers], np.bool_)
        self.starts = _joined([some.starts for some in cells])
        """The times at which the events of each component of each chunk begin."""
        self.ends = _joined([some.ends for some in cells])

    def __len__(self) -> int:
        return int(self.layer_starts[-1])

    def claimed(self, key: Key) -> ChunkRanges:
        """Return the recorded ranges of the events of a component, by ascending numbers of chunks."""
        if key not in self._claimed:
            cells = np.flatnonzero(self._key == self._keys.get(key, -1))
            cells = cells[np.argsort(self._chunk[cells], kind="stable")]
            self._claimed[key] = ChunkRanges(self._chunk[cells], self.starts[cells], self.ends[cells])
        return self._claimed[key]

    def by_layer(self, numbers: Integers) -> list[Integers]:
        """The rows in each layer's table for ascending chunk numbers."""
        bounds = pairwise(self.layer_starts.tolist())
        return [numbers[slice(*np.searchsorted(numbers, [first, stop]))] - first for first, stop in bounds]

    def with_values(self, keys: Collection[Key]) -> Mask:
        """The mask of the chunks that have or may have values of some components, or clears."""
        is_wanted = np.array([key in keys for key in self._keys], np.bool_) | self._is_clear
        mask = np.zeros(len(self), np.bool_)
        mask[self._chunk[is_wanted[self._key]]] = True
        mask[self._static[is_wanted[self._static_key]]] = True
        mask[self.unclear] = True
        return mask

    def needed(self, windows: Windows | None, given: Integers | None = None) -> Integers:
        """The numbers of the chunks needed for the rows in ``windows`` (None: all), except static chunks.

        With ``given``, only rows of these values count. For filled rows, this adds the chunks that can have the last
        event of a component before them, and all clears before the end.
        """
        is_needed = self._of_values(given) if given is not None else self._of_windows(windows)
        mask = np.zeros(len(self), np.bool_)
        mask[self._chunk[is_needed]] = True
        mask[self.unclear] = True
        return np.flatnonzero(mask)

    def needed_of_each(self, owner: Integers, begin: Integers, end: Integers) -> Integers:
        """The numbers of the needed chunks of several segments, like :meth:`needed`, except static chunks.

        ``owner`` is the segment of each chunk, ``begin`` and ``end`` the window of each segment, which may be empty.
        """
        of = owner[self._chunk]
        begins = begin[of]
        is_needed = (self.starts <= end[of]) & (self.ends >= begins)
        if self.is_filled:
            key = self._key * len(begin) + of
            early = self.starts < begins
            latest = np.full(len(self._keys) * len(begin), np.iinfo(np.int64).min)
            np.maximum.at(latest, key[early], np.where(self.ends < begins, self.ends, self.starts)[early])
            surely = np.minimum(self.ends, begins - 1) >= latest[key]
            is_needed |= early & (surely | self._is_clear[self._key])
        mask = np.zeros(len(self), np.bool_)
        mask[self._chunk[is_needed]] = True
        mask[self.unclear] = True
        return np.flatnonzero(mask & (begin <= end)[owner])

    def _of_windows(self, windows: Windows | None) -> Mask:
        if windows is None:
            return np.ones(len(self._chunk), np.bool_)
        begins, ends = np.array(windows, np.int64).reshape(-1, 2).T
        mask = self._touching(begins, ends)
        return mask | self._before(begins) if self.is_filled else mask

    def _of_values(self, given: Integers) -> Mask:
        if not self.is_filled:
            return self._touching(given, given)
        return self._before(np.minimum(given, _MOST - 1) + 1) | self._touching(given[-1:], given[-1:])

    def _touching(self, begins: Integers, ends: Integers) -> Mask:
        """The cells that may have events in ascending ranges."""
        if not len(begins):
            return np.zeros(len(self._chunk), np.bool_)
        at = np.searchsorted(ends, self.starts)
        mask: Mask = (at < len(begins)) & (begins[np.minimum(at, len(begins) - 1)] <= self.ends)
        return mask

    def _before(self, begins: Integers) -> Mask:
        """The cells that can have their component's last event before one of some times, and clears.

        These are the cells that reach over such a time, and the cells that end last before it, unless a cell that
        reaches over the time begins after their end.
        """
        mask = np.zeros(len(self._chunk), np.bool_)
        if not len(begins) or not len(self._chunk):
            return mask
        at = np.searchsorted(begins, self.starts, side="right")
        mask |= (at < len(begins)) & (begins[np.minimum(at, len(begins) - 1)] <= self.ends)
        mask |= self._is_clear[self._key] & (self.starts < begins[-1])
        edges, starts, ends, by_end = self._places
        places = np.unique(np.searchsorted(edges, begins)) + (np.arange(len(self._keys)) * (len(edges) + 1))[:, None]
        last_start, last_end = (_last_before(some, places.ravel(), len(edges) + 1) for some in (starts, ends))
        latest = np.unique(last_end[(last_end >= 0) & (last_end >= last_start)])
        first, stop = np.searchsorted(ends, latest), np.searchsorted(ends, latest, side="right")
        mask[by_end[spread(first, stop - first)]] = True
        return mask

    @cached_property
    def _places(self) -> tuple[Integers, Integers, Integers, Integers]:
        """The distinct starts and ends; the ascending starts and ends, as numbers of a component and a place among
        these; and the cells in the order of their ends.
        """
        edges = np.unique(np.concatenate([self.starts, self.ends]))
        base = self._key * (len(edges) + 1)
        starts, ends = base + np.searchsorted(edges, self.starts), base + np.searchsorted(edges, self.ends)
        by_end = np.argsort(ends, kind="stable")
        return edges, np.sort(starts), ends[by_end], by_end

    def cuts(self, chunks: Integers, costs: Integers, budget: int) -> list[int]:
        """Return the index values to cut at. The ``chunks`` that begin between two cuts cost about ``budget``.

        ``costs`` has the costs of all chunks.
        """
        begins = np.full(len(self), _MOST)
        np.minimum.at(begins, self._chunk, self.starts)
        begins, weights = begins[chunks], costs[chunks]
        order = np.argsort(begins, kind="stable")
        begins, parts = begins[order], (np.cumsum(weights[order]) - weights[order]) // max(budget, 1)
        cuts = np.unique(begins[np.flatnonzero(np.diff(parts)) + 1])
        return [int(begin) for begin in cuts if begin < _MOST]


def _last_before(places: Integers, before: Integers, size: int) -> Integers:
    """The greatest of ascending ``places`` below each of ``before``, in the same run of ``size``, or -1."""
    at = np.searchsorted(places, before) - 1
    last = places[np.maximum(at, 0)]
    return np.where((at >= 0) & (last // size == before // size), last, -1)


def _wanted(table: ChunkTable, wanted: Collection[Key]) -> tuple[list[Key], Integers]:
    """Return a table's wanted components, and for each cell the number of its component, or -1."""
    (entities, paths), parts = table.entity_codes, table.components
    names = [descriptor.component for descriptor in parts.descriptors]
    keys: list[Key] = []
    numbers = np.full((len(paths), len(names)), -1, np.int64)
    for entity, path in enumerate(paths):
        for part, name in enumerate(names):
            if (path, name) in wanted:
                numbers[entity, part] = len(keys)
                keys.append((path, name))
    return keys, numbers[np.repeat(entities, np.diff(parts.ends)), parts.codes]


def _coded(numbers: Mapping[Key, int], keys: Sequence[Key], codes: Integers) -> Integers:
    return np.array([numbers[key] for key in keys], np.int64)[codes]


def _unclear(table: ChunkTable, above: Collection[str]) -> Integers:
    """Return the chunks of relevant entities for which the table has no components."""
    codes, paths = table.entity_codes
    is_above = np.array([path in above for path in paths], np.bool_)
    return np.flatnonzero((np.diff(table.components.ends) == 0) & is_above[codes])


def _cells(table: ChunkTable, index: str | None, keys: list[Key], is_wanted: Integers) -> ChunkCells:
    """The wanted components of chunks that have events on the index."""
    lines, parts = table.timelines, table.components
    of_index = np.array([name == index for name, _ in lines.keys], np.bool_)[lines.codes]
    line = np.full(len(table), -1, np.int64)
    chunk = np.repeat(np.arange(len(table)), np.diff(lines.ends))[of_index]
    line[chunk] = np.flatnonzero(of_index) - lines.ends[:-1][chunk]
    row = np.repeat(np.arange(len(table)), np.diff(parts.ends))
    cells = np.flatnonzero((is_wanted >= 0) & (line[row] >= 0))
    ranges = parts.range_ends[:-1][cells] + line[row[cells]]
    cells, ranges = cells[parts.is_known[ranges]], ranges[parts.is_known[ranges]]
    return ChunkCells(row[cells], keys, is_wanted[cells], parts.start[ranges], parts.end[ranges])


def _joined(arrays: Sequence[Integers]) -> Integers:
    return np.concatenate([np.empty(0, np.int64), *arrays])


_MOST_WINDOWS: Final = 64
"""The most ranges of a segment's index that are tested separately."""


def satisfiable(predicate: pc.Expression, guarantees: Iterable[pc.Expression], schema: pa.Schema) -> list[int]:
    """The numbers of the guarantees under which a row of ``schema`` may pass a predicate.

    Raises ``UnsupportedError`` for a predicate that Arrow cannot evaluate.
    """
    import pyarrow.dataset as ds
    from pyarrow.fs import LocalFileSystem

    kind, place = ds.IpcFileFormat(), LocalFileSystem()
    fragments: list[ds.FileFragment] = [
        kind.make_fragment(str(number), place, partition_expression=guarantee)
        for number, guarantee in enumerate(guarantees)
    ]
    dataset = ds.FileSystemDataset(fragments, schema, kind)
    try:
        return [int(fragment.path) for fragment in dataset.get_fragments(predicate)]
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedError(
            f"the filter {predicate} cannot be evaluated: {error}",
            hint="Collect the rows with to_arrow_table() first, and then filter them.",
        ) from error


def segment_guarantee(
    columns: AnswerColumns, segment_id: str, span: tuple[int, int] | None, lacking: pc.Expression | None
) -> pc.Expression:
    """The facts about every row of a segment with index values within ``span`` (inclusive)."""
    guarantee = pc.field(SEGMENT_ID) == segment_id if columns.query.names_segments else pc.scalar(True)
    if lacking is not None:
        guarantee = guarantee & lacking
    return guarantee if span is None else guarantee & index_guarantee(columns, span)


def lacking_guarantee(columns: AnswerColumns, component_keys: Collection[Key]) -> pc.Expression | None:
    """Return the condition that all missing components are null, or None if none is missing."""
    guarantee = None
    for column in columns.components:
        if (column.entity_path, column.component) not in component_keys:
            is_null = pc.field(column.name).is_null()
            guarantee = is_null if guarantee is None else guarantee & is_null
    return guarantee


def index_guarantee(columns: AnswerColumns, span: tuple[int, int]) -> pc.Expression:
    """The fact that the index is within ``span`` (inclusive)."""
    assert columns.query.index is not None
    field = pc.field(columns.query.index)
    first, last = pa.array(span, pa.int64()).view(columns.arrow.field(columns.query.index).type)
    return (field >= first) & (field <= last)


def windows_of(
    columns: AnswerColumns, predicate: pc.Expression, segment_id: str, span: tuple[int, int], starts: Integers
) -> Windows:
    """The ranges of a segment's index in which a predicate may hold. Ranges may begin at ``starts``."""
    inside = np.unique(starts[(starts > span[0]) & (starts <= span[1])])
    if len(inside) >= _MOST_WINDOWS:
        inside = inside[np.linspace(0, len(inside) - 1, _MOST_WINDOWS).astype(np.int64)]
    begins = [span[0], *np.unique(inside).tolist()]
    ends = [begin - 1 for begin in begins[1:]] + [span[1]]
    bounds = list(zip(begins, ends, strict=True))
    guarantees = [segment_guarantee(columns, segment_id, window, None) for window in bounds]
    windows: list[tuple[int, int]] = []
    for number in satisfiable(predicate, guarantees, columns.arrow):
        begin, end = bounds[number]
        if windows and windows[-1][1] + 1 == begin:
            begin = windows.pop()[0]
        windows.append((begin, end))
    return windows


class HashedPredicate:
    """A predicate over columns as a key of a cache: predicates themselves have no hash."""

    def __init__(self, columns: AnswerColumns, predicate: pc.Expression) -> None:
        self.columns = columns
        self.predicate = predicate
        self._key = (str(predicate), columns.query.index, tuple(columns.arrow.names))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashedPredicate) and self._key == other._key


@lru_cache(maxsize=256)
def is_implied(asked: HashedPredicate, first: int, last: int) -> bool:
    """Return whether a predicate is true in all rows between two index values."""
    guarantee = index_guarantee(asked.columns, (first, last))
    return not satisfiable(~asked.predicate, [guarantee], asked.columns.arrow)


@lru_cache(maxsize=256)
def hull_of(asked: HashedPredicate, first: int, last: int) -> tuple[int, int] | None:
    """Return the first and the last index value, from ``first`` to ``last``, at which a predicate can hold, or None."""

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
