"""Values of components under one type: joined structs, bytes of each row, and rows taken from several arrays."""

from __future__ import annotations

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


class ColumnValues:
    """The values of a component under the type of the answer, to be taken by the numbers of rows of a segment."""

    def __init__(self, rows: ChunkRows, key: Key, datatype: pa.DataType) -> None:
        self._rows = rows
        self._key = key
        self._datatype = datatype
        self._under: dict[int, pa.ListArray] = {}
        self._ends: dict[int, Integers] = {}

    def take(self, rows: Integers, cleared: Mask | None) -> pa.Array:
        """The values of ``rows``: null where one is negative, and an empty list where ``cleared``.

        Raises ``ReadError`` where a chunk that has one cannot be read.
        """
        wanted = rows if cleared is None else rows[~cleared]
        there = wanted[wanted >= 0] if len(wanted) and int(wanted.min()) < 0 else wanted
        steps = np.diff(there)
        ascend = bool((steps > 0).all())
        if ascend:
            distinct = there
        elif bool((steps >= 0).all()):
            distinct = there[np.append(True, steps > 0)]
        else:
            distinct = np.unique(there)
        pieces = self._pieces(distinct)
        if cleared is not None and cleared.any():
            pieces.append(pa.array([[]], self._datatype))
        if not pieces:
            return pa.nulls(len(rows), self._datatype)
        found = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
        if ascend and len(distinct) == len(rows):
            return found
        places = np.searchsorted(distinct, rows)
        if cleared is not None:
            places[cleared] = len(distinct)
        missing = rows < 0
        return found.take(pa.array(places, mask=missing) if missing.any() else pa.array(places))

    def sizes(self, rows: Integers) -> Integers:
        """The bytes of each of ``rows``; 0 where one is negative."""
        found = np.zeros(len(rows), np.int64)
        there = np.flatnonzero(rows >= 0)
        which = self._chunk_of(rows[there])
        for chunk in np.unique(which).tolist():
            at = there[which == chunk]
            local = rows[at] - self._rows.starts[chunk]
            if chunk not in self._ends:
                self._ends[chunk] = byte_ends(self._array(chunk))
            ends = self._ends[chunk]
            found[at] = ends[local + 1] - ends[local]
        return found

    def _chunk_of(self, rows: Integers) -> Integers:
        return np.searchsorted(self._rows.starts, rows, side="right") - 1

    def _pieces(self, rows: Integers) -> list[pa.Array]:
        """The values of ascending rows, those of each chunk by themselves."""
        which = self._chunk_of(rows)
        firsts = np.flatnonzero(np.diff(which, prepend=-1))
        chunks = which[firsts]
        self._rows.read(chunks)
        local = rows - np.repeat(self._rows.starts[chunks], np.diff(np.append(firsts, len(rows))))
        bounds = pairwise([*firsts.tolist(), len(rows)])
        found = []
        for chunk, (first, stop) in zip(chunks.tolist(), bounds, strict=True):
            array, begin = self._array(chunk), int(local[first])
            if int(local[stop - 1]) - begin + 1 == stop - first:
                found.append(array.slice(begin, stop - first))
            else:
                found.append(array.take(pa.array(local[first:stop])))
        return found

    def _array(self, chunk: int) -> pa.ListArray:
        if chunk not in self._under:
            (values,) = self._rows.arrays(self._key, np.array([chunk]))
            self._under[chunk] = as_type(values, self._datatype)
        return self._under[chunk]
