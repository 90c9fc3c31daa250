"""Index columns as timelines."""

from __future__ import annotations

import warnings
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...engine.chunk import Timeline, TimelineKind
from ...engine.errors import ReadError, ReadWarning
from .options import IndexColumn

ROW_INDEX: Final = "row_index"
"""The timeline of files without an index column: numbers of rows, from 0."""

_INTEGERS: Final = (pa.int64(), pa.int32(), pa.int16(), pa.uint32(), pa.uint64())
_LIMIT: Final = 2**63

Ints = npt.NDArray[np.int64]


def is_index_type(datatype: pa.DataType) -> bool:
    """Whether a column of this type can be a timeline."""
    return (
        datatype in _INTEGERS
        or datatype in (pa.float64(), pa.float32())
        or pa.types.is_timestamp(datatype)
        or pa.types.is_duration(datatype)
    )


def row_numbers(first: int, length: int) -> Timeline:
    """The timeline of rows ``first`` and following."""
    return _timeline(ROW_INDEX, TimelineKind.SEQUENCE, np.arange(first, first + length, dtype=np.int64))


def timeline(values: pa.Array, column: IndexColumn, *, path: str, first_row: int) -> Timeline:
    """An index column as the timeline of its name.

    Timestamps and durations count by the numbers that are stored, in the unit that the options name. Floats are cut
    toward zero, saturating, NaN is 0. Raises ``ReadError`` where a time is null; ``first_row`` is that of ``values``.
    """
    if values.null_count:
        row = first_row + int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        raise ReadError(
            f"index column {column.path!r} is null in row {row:,}, and a row without a time cannot be placed",
            path=path,
            hint=f"Leave {column.path!r} out of index_columns, or fill its nulls.",
        )
    return _timeline(column.path, column.line, _scaled(_integers(values), column, path))


def _integers(values: pa.Array) -> Ints:
    if pa.types.is_floating(values.type):
        return _truncated(values.to_numpy(zero_copy_only=False).astype(np.float64))
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int64())
    return np.asarray(values.to_numpy(zero_copy_only=False)).astype(np.int64)  # u64 beyond i64 wraps


def _truncated(values: npt.NDArray[np.float64]) -> Ints:
    inside = np.abs(values) < _LIMIT
    out = np.where(inside, values, 0).astype(np.int64)
    out[values >= _LIMIT] = _LIMIT - 1
    out[values <= -_LIMIT] = -_LIMIT
    return out


def _scaled(values: Ints, column: IndexColumn, path: str) -> Ints:
    if column.factor == 1 or not len(values):
        return values
    most = (_LIMIT - 1) // column.factor
    if int(values.max()) > most or int(values.min()) < -most:
        warnings.warn(
            f"{path}: times of index column {column.path!r} do not fit into 64 bits of nanoseconds and wrap around;"
            " is its unit right?",
            ReadWarning,
            stacklevel=2,
        )
    with np.errstate(over="ignore"):
        return values * np.int64(column.factor)


def _timeline(name: str, kind: TimelineKind, values: Ints) -> Timeline:
    values = np.ascontiguousarray(values)
    times = pa.Array.from_buffers(kind.arrow_type, len(values), [None, pa.py_buffer(values)])
    return Timeline(name, kind, times)
