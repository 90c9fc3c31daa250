"""The file of a column of a fragment, put together from what was computed of some rows and what there was of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa

from .checkpoints import Computed

_WINDOW: Final = 2**16
"""Rows that are put together at once."""

Stored = Callable[[tuple[int, int]], Iterator[pa.RecordBatch]]
"""What columns have in the rows of a span."""


def batches_of(
    pieces: Iterable[Computed], rows: int, schema: pa.Schema, stored: Stored | None
) -> Iterator[pa.RecordBatch]:
    """The rows of a whole fragment, of ``rows`` rows: the pieces, which come in order, and between them what is stored.

    Without ``stored``, there are nulls.
    """
    at = 0
    for piece in (window for one in pieces for window in _windows(one)):
        first, end = int(piece.offsets[0]), int(piece.offsets[-1]) + 1
        yield from _between(at, first, schema, stored)
        if end - first == len(piece):
            yield piece.values
        else:
            yield _filled(piece, first, end, schema, stored)
        at = end
    yield from _between(at, rows, schema, stored)


def _windows(piece: Computed) -> Iterator[Computed]:
    """A piece in parts that span no more rows than a window, where there are rows between its own."""
    first, last = int(piece.offsets[0]), int(piece.offsets[-1])
    if last - first + 1 == len(piece) or last - first < _WINDOW:
        yield piece
        return
    numbers = piece.offsets // _WINDOW
    bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(piece)]
    for begin, end in zip(bounds, islice(bounds, 1, None), strict=False):
        yield Computed(piece.offsets[begin:end], piece.values.slice(begin, end - begin))


def _between(first: int, end: int, schema: pa.Schema, stored: Stored | None) -> Iterator[pa.RecordBatch]:
    """The rows from one offset to another of which nothing was computed."""
    if first >= end:
        return
    if stored is not None:
        yield from stored((first, end))
        return
    for begin in range(first, end, _WINDOW):
        yield _nulls(min(_WINDOW, end - begin), schema)


def _filled(piece: Computed, first: int, end: int, schema: pa.Schema, stored: Stored | None) -> pa.RecordBatch:
    """A piece with the rows between its own."""
    places = piece.offsets.astype(np.int64) - first
    if stored is None:
        indices = np.zeros(end - first, np.int64)
        indices[places] = np.arange(len(piece))
        missing = np.ones(end - first, np.bool_)
        missing[places] = False
        return piece.values.take(pa.array(indices, mask=missing))
    before = pa.Table.from_batches(stored((first, end)), schema)
    indices = np.arange(end - first)
    indices[places] = before.num_rows + np.arange(len(piece))
    both = pa.concat_tables([before, pa.Table.from_batches([piece.values], schema)])
    return both.take(pa.array(indices)).combine_chunks().to_batches()[0]


def _nulls(rows: int, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows, field.type) for field in schema], schema=schema)
