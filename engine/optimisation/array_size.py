"""What the rows of an Arrow array take, by its type: one function for each array, for any range of its rows.

Wide nested types have thousands of arrays inside; all their buffers are asked for once, and slices of the array are
measured by arithmetic, without making any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import lib

Bitmaps = list[tuple[int, bool]]
"""The bits of each bitmap that the type can have, and whether the array has it."""

Measure = Callable[[int, int, Bitmaps], int]
"""Whole bytes of the rows from one (inclusive) to another (exclusive); bitmaps are added to the list."""

_Buffers = Iterator[Any]


def array_size(array: pa.Array) -> Measure:
    """How to measure ranges of ``array``.

    Views, unions and run-end encoded arrays count as Arrow counts them, wherever they stand.
    """
    return _measure(array, iter(array.buffers()))


def _measure(array: pa.Array, buffers: _Buffers) -> Measure:
    """The function for ``array``, whose buffers come next, before those of its children."""
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
    """The offsets of an array: one more than it has rows."""
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
    next(buffers)  # of the pairs, which are never null
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
