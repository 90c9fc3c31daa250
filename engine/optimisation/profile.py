"""Optimization profiles, and the ranges and sizes of chunks on which their decisions depend."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import lib

from ..chunk import ChunkData, Timeline, TimelineKind
from ..errors import check_argument

_LIVE = (12 * 8 * 4096, 4096, 1024)
_OBJECT_STORE = (2 * 1024 * 1024, 65_536, 8192)


@dataclass(frozen=True, kw_only=True)
class OptimizationProfile:
    """The chunk layout that ``collect(optimize=…)`` produces.

    Two presets: ``LIVE``, small chunks for a viewer, and ``OBJECT_STORE``, large ones for queries over a network.
    Values are checked when the profile is used.

    >>> OptimizationProfile.OBJECT_STORE.max_rows
    65536

    Parameters
    ----------
    max_bytes
        Larger chunks (bytes in memory) are split; smaller ones are merged up to this size. ``None`` means the value of
        ``LIVE``. With 0, chunks are neither split by size nor merged.
    max_rows
        The same limit in rows, for chunks in time order. max_rows_if_unsorted The same limit in rows, for chunks with a
        timeline out of order.
    extra_passes
        The maximum number of passes after the first; they end when a pass does not reduce the number of chunks.
    gop_batching
        Whether to lay out video streams by groups of pictures (GOPs), which are then never split.
    split_size_ratio
        Components whose archetypes differ in size by this factor or more go into separate chunks; 10 is a good value.
        ``None`` keeps them together.
    fix_keyframe
        Whether to replace ``VideoStream:is_keyframe`` of the recording by values derived from the samples.
    """

    LIVE: ClassVar[OptimizationProfile]
    OBJECT_STORE: ClassVar[OptimizationProfile]

    max_bytes: int | None = None
    max_rows: int | None = None
    max_rows_if_unsorted: int | None = None
    extra_passes: int = 50
    gop_batching: bool = True
    split_size_ratio: float | None = None
    fix_keyframe: bool = False


def _preset(thresholds: tuple[int, int, int]) -> OptimizationProfile:
    max_bytes, max_rows, max_rows_if_unsorted = thresholds
    return OptimizationProfile(max_bytes=max_bytes, max_rows=max_rows, max_rows_if_unsorted=max_rows_if_unsorted)


OptimizationProfile.LIVE = _preset(_LIVE)
OptimizationProfile.OBJECT_STORE = _preset(_OBJECT_STORE)


@dataclass(frozen=True, slots=True)
class Settings:
    """A checked profile, with a value for every threshold. The threshold 0 means "never split" and "never merge"."""

    max_bytes: int
    max_rows: int
    max_rows_if_unsorted: int
    extra_passes: int = 0
    gop_batching: bool = False
    split_size_ratio: float | None = None
    fix_keyframe: bool = False

    @classmethod
    def of(cls, profile: OptimizationProfile | None) -> Settings:
        """Return the settings of ``collect(optimize=profile)``; without a profile, only the first pass runs.

        Raises ``TypeError`` for a value of the wrong type, ``OverflowError`` for a value below 0 or above 64 bits.
        """
        if profile is None:
            return cls(*_LIVE)
        names = ("max_bytes", "max_rows", "max_rows_if_unsorted")
        given = [(name, getattr(profile, name), default) for name, default in zip(names, _LIVE, strict=True)]
        thresholds = [default if value is None else _unsigned(name, value) for name, value, default in given]
        ratio = profile.split_size_ratio
        return cls(
            thresholds[0],
            thresholds[1],
            thresholds[2],
            extra_passes=_unsigned("extra_passes", profile.extra_passes),
            gop_batching=_flag("gop_batching", profile.gop_batching),
            split_size_ratio=None if ratio is None else _real("split_size_ratio", ratio),
            fix_keyframe=_flag("fix_keyframe", profile.fix_keyframe),
        )

    def row_limit(self, ascending: bool) -> int:
        """Return the maximum number of rows of a chunk with or without a timeline out of order."""
        return self.max_rows if ascending else self.max_rows_if_unsorted


INERT = Settings(0, 0, 0)
"""Settings that neither split nor merge, for ``ChunkStore.from_chunks``."""


def _unsigned(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"argument '{name}': '{kind}' object cannot be interpreted as an integer") from None
    if number < 0:
        raise OverflowError("can't convert negative int to unsigned")
    if number >= 1 << 64:
        raise OverflowError("int too big to convert")
    return number


def _flag(name: str, value: Any) -> bool:
    check_argument(name, value, bool)
    return bool(value)


def _real(name: str, value: Any) -> float:
    try:
        return float(value + 0.0)
    except TypeError:
        raise TypeError(f"argument '{name}': must be real number, not {type(value).__name__}") from None


Bitmaps = list[tuple[int, bool]]
"""For each bitmap of a type, its number of bits, and whether the array has it."""

Measure = Callable[[int, int, Bitmaps], int]
"""Returns the bytes of rows from one (inclusive) to another (exclusive) without bitmaps, which it adds to the list."""

_Buffers = Iterator[Any]


def array_size(array: pa.Array) -> Measure:
    """A measure of ranges of ``array``.

    Views, unions and run-end encoded arrays, also nested ones, have the size that Arrow reports.
    """
    return _measure(array, iter(array.buffers()))


def _measure(array: pa.Array, buffers: _Buffers) -> Measure:
    """The function for ``array``; its buffers are next in ``buffers``, before those of its children."""
    kind = array.type.id
    handler = _HANDLERS.get(kind)
    if handler is not None:
        return handler(array, buffers)
    if isinstance(array, pa.ExtensionArray):
        return _measure(array.storage, buffers)
    try:
        width = int(array.type.bit_width) // 8
    except ValueError:
        return _opaque(array, buffers)
    valid = next(buffers) is not None
    next(buffers)

    def fixed(start: int, end: int, bitmaps: Bitmaps) -> int:
        bitmaps.append((end - start, valid))
        return (end - start) * width

    return fixed


def _opaque(array: pa.Array, buffers: _Buffers) -> Measure:
    own = array.buffers()
    for _ in own:
        next(buffers)
    valid = bool(own) and own[0] is not None

    def measure(start: int, end: int, bitmaps: Bitmaps) -> int:
        bitmaps.append((end - start, valid))
        return int(array.slice(start, end - start).nbytes)

    return measure


def _ends(array: pa.Array, buffer: pa.Buffer | None, width: type[np.int32] | type[np.int64]) -> Any:
    """The offsets of an array, one more than its rows."""
    if buffer is None or not len(array):
        return (0,)
    return np.frombuffer(buffer, dtype=width)[array.offset : array.offset + len(array) + 1]


def _texts(width: type[np.int32] | type[np.int64]) -> Callable[[pa.Array, _Buffers], Measure]:
    size = width().itemsize

    def handler(array: pa.Array, buffers: _Buffers) -> Measure:
        valid = next(buffers) is not None
        ends = _ends(array, next(buffers), width)
        next(buffers)

        def measure(start: int, end: int, bitmaps: Bitmaps) -> int:
            bitmaps.append((end - start, valid))
            return (end - start) * size + int(ends[end]) - int(ends[start])

        return measure

    return handler


def _lists(width: type[np.int32] | type[np.int64]) -> Callable[[pa.Array, _Buffers], Measure]:
    size = width().itemsize

    def handler(array: pa.Array, buffers: _Buffers) -> Measure:
        valid = next(buffers) is not None
        ends = _ends(array, next(buffers), width)
        values = _measure(array.values, buffers)

        def measure(start: int, end: int, bitmaps: Bitmaps) -> int:
            bitmaps.append((end - start, valid))
            return (end - start) * size + values(int(ends[start]), int(ends[end]), bitmaps)

        return measure

    return handler


def _map(array: pa.Array, buffers: _Buffers) -> Measure:
    valid = next(buffers) is not None
    ends = _ends(array, next(buffers), np.int32)
    next(buffers)  # validity of the pairs, which are never null
    keys, items = _measure(array.keys, buffers), _measure(array.items, buffers)

    def measure(start: int, end: int, bitmaps: Bitmaps) -> int:
        bitmaps.append((end - start, valid))
        first, last = int(ends[start]), int(ends[end])
        return (end - start) * 4 + keys(first, last, bitmaps) + items(first, last, bitmaps)

    return measure


def _fixed_size_list(array: pa.Array, buffers: _Buffers) -> Measure:
    valid = next(buffers) is not None
    size, offset = array.type.list_size, array.offset
    values = _measure(array.values, buffers)

    def measure(start: int, end: int, bitmaps: Bitmaps) -> int:
        bitmaps.append((end - start, valid))
        return values((offset + start) * size, (offset + end) * size, bitmaps)

    return measure


def _struct(array: pa.Array, buffers: _Buffers) -> Measure:
    valid = next(buffers) is not None
    fields = [_measure(array.field(i), buffers) for i in range(array.type.num_fields)]

    def measure(start: int, end: int, bitmaps: Bitmaps) -> int:
        bitmaps.append((end - start, valid))
        total = 0
        for field in fields:
            total += field(start, end, bitmaps)
        return total

    return measure


def _boolean(array: pa.Array, buffers: _Buffers) -> Measure:  # noqa: ARG001 (one signature for all types)
    valid = next(buffers) is not None
    next(buffers)

    def measure(start: int, end: int, bitmaps: Bitmaps) -> int:
        bitmaps.append((end - start, valid))
        bitmaps.append((end - start, True))
        return 0

    return measure


def _null(array: pa.Array, buffers: _Buffers) -> Measure:
    for _ in array.buffers():
        next(buffers)
    return lambda start, end, bitmaps: 0  # noqa: ARG005 (one signature for all types)


def _dictionary(array: pa.Array, buffers: _Buffers) -> Measure:
    indices = _measure(array.indices, buffers)
    dictionary, length = array_size(array.dictionary), len(array.dictionary)
    return lambda start, end, bitmaps: indices(start, end, bitmaps) + dictionary(0, length, bitmaps)


_HANDLERS: dict[int, Callable[[pa.Array, _Buffers], Measure]] = {
    lib.Type_NA: _null,
    lib.Type_BOOL: _boolean,
    lib.Type_BINARY: _texts(np.int32),
    lib.Type_STRING: _texts(np.int32),
    lib.Type_LARGE_BINARY: _texts(np.int64),
    lib.Type_LARGE_STRING: _texts(np.int64),
    lib.Type_LIST: _lists(np.int32),
    lib.Type_LARGE_LIST: _lists(np.int64),
    lib.Type_FIXED_SIZE_LIST: _fixed_size_list,
    lib.Type_MAP: _map,
    lib.Type_STRUCT: _struct,
    lib.Type_DICTIONARY: _dictionary,
}


FIXED_BYTES = 224
"""The bytes of a chunk without columns."""


class ColumnSize(NamedTuple):
    """The size of an Arrow array, in parts that add up when arrays are joined.

    ``whole`` are all bytes except bitmaps; ``bitmaps`` has the number of bits of each bitmap that the type can have, or
    0 if the array lacks it.
    """

    whole: int
    bitmaps: tuple[tuple[int, bool], ...]

    @property
    def total(self) -> int:
        """The total number of bytes."""
        return self.whole + sum((bits + 7) // 8 for bits, is_present in self.bitmaps if is_present)

    def plus(self, other: ColumnSize) -> ColumnSize:
        """The size of both arrays, of one type, joined."""
        pairs = zip(self.bitmaps, other.bitmaps, strict=True)
        return ColumnSize(self.whole + other.whole, tuple((a[0] + b[0], a[1] or b[1]) for a, b in pairs))

    def padded(self, rows: int) -> ColumnSize:
        """The size of this list array with ``rows`` more null rows."""
        bits, _ = self.bitmaps[0]
        return ColumnSize(self.whole + 4 * rows, ((bits + rows, True), *self.bitmaps[1:]))


def column_size(values: pa.Array) -> ColumnSize:
    """The size of ``values``; of a slice, only its rows count.

    >>> column_size(pa.array([[1.0], [2.0], None])).total
    29
    """
    bitmaps: list[tuple[int, bool]] = []
    return ColumnSize(array_size(values)(0, len(values), bitmaps), tuple(bitmaps))


class RowSizes:
    """The sizes of runs of a chunk's rows, measured without slicing."""

    def __init__(self, data: ChunkData) -> None:
        self._columns = [array_size(c.values) for c in data.components]
        self._timelines = len(data.timelines)

    def columns(self, start: int, end: int) -> list[ColumnSize]:
        """The size of each column, rows ``start`` to ``end`` (exclusive)."""
        out = []
        for measure in self._columns:
            bitmaps: list[tuple[int, bool]] = []
            out.append(ColumnSize(measure(start, end, bitmaps), tuple(bitmaps)))
        return out

    def bytes(self, start: int, end: int) -> int:
        """The :func:`chunk_bytes` of a chunk of these rows."""
        return chunk_bytes(end - start, self._timelines, self.columns(start, end))


