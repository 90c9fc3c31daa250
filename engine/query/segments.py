"""Segments for queries: their chunks, layers and times."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, groupby, islice, pairwise
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import ChunkData
from ..errors import ReadError
from ..limits import MIB
from ..optimisation import ChunkReferences
from ..recordings import MANIFEST_ERRORS, RecordingEntry, RecordingsFolder, entries_in, times_in
from ..rrd import ChunkTable, OpenFiles, Times
from ..task_context import Fetches, TaskContext, find
from .events import ChunkRows, LayerRows, ReadRows, RecordedRows, SegmentEvents, StaticValues
from .query import AnswerColumns, Integers, Key, Mask, SegmentFigures
from .rows import SegmentRows, StaticColumns, within
from .segment_chunks import SegmentChunks, Windows, windows_of


class LayerChunks(Protocol):
    """The chunks of a layer: :class:`ChunkReferences`, or chunks in memory."""

    @property
    def table(self) -> ChunkTable:
        """A row for each chunk."""
        ...

    def read(self, rows: Integers) -> Iterable[ChunkData]:
        """Yield the chunks of some rows, in the order of ``rows``, each read when it is taken. Raises ``ReadError``."""
        ...


class SegmentSource(Protocol):
    """The chunks of a segment, in layers. Picklable."""

    @property
    def stored_bytes(self) -> int:
        """The approximate stored bytes of all chunks, known without reading any."""
        ...

    @property
    def has_times(self) -> bool:
        """Whether all layers have recorded times, known without reading any."""
        ...

    @property
    def layer_names(self) -> Sequence[str]:
        """The name of each layer of :meth:`references`."""
        ...

    def references(self) -> Sequence[LayerChunks]:
        """All chunks of each layer. Raises ``ReadError``."""
        ...

    def times(self) -> Sequence[Times | None]:
        """Return the times of the chunks of each layer of :meth:`references`, or None for a layer without recorded
        times. Raises ``ReadError``.
        """
        ...


@lru_cache(maxsize=16)
def _folder_of(store: str) -> RecordingsFolder:
    """The folder of a store, cached so that its paths are made once for all segments."""
    return RecordingsFolder(store)


@dataclass(frozen=True)
class StoreSource:
    """A segment of a store: ``store`` is its location, ``layers`` are entries of the pinned version."""

    store: str
    layers: tuple[RecordingEntry, ...]

    @property
    def stored_bytes(self) -> int:
        """The bytes of all chunks."""
        return sum(layer.bytes for layer in self.layers)

    @property
    def has_times(self) -> bool:
        """Whether all layers with chunks have recorded times."""
        return all(layer.times_size for layer in self.layers if layer.chunks)

    @property
    def layer_names(self) -> list[str]:
        """The names of the layers that have chunks."""
        return [layer.layer for layer in self.layers if layer.chunks]

    def references(self) -> list[ChunkReferences]:
        """All chunks of each layer with chunks. Raises ``ReadError``."""
        return [self._folder.references(layer) for layer in self.layers if layer.chunks]

    def times(self) -> list[Times | None]:
        """The times of the same layers. Raises ``ReadError``."""
        return [times_in(self._folder, layer) for layer in self.layers if layer.chunks]

    @property
    def _folder(self) -> RecordingsFolder:
        return _folder_of(self.store)

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreSource, (self.store, self.layers)


class LazySource(StoreSource):
    """A segment of a store whose entries are made from rows on first use: most segments are irrelevant to a query.

    It is pickled as a :class:`StoreSource`.
    """

    def __init__(self, store: str, rows: pa.Table, first: int, stop: int, stored_bytes: int) -> None:
        vars(self).update(store=store, _rows=rows, _range=(first, stop), _stored_bytes=stored_bytes)

    @property
    def stored_bytes(self) -> int:
        """The bytes of all chunks."""
        stored_bytes: int = vars(self)["_stored_bytes"]
        return stored_bytes

    def __getattr__(self, name: str) -> Any:
        if name != "layers":
            raise AttributeError(name)
        self.load([self])
        return vars(self)["layers"]

    @staticmethod
    def load(sources: Iterable[LazySource]) -> None:
        """Make the entries of sources, for all sources of a table together."""
        lacking = [vars(source) for source in sources if "layers" not in vars(source)]
        for _, group in groupby(lacking, key=lambda fields: id(fields["_rows"])):
            some = list(group)
            ranges = [fields["_range"] for fields in some]
            numbers = np.concatenate([np.arange(*bounds) for bounds in ranges])
            entries = entries_in(some[0]["_rows"].take(pa.array(numbers)).to_batches())
            for fields, (first, stop) in zip(some, ranges, strict=True):
                fields["layers"] = tuple(islice(entries, stop - first))


def references_of(sources: Sequence[SegmentSource]) -> list[Sequence[LayerChunks]] | None:
    """Return the chunks of each source, looked up together, if all sources are of one store.

    None if they are not, if reads are counted, or if something is damaged: then look up each source.
    """
    stored = [source for source in sources if isinstance(source, StoreSource)]
    if len(stored) < max(len(sources), 2) or len({s.store for s in stored}) > 1 or find(Fetches) is not None:
        return None
    LazySource.load([source for source in stored if isinstance(source, LazySource)])
    layers = [[layer for layer in source.layers if layer.chunks] for source in stored]
    if not any(layers):
        return None
    try:
        found = iter(_folder_of(stored[0].store).references_of(list(chain.from_iterable(layers))))
    except (ReadError, *MANIFEST_ERRORS):
        return None
    return [list(islice(found, len(some))) for some in layers]


@contextmanager
def segment_named(segment_id: str) -> Iterator[None]:
    """A block whose read errors name the segment."""
    try:
        yield
    except ReadError as error:
        error.message += f", in segment {segment_id}"
        raise


class NamedLayer:
    """A layer with its name and its segment, for errors."""

    def __init__(self, layer: LayerChunks, segment_id: str, name: str) -> None:
        self.table = layer.table
        self.name = name
        self.segment_id = segment_id
        self._layer = layer

    def read(self, rows: Integers) -> Iterator[ChunkData]:
        """The chunks of some rows. Raises ``ReadError`` with the segment's id."""
        with segment_named(self.segment_id):
            yield from self._layer.read(rows)


