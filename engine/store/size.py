"""How many bytes a chunk takes in memory: the formula that Rerun's thresholds are compared with.

It counts what the rows of the chunk refer to, not what the buffers behind them hold. See :func:`chunk_bytes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow import lib

from ..chunk import ChunkData

FIXED_BYTES = 224
"""What a chunk takes before its first column."""


@dataclass(frozen=True, slots=True)
class ColumnSize:
    """The size of an Arrow array, in parts that add up when arrays are joined.

    ``whole`` is what takes whole bytes; ``bitmaps`` has the number of bits of each bitmap the type can have, by its
    place in the type, and 0 where the array does without.
    """

    whole: int
    bitmaps: tuple[tuple[int, bool], ...]

    @property
    def total(self) -> int:
        """Bytes in all."""
        return self.whole + sum((bits + 7) // 8 for bits, there in self.bitmaps if there)

    def plus(self, other: ColumnSize) -> ColumnSize:
        """The size of both arrays joined, which are of one type."""
        pairs = zip(self.bitmaps, other.bitmaps, strict=True)
        return ColumnSize(self.whole + other.whole, tuple((a[0] + b[0], a[1] or b[1]) for a, b in pairs))

    def padded(self, rows: int) -> ColumnSize:
        """The size of this list array with ``rows`` more null rows."""
        bits, _ = self.bitmaps[0]
        return ColumnSize(self.whole + 4 * rows, ((bits + rows, True), *self.bitmaps[1:]))


def column_size(values: pa.Array) -> ColumnSize:
    """The size of ``values``; only the range it refers to counts.

    >>> column_size(pa.array([[1.0], [2.0], None])).total
    29
    """
    bitmaps: list[tuple[int, bool]] = []
    return ColumnSize(_walk(values, bitmaps), tuple(bitmaps))


def chunk_bytes(rows: int, timelines: int, columns: Iterable[ColumnSize]) -> int:
    """Bytes of a chunk: 224, 16 a row id, 8 a time, its columns, and the hash tables that hold the columns.

    >>> chunk_bytes(1000, 1, [column_size(pa.array([[1.0]] * 1000))])
    37480
    """
    sizes = [c.total for c in columns]
    tables = 105 * table_slots(timelines) + 209 * table_slots(len(sizes))
    return FIXED_BYTES + rows * (16 + 8 * timelines) + tables + sum(sizes)


def data_bytes(data: ChunkData) -> int:
    """:func:`chunk_bytes` of a decoded chunk."""
    return chunk_bytes(data.num_rows, len(data.timelines), [column_size(c.values) for c in data.components])


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


_Bitmaps = list[tuple[int, bool]]


def _walk(array: pa.Array, bitmaps: _Bitmaps) -> int:
    """Whole bytes of ``array``; its bitmaps go to the list."""
    handler = _HANDLERS.get(array.type.id)
    if handler is not None:
        return handler(array, bitmaps)
    if isinstance(array, pa.ExtensionArray):
        return _walk(array.storage, bitmaps)
    _validity(array, bitmaps)
    try:
        return len(array) * (int(array.type.bit_width) // 8)
    except ValueError:  # views, unions, run-end encoded: no fixed width
        return int(array.nbytes)


def _validity(array: pa.Array, bitmaps: _Bitmaps) -> None:
    bitmaps.append((len(array), array.buffers()[0] is not None))


def _bounds(array: pa.Array, width: type[np.int32] | type[np.int64]) -> tuple[int, int]:
    """First and last offset of an array with offsets in its second buffer."""
    if not len(array):
        return 0, 0
    buffer = array.buffers()[1]
    size = width().itemsize
    ends = np.frombuffer(buffer, dtype=width)[array.offset : array.offset + len(array) + 1]
    assert ends.nbytes == (len(array) + 1) * size
    return int(ends[0]), int(ends[-1])


def _texts(width: type[np.int32] | type[np.int64]) -> Callable[[pa.Array, _Bitmaps], int]:
    def measure(array: pa.Array, bitmaps: _Bitmaps) -> int:
        _validity(array, bitmaps)
        first, last = _bounds(array, width)
        return len(array) * width().itemsize + last - first

    return measure


def _lists(width: type[np.int32] | type[np.int64]) -> Callable[[pa.Array, _Bitmaps], int]:
    def measure(array: pa.Array, bitmaps: _Bitmaps) -> int:
        _validity(array, bitmaps)
        first, last = _bounds(array, width)
        return len(array) * width().itemsize + _walk(array.values.slice(first, last - first), bitmaps)

    return measure


def _map(array: pa.Array, bitmaps: _Bitmaps) -> int:
    _validity(array, bitmaps)
    first, last = _bounds(array, np.int32)
    flat = (array.keys, array.items)
    return 4 * len(array) + sum(_walk(child.slice(first, last - first), bitmaps) for child in flat)


def _fixed_size_list(array: pa.Array, bitmaps: _Bitmaps) -> int:
    _validity(array, bitmaps)
    size = array.type.list_size
    return _walk(array.values.slice(array.offset * size, len(array) * size), bitmaps)


def _struct(array: pa.Array, bitmaps: _Bitmaps) -> int:
    _validity(array, bitmaps)
    return sum(_walk(array.field(i), bitmaps) for i in range(array.type.num_fields))


def _boolean(array: pa.Array, bitmaps: _Bitmaps) -> int:
    _validity(array, bitmaps)
    bitmaps.append((len(array), True))
    return 0


def _null(array: pa.Array, bitmaps: _Bitmaps) -> int:  # noqa: ARG001 - one signature for all types
    return 0


def _dictionary(array: pa.Array, bitmaps: _Bitmaps) -> int:
    return _walk(array.indices, bitmaps) + _walk(array.dictionary, bitmaps)


_HANDLERS: dict[int, Callable[[pa.Array, _Bitmaps], int]] = {
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