def chunk_bytes(rows: int, timelines: int, columns: Iterable[ColumnSize]) -> int:
    """Bytes of a chunk: 224, 16 a row id, 8 a time, its columns, and the hash tables of the columns.

    >>> chunk_bytes(1000, 1, [column_size(pa.array([[1.0]] * 1000))])
    37480
    """
    sizes = [c.total for c in columns]
    tables = 105 * table_slots(timelines) + 209 * table_slots(len(sizes))
    return FIXED_BYTES + rows * (16 + 8 * timelines) + tables + sum(sizes)


def table_slots(entries: int) -> int:
    """Slots of a hash table with ``entries`` entries that is at most 7/8 full.

    >>> [table_slots(n) for n in (0, 3, 4, 7, 8, 14, 15, 29)]
    [0, 4, 8, 8, 16, 16, 32, 64]
    """
    if entries < 4:
        return 4 if entries else 0
    if entries < 8:
        return 8
    return 1 << (entries * 8 // 7 - 1).bit_length()


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
    """A component column. ``spans`` has for each timeline the range of rows with a value, or None."""

    datatype: pa.DataType
    size: ColumnSize
    spans: tuple[Span | None, ...]


class MergeCandidate(NamedTuple):
    """The facts for merging a temporal chunk with rows and components of distinct names.

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
        """Return True if one chunk can hold the rows of both: same entity, timelines and datatypes."""
        if self.entity_path != other.entity_path or len(self.timelines) != len(other.timelines):
            return False
        for mine, theirs in zip(self.timelines, other.timelines, strict=True):
            if mine.name != theirs.name or mine.kind is not theirs.kind:
                return False
        columns = other.columns
        return all(c.datatype == columns[name].datatype for name, c in self.columns.items() if name in columns)

    def is_before(self, other: MergeCandidate) -> bool:
        """Return True if both ascend, and all rows precede those of the other by row id and on every timeline."""
        pairs = zip(self.timelines, other.timelines, strict=True)
        return self.last_row <= other.first_row and all(a.end <= b.start for a, b in pairs)

    def is_continued_by(self, run: MergeCandidate) -> bool:
        """Return True if a run, in time order, has the same columns and begins after the end of this."""
        return (
            run.ascending
            and self.columns.keys() == run.columns.keys()
            and run.concatenable(self)
            and self.is_before(run)
        )

    @property
    def overhead(self) -> int:
        """The most bytes that a chunk of the same columns takes in addition to its rows."""
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

    ``sizes`` are the sizes of its columns, if known.
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
    validity = values.is_valid().to_numpy(zero_copy_only=False)
    return tuple(_range(t.ticks[validity], t.is_sorted) for t in timelines)


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


def _joined_column(first: ColumnExtent, other: ColumnExtent) -> ColumnExtent:
    spans = tuple(_joined_span(a, b) for a, b in zip(first.spans, other.spans, strict=True))
    return ColumnExtent(first.datatype, first.size.plus(other.size), spans)


def _joined_span(first: Span | None, other: Span | None) -> Span | None:
    if first is None or other is None:
        return other if first is None else first
    return min(first[0], other[0]), max(first[1], other[1])


def _padded(column: ColumnExtent, rows: int) -> ColumnExtent:
    return ColumnExtent(column.datatype, column.size.padded(rows), column.spans)
