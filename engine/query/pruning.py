"""Pruning: the segments and ranges of an index in which a filter can hold, and the chunks that these need.

A filter is an expression of Arrow, and what rules it out is Arrow's own reasoning: a range of rows is a fragment that
guarantees something, such as the bounds of its index, and a filter that cannot hold under that leaves no fragment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UnsupportedError
from ..rrd import ChunkTable
from .events import TOMBSTONE, Key, Mask, ancestors
from .query import SEGMENT_ID, AnswerColumns, Integers
from .rows import Windows

if TYPE_CHECKING:
    import pyarrow.dataset as ds

_MOST_WINDOWS: Final = 64
"""Ranges of a segment's index that are looked at by themselves."""


def satisfiable(predicate: pc.Expression, guarantees: Iterable[pc.Expression], schema: pa.Schema) -> list[int]:
    """The places of the guarantees under which a predicate over columns of ``schema`` may hold for some row.

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
            hint="Collect the rows with to_arrow_table() first, and filter them then.",
        ) from error


def segment_guarantee(
    columns: AnswerColumns, segment_id: str, span: tuple[int, int] | None, lacking: pc.Expression | None
) -> pc.Expression:
    """The facts of every row of a segment, whose index values are within ``span`` (inclusive)."""
    found = pc.field(SEGMENT_ID) == segment_id if columns.query.names_segments else pc.scalar(True)
    if lacking is not None:
        found = found & lacking
    return found if span is None else found & index_guarantee(columns, span)


def lacking_guarantee(columns: AnswerColumns, there: Collection[Key]) -> pc.Expression | None:
    """The fact that the components that a segment lacks are null in it; None where it lacks none."""
    found = None
    for column in columns.components:
        if (column.entity_path, column.component) not in there:
            is_null = pc.field(column.name).is_null()
            found = is_null if found is None else found & is_null
    return found


def index_guarantee(columns: AnswerColumns, span: tuple[int, int]) -> pc.Expression:
    """The fact that the index is within ``span`` (inclusive)."""
    assert columns.query.index is not None
    field = pc.field(columns.query.index)
    first, last = pa.array(span, pa.int64()).view(columns.arrow.field(columns.query.index).type)
    return (field >= first) & (field <= last)


def windows_of(
    columns: AnswerColumns, predicate: pc.Expression, segment_id: str, span: tuple[int, int], starts: Integers
) -> Windows:
    """The ranges of a segment's index in which a predicate may hold. ``starts`` are where ranges may begin."""
    inside = np.unique(starts[(starts > span[0]) & (starts <= span[1])])
    if len(inside) >= _MOST_WINDOWS:
        inside = inside[np.linspace(0, len(inside) - 1, _MOST_WINDOWS).astype(np.int64)]
    begins = [span[0], *np.unique(inside).tolist()]
    ends = [begin - 1 for begin in begins[1:]] + [span[1]]
    bounds = list(zip(begins, ends, strict=True))
    guarantees = [segment_guarantee(columns, segment_id, window, None) for window in bounds]
    found: list[tuple[int, int]] = []
    for number in satisfiable(predicate, guarantees, columns.arrow):
        begin, end = bounds[number]
        if found and found[-1][1] + 1 == begin:
            begin = found.pop()[0]
        found.append((begin, end))
    return found


# --- chunks


class ChunkCells(NamedTuple):
    """Components of chunks of one table: the chunk's row, the component, and where its events on the index lie."""

    rows: Integers
    keys: list[Key]
    codes: Integers
    starts: Integers
    ends: Integers