def rows_of_layers(numbers: Integers, bounds: Integers) -> list[tuple[int, Integers]]:
    """Return the numbers of the layers with chunks of ascending ``numbers``, each with the rows of these chunks.

    Layer ``i`` has the chunks ``range(bounds[i], bounds[i + 1])``.
    """
    cuts = np.searchsorted(numbers, bounds)
    return [(at, numbers[cuts[at] : cuts[at + 1]] - bounds[at]) for at in np.flatnonzero(cuts[1:] > cuts[:-1]).tolist()]


class OpenSegment:
    """The layers of a segment, with times for those whose chunks are read only for values.

    Chunks are numbered consecutively over the layers. Read chunks stay in memory until :meth:`keep`.
    """

    def __init__(self, layers: Sequence[LayerChunks], times: Sequence[Times | None]) -> None:
        self._layers = layers
        self._times = times
        self._bounds = np.cumsum([0, *(len(layer.table) for layer in layers)])
        self._chunks: dict[int, ChunkData] = {}
        self._sizes = sizes_of(layers)

    def rows(self, numbers: Integers, index: str | None, static: Integers | None = None) -> ChunkRows:
        """The rows of the chunks that have an index (None: of all), followed by the rows of static chunks.

        Raises ``ReadError``.
        """
        others = [] if static is None else self._layer_rows(static, None)
        return ChunkRows(self.load, self.unlike, self._sizes, [*self._layer_rows(numbers, index), *others])

    def _layer_rows(self, numbers: Integers, index: str | None) -> list[LayerRows]:
        layer_rows: list[LayerRows] = []
        read: list[Integers] = []

        def add_read() -> None:
            if read:
                some = np.concatenate(read)
                layer_rows.append(ReadRows(some, self.load(some), index))
                read.clear()

        for at, rows in rows_of_layers(numbers, self._bounds):
            times, first = self._times[at], int(self._bounds[at])
            if times is None:
                read.append(rows + first)
            else:
                add_read()
                layer_rows.append(RecordedRows(times, self._layers[at].table, first, rows + first, index))
        add_read()
        return layer_rows

    def load(self, numbers: Integers) -> list[ChunkData]:
        """The chunks with these numbers. Reads missing chunks, in the order of their files. Raises ``ReadError``."""
        missing = np.array([number for number in numbers.tolist() if number not in self._chunks], np.int64)
        missing.sort()
        for at, rows in rows_of_layers(missing, self._bounds):
            layer, first = self._layers[at], int(self._bounds[at])
            table = layer.table
            rows = rows[np.lexsort((table.offsets[rows], table.part_codes[0][rows]))]
            (entities, paths), is_static = table.entity_codes, table.is_static
            for row, data in zip(rows.tolist(), layer.read(rows), strict=True):
                if data.entity_path != paths[entities[row]] or bool(data.timelines) == is_static[row]:
                    raise self.unlike(first + row)
                self._chunks[first + row] = data
        return [self._chunks[number] for number in numbers.tolist()]

    def unlike(self, number: int) -> ReadError:
        """The error for a chunk that differs from its manifest or footer."""
        at = int(np.searchsorted(self._bounds, number, side="right")) - 1
        table, row = self._layers[at].table, number - int(self._bounds[at])
        (parts, paths), (entities, names) = table.part_codes, table.entity_codes
        return ReadError(
            f"chunk {bytes(table.chunk_ids[row]).hex()} of {names[entities[row]]} differs from the footer of its "
            "file: it has another entity, or values at other times",
            path=paths[parts[row]],
            offset=int(table.offsets[row]),
            hint="The file is damaged, or the program that wrote it is faulty; compact or copy it to correct the "
            "footer.",
        )

    def keep(self, numbers: Integers) -> None:
        """Drop other chunks and their times."""
        self._chunks = {number: self._chunks[number] for number in numbers.tolist() if number in self._chunks}
        for times, (first, stop) in zip(self._times, pairwise(self._bounds.tolist()), strict=True):
            if times is not None:
                times.keep(numbers[(numbers >= first) & (numbers < stop)] - first)


