"""Lists taken apart: one row an element, one row for a list without any."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .selector import lists


def is_one_each(column: pa.ListArray) -> bool:
    """Whether every row is a list of exactly one element."""
    offsets = lists.offsets_of(column)
    return column.null_count == 0 and bool((offsets[1:] - offsets[:-1] == 1).all())


def is_at_most_one_each(column: pa.ListArray) -> bool:
    """Whether no row has several elements."""
    return bool((_lengths(column) <= 1).all())


def source_rows(column: pa.ListArray, *, keep_empty: bool = True) -> npt.NDArray[np.int64] | None:
    """The input row of each output row; None where every row gives one."""
    lengths = _lengths(column)
    if lengths.max(initial=0) <= 1 and (keep_empty or lengths.min(initial=1) == 1):
        return None
    if not keep_empty:
        return np.repeat(np.arange(len(column), dtype=np.int64), lengths)
    return np.repeat(np.arange(len(column), dtype=np.int64), np.maximum(lengths, 1))


def exploded(column: pa.ListArray, *, keep_empty: bool = True) -> pa.ListArray:
    """One list of one element for each element, null for a null one.

    Null and empty rows stay one row each, or none without ``keep_empty``.
    """
    elements, offsets = lists.grouped(column, hidden=False)
    present = lists.validity_of(elements)
    lengths = offsets[1:] - offsets[:-1]
    if lengths.min(initial=1) > 0 or not keep_empty:
        return lists.list_array(elements, np.arange(len(elements) + 1, dtype=np.int32), present)
    return _with_gaps(elements, lengths, present, lists.validity_of(column))


def _with_gaps(
    elements: pa.Array,
    lengths: npt.NDArray[np.integer],
    present: lists.Validity | None,
    valid: lists.Validity | None,
) -> pa.ListArray:
    """:func:`exploded` where some rows have no element."""
    counts = np.maximum(lengths, 1)
    ends = np.cumsum(counts)
    gaps = (ends - counts)[lengths == 0]
    takes = np.ones(int(ends[-1]), dtype=np.int32)
    takes[gaps] = 0
    offsets = np.zeros(len(takes) + 1, dtype=np.int32)
    np.cumsum(takes, out=offsets[1:])
    shown = np.ones(len(takes), dtype=bool)
    if present is not None:
        shown[takes == 1] = present
    if valid is not None:
        shown[gaps] = valid[lengths == 0]
    return lists.list_array(elements, offsets, shown)


def _lengths(column: pa.ListArray) -> npt.NDArray[np.int32]:
    offsets = lists.offsets_of(column)
    lengths = offsets[1:] - offsets[:-1]
    valid = lists.validity_of(column)
    return lengths if valid is None else lengths * valid