class SegmentChunks:
    """The chunks of a segment that have something to do with a query, over the manifests of its layers.

    What is static is always needed, and what only the chunks themselves know.
    """

    def __init__(self, columns: AnswerColumns, tables: Sequence[ChunkTable]) -> None:
        self._is_filled = columns.query.fill_latest_at
        self._always: list[Mask] = []
        cells: list[ChunkCells] = []
        bytes_: list[Integers] = []
        above = ancestors(c.entity_path for c in columns.visible)
        wanted = {(c.entity_path, c.component) for c in columns.visible} | {(entity, TOMBSTONE) for entity in above}
        for table in tables:
            keys, is_wanted = _wanted(table, wanted)
            self._always.append(_always(table, is_wanted, above))
            bytes_.append(np.maximum(table.uncompressed_sizes, table.sizes).astype(np.int64))
            cells.append(_cells(table, columns.query.index, keys, is_wanted))
        numbers: dict[Key, int] = {}
        for some in cells:
            for key in some.keys:
                numbers.setdefault(key, len(numbers))
        self._layer = np.repeat(np.arange(len(cells)), [len(some.rows) for some in cells])
        self._bytes = bytes_
        self._row = _joined([some.rows for some in cells])
        self._key = _joined([np.array([numbers[key] for key in some.keys], np.int64)[some.codes] for some in cells])
        self._is_clear = np.array([key[1] == TOMBSTONE for key in numbers], np.bool_)[self._key]
        self.starts = _joined([some.starts for some in cells])
        """Where the events of each component of each chunk begin."""
        self._ends = _joined([some.ends for some in cells])

    def cuts(self, budget_bytes: int) -> list[int]:
        """The index values to cut at, so that about ``budget_bytes`` of chunks, uncompressed, begin in each window."""
        starts, sizes = [], []
        for layer, of_layer in enumerate(self._bytes):
            begin = np.full(len(of_layer), np.iinfo(np.int64).max)
            mine = self._layer == layer
            np.minimum.at(begin, self._row[mine], self.starts[mine])
            rows = np.unique(self._row[mine])
            starts.append(begin[rows])
            sizes.append(of_layer[rows])
        begins, weights = _joined(starts), _joined(sizes)
        order = np.argsort(begins, kind="stable")
        begins, before = begins[order], np.cumsum(weights[order]) - weights[order]
        cuts = np.searchsorted(
            before // max(budget_bytes, 1), np.arange(1, 1 + int(before.max(initial=0)) // max(budget_bytes, 1))
        )
        found = np.unique(begins[cuts])
        return [int(begin) for begin in found]

    def needed(self, windows: Windows | None) -> list[Integers]:
        """The rows of each table whose chunks are needed for the rows in ``windows`` (None: all).

        Where rows are filled, these are also, for each component, the chunks that can hold the last event before a
        window, and all clears.
        """
        if windows is None:
            is_needed = np.ones(len(self._row), np.bool_)
        else:
            is_needed = np.zeros(len(self._row), np.bool_)
            for begin, end in windows:
                is_needed |= (self.starts <= end) & (self._ends >= begin)
                if self._is_filled:
                    is_needed |= self._before(np.int64(begin), self._key)
        found = []
        for layer, always in enumerate(self._always):
            chosen = always.copy()
            chosen[self._row[is_needed & (self._layer == layer)]] = True
            found.append(np.flatnonzero(chosen))
        return found

    def needed_of_each(self, owner: Integers, begin: Integers, end: Integers) -> Mask:
        """The chunks of one table with several segments that are needed, as :meth:`needed` says.

        ``owner`` is the segment of each chunk, ``begin`` and ``end`` the window of each segment, which may be empty.
        """
        of = owner[self._row]
        is_needed = (self.starts <= end[of]) & (self._ends >= begin[of])
        if self._is_filled:
            is_needed |= self._before(begin[of], self._key * len(begin) + of)
        found = self._always[0].copy()
        found[self._row[is_needed]] = True
        return found & (begin <= end)[owner]

    def _before(self, begin: Integers | np.int64, key: Integers) -> Mask:
        """The cells that can hold the last event of their component before a time, and clears.

        ``key`` is the number of the component of each cell.
        """
        early = self.starts < begin
        last = np.minimum(self._ends, begin - 1)
        surely = np.where(self._ends < begin, self._ends, self.starts)
        latest = np.full(int(key.max(initial=-1)) + 1, np.iinfo(np.int64).min)
        np.maximum.at(latest, key[early], surely[early])
        return early & ((last >= latest[key]) | self._is_clear)


def _wanted(table: ChunkTable, wanted: Collection[Key]) -> tuple[list[Key], Integers]:
    """The components of a table that are wanted, and for each cell of its components which of them it is, or -1."""
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


def _always(table: ChunkTable, is_wanted: Integers, above: Collection[str]) -> Mask:
    """The chunks that are needed whatever rows are: static ones, and those of which the table does not tell all."""
    parts, (entities, paths) = table.components, table.entity_codes
    counts = np.diff(parts.ends)
    chunk = np.repeat(np.arange(len(table)), counts)
    found = np.zeros(len(table), np.bool_)
    found[chunk[is_wanted >= 0]] = True
    found &= table.is_static
    is_above = np.array([path in above for path in paths], np.bool_)
    found |= (counts == 0) & is_above[entities]
    return found


def _cells(table: ChunkTable, index: str | None, keys: list[Key], is_wanted: Integers) -> ChunkCells:
    """The wanted components of chunks that have the index, and some event on it."""
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
