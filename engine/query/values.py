"""Values of components under one type: joined structs, bytes of each row, and rows taken from several arrays."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from .events import ComponentValues, Mask
from .query import Integers


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

    def __init__(self, values: ComponentValues, datatype: pa.DataType) -> None:
        self._starts = values.starts
        self._arrays = values.arrays
        self._datatype = datatype
        self._under: dict[int, pa.ListArray] = {}

    def take(self, rows: Integers, cleared: Mask | None) -> pa.Array:
        """The values of ``rows``: null where one is negative, and an empty list where ``cleared``."""
        wanted = rows if cleared is None else rows[~cleared]
        there = wanted[wanted >= 0] if len(wanted) and int(wanted.min()) < 0 else wanted
        ascend = bool((there[1:] > there[:-1]).all())
        distinct = there if ascend else np.unique(there)
        pieces = [self._piece(number, some) for number, some in self._by_part(distinct)]
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
        part = np.searchsorted(self._starts, rows[there], side="right") - 1
        for number in np.unique(part).tolist():
            at = there[part == number]
            local = rows[at] - self._starts[number]
            found[at] = self._ends[number][local + 1] - self._ends[number][local]
        return found

    @cached_property
    def widest(self) -> int:
        """The bytes of the largest value."""
        return max((int(np.diff(ends).max(initial=0)) for ends in self._ends), default=0)

    @cached_property
    def _ends(self) -> list[Integers]:
        return [byte_ends(array) for array in self._arrays]

    def _by_part(self, rows: Integers) -> list[tuple[int, Integers]]:
        """Ascending rows, those of each array by themselves, from its first row on."""
        part = np.searchsorted(self._starts, rows, side="right") - 1
        cuts = np.flatnonzero(np.diff(part)) + 1
        return [
            (int(part[first]), rows[first:stop] - self._starts[part[first]])
            for first, stop in pairwise([0, *cuts.tolist(), len(rows)])
            if stop > first
        ]

    def _piece(self, number: int, rows: Integers) -> pa.Array:
        if number not in self._under:
            self._under[number] = as_type(self._arrays[number], self._datatype)
        array, first = self._under[number], int(rows[0])
        if int(rows[-1]) - first + 1 == len(rows):
            return array.slice(first, len(rows))
        return array.take(pa.array(rows))
