"""How many bytes a chunk takes in memory: the formula that Rerun's thresholds are compared with.

It counts what the rows of the chunk refer to, not what the buffers behind them hold. See :func:`chunk_bytes`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from ..chunk import ChunkData
from .array_size import array_size

FIXED_BYTES = 224
"""What a chunk takes before its first column."""


class ColumnSize(NamedTuple):
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
    return ColumnSize(array_size(values)(0, len(values), bitmaps), tuple(bitmaps))


class RowSizes:
    """The sizes of any runs of rows of one chunk, measured without slicing it."""

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
        """:func:`chunk_bytes` of a chunk of these rows."""
        return chunk_bytes(end - start, self._timelines, self.columns(start, end))


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
    return RowSizes(data).bytes(0, data.num_rows)


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
