"""Columns of a batch as the values of components, by expressions, and as timelines."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...engine.chunk import Timeline, TimelineKind
from ...engine.errors import ReadError, ReadWarning
from ...engine.units import counted
from .options import IndexColumn

_NUMBER = r"^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|inf|infinity|nan|NaN|Inf)$"


class Expression(Protocol):
    """Values from columns: one per row."""

    @property
    def columns(self) -> tuple[int, ...]:
        """Positions of the columns that are needed."""
        ...

    @property
    def nullable(self) -> bool:
        """Whether a value may be null."""
        ...

    def evaluate(self, arrays: Mapping[int, pa.Array], length: int) -> pa.Array:
        """The ``length`` values; ``arrays`` are found by the columns' positions."""
        ...


@dataclass(frozen=True)
class RawColumn:
    """One column as it is."""

    column: int
    nullable: bool

    @property
    def columns(self) -> tuple[int, ...]:
        """The column."""
        return (self.column,)

    def evaluate(self, arrays: Mapping[int, pa.Array], length: int) -> pa.Array:  # noqa: ARG002
        """The column itself, without a copy."""
        return arrays[self.column]


@dataclass(frozen=True)
class VectorColumn:
    """Several columns side by side as a fixed-size list of floats; null becomes 0, with a ``ReadWarning``."""

    columns: tuple[int, ...]
    labels: tuple[str, ...]
    double: bool = False
    nullable: bool = True

    def evaluate(self, arrays: Mapping[int, pa.Array], length: int) -> pa.Array:
        """``fixed_size_list<float32 or float64, number of columns>``."""
        out = np.empty((length, len(self.columns)), np.float64 if self.double else np.float32)
        for i, (column, label) in enumerate(zip(self.columns, self.labels, strict=True)):
            out[:, i] = _numbers(arrays[column], label, out.dtype)
        values = pa.array(out.reshape(-1))
        kind = pa.list_(pa.field("item", values.type, nullable=False), len(self.columns))
        return pa.FixedSizeListArray.from_arrays(values, type=kind)


@dataclass(frozen=True)
class NamesColumn:
    """The same list of names in every row."""

    names: tuple[str, ...]
    columns: tuple[int, ...] = ()
    nullable: bool = True

    def evaluate(self, arrays: Mapping[int, pa.Array], length: int) -> pa.Array:  # noqa: ARG002
        """``fixed_size_list<string, number of names>``."""
        values = pa.array(self.names, pa.string()).take(pa.array(np.tile(np.arange(len(self.names)), length)))
        kind = pa.list_(pa.field("item", pa.string(), nullable=False), len(self.names))
        return pa.FixedSizeListArray.from_arrays(values, type=kind)


@dataclass(frozen=True)
class StructColumn:
    """Other expressions as the fields of a struct; names may repeat."""

    fields: tuple[tuple[str, Expression], ...]
    nullable: bool = True

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """The columns of all fields."""
        return tuple(c for _, part in self.fields for c in part.columns)

    def evaluate(self, arrays: Mapping[int, pa.Array], length: int) -> pa.Array:
        """A struct array over the fields' values, without a copy of them."""
        parts = [part.evaluate(arrays, length) for _, part in self.fields]
        fields = [
            pa.field(name, a.type, nullable=part.nullable) for (name, part), a in zip(self.fields, parts, strict=True)
        ]
        return pa.StructArray.from_arrays(parts, fields=fields)


def one_each(values: pa.Array, *, nullable: bool) -> pa.ListArray:
    """A list column with one instance in each row; no value is copied."""
    kind = pa.list_(pa.field("item", values.type, nullable=nullable))
    return pa.Array.from_buffers(kind, len(values), [None, _offsets(len(values))], children=[values])


@lru_cache(maxsize=8)  # all columns of a batch share them: 10 % of 300,000 rows x 40; benchmarks/bench_parquet.py
def _offsets(length: int) -> pa.Buffer:
    return pa.py_buffer(np.arange(length + 1, dtype=np.int32))


def becomes_numbers(datatype: pa.DataType) -> bool:
    """Whether a column of this type can be part of a vector."""
    if pa.types.is_dictionary(datatype):
        return becomes_numbers(datatype.value_type)
    return bool(
        pa.types.is_integer(datatype)
        or pa.types.is_floating(datatype)
        or pa.types.is_boolean(datatype)
        or pa.types.is_decimal(datatype)
        or pa.types.is_timestamp(datatype)
        or pa.types.is_duration(datatype)
        or pa.types.is_string(datatype)
        or pa.types.is_large_string(datatype)
    )


