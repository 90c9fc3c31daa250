"""Values of components under one type: joined structs, bytes of each row, and rows taken from several arrays."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from .chunk_rows import ChunkRows
from .query import Integers, Key, Mask


def as_type(values: pa.Array, datatype: pa.DataType) -> pa.Array:
    """The values under a type that they were joined to: fields that a struct does not have are null.

    >>> as_type(pa.array([{"x": 1}]), pa.struct([("w", pa.int8()), ("x", pa.int64())])).to_pylist()
    [{'w': None, 'x': 1}]
    """
    if values.type.equals(datatype, check_metadata=True):
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), datatype)
    if _has_structs(datatype) and values.type != datatype:
        if pa.types.is_list(datatype) or pa.types.is_large_list(datatype):
            inner = as_type(values.values, datatype.value_type)
            return pa.Array.from_buffers(
                datatype, len(values), values.buffers()[:2], values.null_count, values.offset, [inner]
            )
        if pa.types.is_struct(datatype) and pa.types.is_struct(values.type):
            return _as_struct(values, datatype)
    return values.cast(datatype)


def _has_structs(datatype: pa.DataType) -> bool:
    if pa.types.is_struct(datatype):
        return True
    return (pa.types.is_list(datatype) or pa.types.is_large_list(datatype)) and _has_structs(datatype.value_type)


def _as_struct(values: pa.StructArray, datatype: pa.StructType) -> pa.StructArray:
    names = [field.name for field in values.type]
    made = [
        as_type(values.field(names.index(field.name)), field.type)
        if field.name in names
        else pa.nulls(len(values), field.type)
        for field in datatype
    ]
    mask = values.is_null() if values.null_count else None
    if not made:
        return values.cast(datatype)
    return pa.StructArray.from_arrays(made, fields=list(datatype), mask=mask)


def byte_ends(values: pa.Array) -> Integers:
    """The bytes that the rows before each row take, and of all of them: ``len(values) + 1`` sums.

    >>> byte_ends(pa.array([[b"abc"], None, [b"d", b"e"]], pa.list_(pa.binary()))).tolist()
    [0, 11, 15, 29]
    """
    datatype, count, kinds = values.type, len(values), pa.types
    if count == 0 or kinds.is_null(datatype):
        return np.zeros(count + 1, np.int64)
    if kinds.is_list(datatype) or kinds.is_large_list(datatype) or kinds.is_fixed_size_list(datatype):
        is_fixed = kinds.is_fixed_size_list(datatype)
        first = np.arange(values.offset, values.offset + count + 1)
        ends: Integers = byte_ends(values.values)[
            first * datatype.list_size if is_fixed else np.asarray(values.offsets)
        ]
        from_first: Integers = ends - ends[0] + _steps(count, 0 if is_fixed else 4)
        return from_first
    if kinds.is_struct(datatype):
        total = _steps(count, 0)
        for i in range(datatype.num_fields):
            total = total + byte_ends(values.field(i))
        return total
    width = next((width for is_such, width in _OFFSETS if is_such(datatype)), None)
    if width is not None:
        offsets = np.frombuffer(values.buffers()[1], width, count + 1, values.offset * width().itemsize)
        bytes_before: Integers = (offsets - offsets[0]).astype(np.int64)
        return bytes_before + _steps(count, 4)
    return _steps(count, max(_width_of(values), 1))


_OFFSETS: Final = (
    (pa.types.is_binary, np.int32),
    (pa.types.is_string, np.int32),
    (pa.types.is_large_binary, np.int64),
    (pa.types.is_large_string, np.int64),
)


def _width_of(values: pa.Array) -> int:
    """The bytes of a row, of a type whose rows are all of one width, or about so."""
    try:
        return int(values.type.bit_width) // 8
    except ValueError:
        return -(-int(values.nbytes) // len(values))


def _steps(count: int, width: int) -> Integers:
    return np.arange(count + 1, dtype=np.int64) * width


class PickedRows:
    """Rows whose values are taken, by the chunks that have them; columns that are logged together share them.

    ``rows`` are numbers of rows (-1: null), ``cleared`` are those that are an empty list. ``chunks`` have the values,
    ascending, and between two of ``bounds`` are the rows of each, ``local`` ones, in the order of their numbers.
    ``are_distinct``: each value is taken once, in that order.
    """

    def __init__(self, source: ChunkRows, rows: Integers, cleared: Mask | None) -> None:
        self.count = len(rows)
        self.cleared = cleared if cleared is not None and cleared.any() else None
        self._missing = rows < 0
        if self.cleared is not None:
            self._missing |= self.cleared
        has_none = not self._missing.any()
        there = rows if has_none else rows[~self._missing]
        steps = np.diff(there)
        self.are_distinct = bool((steps > 0).all())
        self._places: Integers | None = None
        if self.are_distinct:
            distinct = there
            if not has_none:
                self._places = np.arange(len(there))
        elif bool((steps >= 0).all()):
            is_next = np.append(True, steps > 0)
            distinct = there[is_next]
            self._places = np.cumsum(is_next) - 1
        else:
            distinct, self._places = np.unique(there, return_inverse=True)
        which = np.searchsorted(source.starts, distinct, side="right") - 1
        firsts = np.flatnonzero(np.diff(which, prepend=-1))
        self.chunks = which[firsts]
        self.bounds = [*firsts.tolist(), len(distinct)]
        self.local = distinct - np.repeat(source.starts[self.chunks], np.diff(self.bounds))

    @cached_property
    def indices(self) -> pa.Array | None:
        """The places of rows among the values that are taken, an empty list behind them; None where they are these."""
        if self._places is None:
            return None
        places = np.zeros(self.count, np.int64)
        if self.cleared is None:
            places[~self._missing] = self._places
            return pa.array(places, mask=self._missing) if self._missing.any() else pa.array(places)
        places[~self._missing] = self._places
        places[self.cleared] = len(self.local)
        return pa.array(places, mask=self._missing & ~self.cleared)

    @cached_property
    def runs(self) -> list[tuple[int, int, pa.Array | None]]:
        """For each chunk the first row, how many, and which they are; None where they are all that follow it."""
        found = []
        for first, stop in pairwise(self.bounds):
            begin = int(self.local[first])
            is_run = int(self.local[stop - 1]) - begin + 1 == stop - first
            found.append((begin, stop - first, None if is_run else pa.array(self.local[first:stop])))
        return found


class ColumnValues:
    """The values of a component under the type of the answer, to be taken by the numbers of rows of a segment."""

    def __init__(self, rows: ChunkRows, key: Key, datatype: pa.DataType) -> None:
        self._rows = rows
        self._key = key
        self._datatype = datatype
        self._under: dict[int, pa.ListArray] = {}
        self._ends: dict[int, Integers] = {}
        self._widest: dict[int, int] = {}

    def take(self, picked: PickedRows) -> pa.Array:
        """The values of rows. Raises ``ReadError`` where a chunk that has one cannot be read."""
        pieces = []
        for array, (first, count, rows) in zip(self._arrays(picked.chunks), picked.runs, strict=True):
            pieces.append(array.slice(first, count) if rows is None else array.take(rows))
        if picked.cleared is not None:
            pieces.append(pa.array([[]], self._datatype))
        if not pieces:
            return pa.nulls(picked.count, self._datatype)
        found = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
        return found if picked.indices is None else found.take(picked.indices)

    def sizes(self, rows: Integers) -> Integers:
        """The bytes of each of ``rows``; 0 where one is negative."""
        found = np.zeros(len(rows), np.int64)
        there = np.flatnonzero(rows >= 0)
        which = np.searchsorted(self._rows.starts, rows[there], side="right") - 1
        for chunk in np.unique(which).tolist():
            at = there[which == chunk]
            local = rows[at] - self._rows.starts[chunk]
            ends = self._ends_of(chunk)
            found[at] = ends[local + 1] - ends[local]
        return found

    def widest(self, picked: PickedRows) -> int:
        """The bytes of the largest value in the chunks of rows."""
        found = 0
        for chunk, array in zip(picked.chunks.tolist(), self._arrays(picked.chunks), strict=True):
            if chunk not in self._widest:
                self._widest[chunk] = self._widest_of(chunk, array)
            found = max(found, self._widest[chunk])
        return found

    def _widest_of(self, chunk: int, array: pa.ListArray) -> int:
        width = _fixed_width(array.type)
        if width is None:
            return int(np.diff(self._ends_of(chunk)).max(initial=0))
        offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)
        return 4 + width * int(np.diff(offsets).max(initial=0))

    def _ends_of(self, chunk: int) -> Integers:
        if chunk not in self._ends:
            (array,) = self._arrays(np.array([chunk]))
            self._ends[chunk] = byte_ends(array)
        return self._ends[chunk]

    def _arrays(self, chunks: Integers) -> list[pa.ListArray]:
        missing = [chunk for chunk in chunks.tolist() if chunk not in self._under]
        if missing:
            found = self._rows.arrays(self._key, np.array(missing))
            self._under.update((chunk, as_type(v, self._datatype)) for chunk, v in zip(missing, found, strict=True))
        return [self._under[chunk] for chunk in chunks.tolist()]


def _fixed_width(datatype: pa.ListType) -> int | None:
    """The bytes of an element, of a list of numbers."""
    inner = datatype.value_type
    is_plain = pa.types.is_primitive(inner) and not pa.types.is_boolean(inner)
    return inner.bit_width // 8 if is_plain and pa.types.is_list(datatype) else None