def sizes_of(layers: Sequence[LayerChunks]) -> Integers:
    """The approximate bytes in memory of each chunk of layers."""
    sizes = [np.maximum(layer.table.uncompressed_sizes, layer.table.sizes).astype(np.int64) for layer in layers]
    return np.concatenate([np.empty(0, np.int64), *sizes])


_ALL: Final = (-(1 << 63), (1 << 63) - 1)
"""The window of all index values."""

PIECE_BYTES: Final = 256 * MIB
"""The approximate uncompressed bytes of a piece's chunks."""

WINDOW_BYTES: Final = 64 * MIB
"""The approximate uncompressed bytes of chunks that are read at once for rows."""

_LARGE: Final = MIB
"""The bytes of a layer's chunks from which reading its times pays off, if the times may spare reads of chunks."""
_ROW_BYTES: Final = 48
"""The bytes in memory of a chunk's row without its values."""


@dataclass(frozen=True)
class QueriedSegment:
    """A segment, or a piece of one, with its query. Picklable.

    ``source`` has its chunks. ``component_keys`` are the components of the segment. ``span`` has the first and the last
    value of its index, or is None without index values. A piece has the rows with index values in ``window``, both ends
    included.
    """

    source: SegmentSource
    segment_id: str
    columns: AnswerColumns
    component_keys: Collection[Key]
    span: tuple[int, int] | None
    window: tuple[int, int] | None = None

    @property
    def stored_bytes(self) -> int:
        """The approximate stored bytes of all chunks, known without reading any."""
        return self.source.stored_bytes

    @property
    def given(self) -> Integers | None:
        """The segment's given index values, or None if the query has no given values."""
        values = self.columns.query.values
        if values is None:
            return None
        clips = self.columns.query.semantics.clips_values
        given = values.of_segment(self.segment_id, (self.span or (1, 0)) if clips else None)
        return given if self.window is None else within(given, self.window)

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The first and the last possible index value of a row; None without rows or an index."""
        given = self.given
        if given is not None:
            return (int(given[0]), int(given[-1])) if len(given) else None
        if self.span is None or self.window is None:
            return self.span
        first, last = max(self.span[0], self.window[0]), min(self.span[1], self.window[1])
        return (first, last) if first <= last else None

    @property
    def may_have_rows(self) -> bool:
        """Whether rows are possible, as far as known without reading chunks."""
        deciding = self.columns.query.rows.component
        keys = ((c.entity_path, c.component) for c in self.columns.visible)
        shows = any(key in self.component_keys and deciding in (None, key) for key in keys)
        if self.columns.query.index is None:
            return shows
        return self.bounds is not None and (shows or self.given is not None)

    def cut(self, budget_bytes: int = PIECE_BYTES) -> list[QueriedSegment]:
        """Pieces that need about ``budget_bytes`` of uncompressed chunks each. Their rows, in order, are the rows of
        the segment. Raises ``ReadError``.
        """
        if self.bounds is None:
            return [self]
        layers = self.source.references()
        chunks = SegmentChunks(self.columns, [some.table for some in layers])
        windows = [self.window or _ALL]
        pieces = _cut(windows, chunks.cuts(chunks.needed(windows, self.given), sizes_of(layers), budget_bytes))
        if len(pieces) == 1:
            return [self]
        segments = [replace(self, window=window) for (window,) in pieces]
        return [piece for piece in segments if piece.may_have_rows] or [self]

    def batches(
        self, names: Sequence[str] | None = None, predicate: pc.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows that pass ``predicate``, with the columns ``names``; see :meth:`SegmentRows.batches`.

        Rows are made for one window of the index after another, each with chunks of about :data:`WINDOW_BYTES`. Chunks
        that later windows do not need are dropped. Raises ``ReadError`` if a manifest, times or a chunk is damaged or
        missing.
        """
        files = OpenFiles()
        try:
            yield from TaskContext(files).run(self._batches(names, predicate))
        finally:
            files.close()

    def _batches(self, names: Sequence[str] | None, predicate: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        if not self.may_have_rows:
            return
        columns = self.columns.narrowed(names, predicate)
        layers, chunks, windows, needed = self._planned(columns, predicate)
        if not windows:
            return
        wanted = chunks.with_values(columns.keys(names))
        is_asked = predicate is not None or self.given is not None
        has_use = saves(layers, wanted, needed, is_asked=is_asked)
        times = self.source.times() if has_use else [None] * len(layers)
        opened = OpenSegment(layers, times)
        static = StaticColumns(StaticValues(opened.rows(chunks.static, None)))
        if columns.query.index is None:
            yield from SegmentRows(columns, self.segment_id, static, None).batches(names, predicate)
            return
        is_read = np.repeat([some is None for some in times], [len(some.table) for some in layers]) | wanted
        rows = np.concatenate([some.table.num_rows for some in layers]).astype(np.int64)
        costs = np.where(is_read, sizes_of(layers), 0) + _ROW_BYTES * rows
        for some in _cut(windows, chunks.cuts(needed, costs, WINDOW_BYTES)):
            given = None if self.given is None else np.concatenate([within(self.given, window) for window in some])
            if given is not None and not len(given):
                continue
            needed = chunks.needed(some, given)
            opened.keep(needed)
            yield from self._rows(opened, static, columns, chunks, needed, given, some).batches(names, predicate)

    def _rows(
        self,
        opened: OpenSegment,
        static: StaticColumns,
        columns: AnswerColumns,
        chunks: SegmentChunks,
        needed: Integers,
        given: Integers | None,
        windows: Windows,
    ) -> SegmentRows:
        index = columns.query.index
        assert index is not None
        events = SegmentEvents(
            opened.rows(needed, index), static.values, columns.visible, index, self.component_keys, chunks
        )
        return SegmentRows(columns, self.segment_id, static, events, given=given, windows=windows)

    def reached(self, windows: Windows) -> Windows:
        """The part of these index ranges that is read; here all."""
        return windows

    def plan(self, columns: AnswerColumns, predicate: pc.Expression | None) -> None:
        """Count the chunks that rows need, without reading them. Raises ``ReadError``."""
        if self.may_have_rows:
            self._planned(columns, predicate)

    def read_bytes(self, names: Sequence[str] | None = None, predicate: pc.Expression | None = None) -> int:
        """The approximate stored bytes of the chunks that :meth:`batches` reads. Raises ``ReadError``."""
        columns = self.columns.narrowed(names, predicate)
        layers, chunks, _, needed = self._planned(columns, predicate)
        if self.source.has_times:
            wanted = chunks.with_values(columns.keys(names))
            if saves(layers, wanted, needed, is_asked=predicate is not None or self.given is not None):
                needed = needed[wanted[needed]]
        sizes = np.concatenate([np.empty(0, np.uint64), *(layer.table.sizes for layer in layers)])
        return int(sizes[needed].sum())

    def needed(
        self, columns: AnswerColumns, predicate: pc.Expression | None
    ) -> tuple[Windows, list[tuple[LayerChunks, Integers]]]:
        """Return the index ranges that may have rows, and each layer's table rows of the needed chunks."""
        layers, chunks, windows, needed = self._planned(columns, predicate)
        rows = chunks.by_layer(needed)
        return windows, [(layer, some) for layer, some in zip(layers, rows, strict=True) if len(some)]

    def _planned(self, columns: AnswerColumns, predicate: pc.Expression | None) -> _Plan:
        layers = self.source.references()
        tables = [some.table for some in layers]
        chunks = SegmentChunks(columns, tables)
        bounds = self.bounds
        windows: Windows = [self.window or _ALL]
        if predicate is not None and bounds is not None:
            windows = windows_of(columns, predicate, self.segment_id, bounds, chunks.starts)
        windows = self.reached(windows)
        needed = np.union1d(chunks.needed(windows, self.given), chunks.static)
        figures = find(SegmentFigures)
        if figures is not None:
            figures.need(self.segment_id, zip(self.source.layer_names, tables, chunks.by_layer(needed), strict=True))
        return _Plan(layers, chunks, windows, needed)


class _Plan(NamedTuple):
    """The layers and chunks of a segment, the index ranges that may have rows, and the needed chunks."""

    layers: Sequence[LayerChunks]
    chunks: SegmentChunks
    windows: Windows
    needed: Integers


def saves(layers: Sequence[LayerChunks], wanted: Mask, needed: Integers, *, is_asked: bool) -> bool:
    """Return whether reading the times of layers spares so many bytes of chunks that it is faster.

    ``wanted`` are the chunks that may have requested values, ``needed`` the chunks that determine rows. With
    ``is_asked``, the times also decide which values are read.
    """
    sizes = sizes_of(layers)
    total = int(sizes[needed].sum())
    spared = int(sizes[needed[~wanted[needed]]].sum())
    return 4 * spared > total or (is_asked and total > _LARGE * len(layers))


def _cut(windows: Windows, cuts: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Divide windows into groups, with a new group at each cut.

    >>> _cut([(0, 5), (8, 9)], [3, 9])
    [[(0, 2)], [(3, 5), (8, 8)], [(9, 9)]]
    """
    ends = [cut - 1 for cut in cuts] + [_ALL[1]]
    groups = []
    for first, last in zip([_ALL[0], *cuts], ends, strict=True):
        group = [(max(begin, first), min(end, last)) for begin, end in windows if begin <= last and end >= first]
        if group:
            groups.append(group)
    return groups