def _numbers(values: pa.Array, label: str, dtype: np.dtype[np.floating]) -> npt.NDArray[np.floating]:
    """A column as floats, without nulls."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int64())
    nulls = values.null_count
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values = pc.if_else(pc.match_substring_regex(values, _NUMBER), values, None)
    floats = pc.cast(values, pa.from_numpy_dtype(dtype), safe=False)
    if floats.null_count > nulls:
        _warn(f"column {label!r}: texts that are no numbers become 0 in a component that a column rule makes")
    if nulls:
        _warn(f"column {label!r}: nulls become 0 in a component that a column rule makes")
    if floats.null_count:
        floats = pc.fill_null(floats, 0)
    return np.asarray(floats.to_numpy(zero_copy_only=False))


def _warn(text: str) -> None:
    warnings.warn(text, ReadWarning, stacklevel=2)


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
    """Return an index column as the timeline of its name.

    Integers, timestamps and durations count by the numbers that are stored, in the unit that the options name. Floats
    are scaled to nanoseconds, then rounded; times beyond 64 bits become the earliest or latest there is. ``first_row``
    is the number of the first of ``values``. Warns (``ReadWarning``) of times that wrap around or are clamped. Raises
    ``ReadError`` for a null, for NaN, and for a float of a sequence that is no 64-bit integer.
    """
    if values.null_count:
        raise _no_time(column, "null", values.is_null(), path, first_row)
    if pa.types.is_floating(values.type):
        return _timeline(column.path, column.line, _rounded(values, column, path, first_row))
    return _timeline(column.path, column.line, _scaled(_integers(values, column, path), column, path))


def _no_time(column: IndexColumn, what: str, rows: pa.Array, path: str, first_row: int) -> ReadError:
    row = first_row + int(np.flatnonzero(rows.to_numpy(zero_copy_only=False))[0])
    return ReadError(
        f"index column {column.path!r} is {what} in row {row:,}, and a row without a time cannot be placed",
        path=path,
        hint=f"Leave {column.path!r} out of index_columns, or write a time into each row.",
    )


def _rounded(values: pa.Array, column: IndexColumn, path: str, first_row: int) -> Ints:
    """Floats as ticks: half a nanosecond is rounded away from zero, as Rerun 0.41 does."""
    if column.line is TimelineKind.SEQUENCE:
        return _whole_numbers(values, column, path, first_row)
    nan = pc.is_nan(values)
    if pc.any(nan).as_py():
        raise _no_time(column, "NaN", nan, path, first_row)
    scaled = values.to_numpy(zero_copy_only=False).astype(np.float64) * column.factor
    inside = (scaled >= -_LIMIT) & (scaled < _LIMIT)
    kept = np.where(inside, scaled, 0)
    whole = np.trunc(kept)
    out = (whole + np.where(np.abs(kept - whole) >= 0.5, np.sign(kept), 0)).astype(np.int64)
    if not inside.all():
        _warn(
            f"{path}: index column {column.path!r}: {counted(int((~inside).sum()), 'time')} beyond 64 bits of"
            " nanoseconds, clamped to the earliest or latest there is; is its unit right?"
        )
        out[~inside] = np.where(scaled[~inside] > 0, _LIMIT - 1, -_LIMIT)
    return out


def _whole_numbers(values: pa.Array, column: IndexColumn, path: str, first_row: int) -> Ints:
    numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
    inside = (numbers >= -_LIMIT) & (numbers < _LIMIT)
    ticks = np.where(inside, numbers, 0).astype(np.int64)
    wrong = np.flatnonzero(~inside | (ticks != numbers))
    if len(wrong):
        raise ReadError(
            f"index column {column.path!r} is {numbers[wrong[0]]} in row {first_row + int(wrong[0]):,}, and a sequence"
            " counts in 64-bit integers",
            path=path,
            hint=f"If the column holds times, read it as '{column.path}:timestamp:s' or '{column.path}:duration:s'.",
        )
    return ticks


def _integers(values: pa.Array, column: IndexColumn, path: str) -> Ints:
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int64())
    ticks = np.asarray(values.to_numpy(zero_copy_only=False))
    if ticks.dtype == np.uint64 and (beyond := int((ticks >= np.uint64(_LIMIT)).sum())):
        _warn(f"{path}: index column {column.path!r}: {counted(beyond, 'number')} beyond 2^63, wrapped to negative")
    return ticks.astype(np.int64)


def _scaled(values: Ints, column: IndexColumn, path: str) -> Ints:
    if column.factor == 1 or not len(values):
        return values
    most = (_LIMIT - 1) // column.factor
    if int(values.max()) > most or int(values.min()) < -most:
        _warn(
            f"{path}: times of index column {column.path!r} do not fit into 64 bits of nanoseconds and wrap around;"
            " is its unit right?"
        )
    with np.errstate(over="ignore"):
        return values * np.int64(column.factor)


def _timeline(name: str, kind: TimelineKind, values: Ints) -> Timeline:
    values = np.ascontiguousarray(values)
    times = pa.Array.from_buffers(kind.arrow_type, len(values), [None, pa.py_buffer(values)])
    return Timeline(name, kind, times)
