"""Calls of a function: batches sized by time and bytes, arguments, and results as lossless Arrow arrays."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from types import FrameType
from typing import Any, Final, NoReturn, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import FunctionResultError, UsageError
from ..limits import MIB
from .signatures import FunctionKind


def array_of_values(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    """Return the rows' values as an array: numbers, text, bytes, numpy arrays, dicts, NamedTuples, dataclasses.

    Raises an error of Arrow or Python for a value that the type cannot hold, such as a fraction for integers. No finite
    number becomes infinite.
    """
    if isinstance(data_type, pa.BaseExtensionType):
        flat = [np.ravel(value) if isinstance(value, np.ndarray) else value for value in values]
        return pa.ExtensionArray.from_storage(data_type, array_of_values(flat, data_type.storage_type))
    if pa.types.is_struct(data_type):
        return _structs(values, data_type)
    if _is_list(data_type):
        return _lists(values, data_type)
    if pa.types.is_integer(data_type):
        return _integers(values, data_type)
    if pa.types.is_floating(data_type):
        return _floats(values, data_type)
    return pa.array(values, data_type)


def _integers(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    if not len(values):
        return pa.array([], data_type)
    try:
        return _alike(pa.array(values), data_type)  # given the type, Arrow would cut off fractions
    except OverflowError:
        if {*map(type, values)} <= {int, type(None)}:
            return pa.array(values, data_type)
        raise


def _floats(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    try:
        made = pa.array(values, data_type)
    except pa.ArrowInvalid:  # an integer that a float rounds
        return _rounded(pa.array(values, pa.float64()), data_type)
    if not pa.types.is_float64(data_type) and _infinite(made):
        return _rounded(pa.array(values, pa.float64()), data_type)
    return made


def as_type(result: Any, data_type: pa.DataType, name: str) -> pa.Array:
    """Return the result of a function for a batch, as one array of the column's type.

    Numbers are widened or rounded to the type, also inside lists and structs. Text and numbers are not converted into
    each other. Raises ``FunctionResultError`` for another type.
    """
    try:
        made = _one_array(result, data_type)
        if made.type == data_type:
            return made
        if _is_alike(made.type, data_type):
            return _rounded(made, data_type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        said = f"UDF {name!r} returned {_described(result)}, which is not an array of {data_type}: {_first_line(error)}"
        raise FunctionResultError(said) from error
    raise FunctionResultError(f"UDF {name!r} returned an array of {made.type}, but its column has type {data_type}")


ROW: Final = "__chunkmill_row__"
"""The attribute of an error that names the row of the batch for which a function failed."""


def raise_for_row(values: Sequence[Any], data_type: pa.DataType, name: str, error: Exception) -> NoReturn:
    """Raise ``FunctionResultError`` that names the first of ``values`` that caused ``error``."""
    for row, value in enumerate(values):
        try:
            array_of_values([value], data_type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as cause:
            said = (
                f"UDF {name!r} returned {_described(value)} for row {row:,} of the batch, which is not of type "
                f"{data_type}"
            )
            wrong = FunctionResultError(f"{said}: {_first_line(cause)}")
            setattr(wrong, ROW, row)
            raise wrong from cause
    raise FunctionResultError(
        f"UDF {name!r} returned values that are not of type {data_type}: {_first_line(error)}"
    ) from error


def _structs(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    names = [field.name for field in data_type]
    kinds = set(map(type, values))
    columns: Sequence[Sequence[Any]]
    if len(kinds) == 1 and tuple(getattr(next(iter(kinds)), "_fields", ())) == tuple(names):
        columns, mask = list(zip(*values, strict=True)), None
    else:
        rows = [[None] * len(names) if value is None else _parts(value, names) for value in values]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        mask = pa.array([value is None for value in values], pa.bool_()) if type(None) in kinds else None
    children = [array_of_values(column, field.type) for column, field in zip(columns, data_type, strict=True)]
    return pa.StructArray.from_arrays(children, fields=list(data_type), mask=mask)


def _parts(value: Any, names: Sequence[str]) -> Sequence[Any]:
    """Return the values of fields: the items of a tuple or dict, or the attributes of an object."""
    if isinstance(value, tuple) and tuple(getattr(value, "_fields", names)) == tuple(names):
        if len(value) != len(names):
            raise TypeError(f"{len(value)} values for {len(names)} fields")
        return value
    if isinstance(value, dict):
        unknown = sorted(map(str, value.keys() - {*names}))
        if unknown:
            raise TypeError(f"there is no field {unknown[0]!r}, only {list(names)}")
        return [value.get(name) for name in names]
    missing = [name for name in names if not hasattr(value, name)]
    if missing:
        raise TypeError(f"it has no field {missing[0]!r}")
    return [getattr(value, name) for name in names]


def _is_list(data_type: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(data_type) or types.is_large_list(data_type) or types.is_fixed_size_list(data_type))


def _lists(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    kinds = set(map(type, values))
    if kinds <= {list, tuple, type(None)} and not _is_looked_into(data_type.value_type):
        with contextlib.suppress(pa.ArrowInvalid):  # for integers that a float rounds
            made = pa.array(values, data_type)
            if not pa.types.is_floating(data_type.value_type) or not _infinite(made.flatten()):
                return made
    rows = values
    if not (kinds <= {list, tuple, type(None)} or kinds == {np.ndarray}):
        rows = [None if value is None else _row_of_list(value) for value in values]
    nulls = pa.array([row is None for row in rows], pa.bool_()) if type(None) in kinds else None
    if pa.types.is_fixed_size_list(data_type):
        size = data_type.list_size
        wrong = next((len(row) for row in rows if row is not None and len(row) != size), None)
        if wrong is not None:
            raise ValueError(f"it has {wrong:,} items")
        filled = rows if nulls is None else [[None] * size if row is None else row for row in rows]
        child = _items(filled, data_type.value_type)
        return pa.FixedSizeListArray.from_arrays(child, type=data_type, mask=nulls)
    filled = rows if nulls is None else [() if row is None else row for row in rows]
    is_large = pa.types.is_large_list(data_type)
    offsets = np.zeros(len(filled) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, filled), np.int64, len(filled)), out=offsets[1:])
    if not is_large and offsets[-1] > np.iinfo(np.int32).max:
        raise OverflowError(f"{offsets[-1]:,} items do not fit into an array of {data_type}: use a large_list")
    kind = pa.LargeListArray if is_large else pa.ListArray
    child = _items(filled, data_type.value_type)
    given = pa.array(offsets if is_large else offsets.astype(np.int32))
    return kind.from_arrays(given, child, type=data_type, mask=nulls)


def _is_looked_into(data_type: pa.DataType) -> bool:
    """Return whether Arrow's own conversion to the type would lose data, or supports too few classes."""
    types = pa.types
    is_nested = types.is_nested(data_type) or isinstance(data_type, pa.BaseExtensionType)
    return bool(is_nested or types.is_integer(data_type))


def _row_of_list(value: Any) -> Sequence[Any]:
    if isinstance(value, (pa.Array, pa.ChunkedArray)):
        items: list[Any] = value.to_pylist()
        return items
    if not isinstance(value, (list, tuple, np.ndarray)) and hasattr(value, "__array__"):
        value = np.asarray(value)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        raise TypeError("it has no items")
    if isinstance(value, (str, bytes, bytearray, dict, set, frozenset)) or not hasattr(value, "__len__"):
        raise TypeError("it is not a list")
    row: Sequence[Any] = value
    return row


def _items(rows: Sequence[Any], value_type: pa.DataType) -> pa.Array:
    """Return the items of all rows, concatenated."""
    if {*map(type, rows)} == {np.ndarray}:
        with contextlib.suppress(ValueError):  # for rows of different shapes
            joined = np.concatenate(rows)
            if joined.ndim == 1 and joined.dtype.kind in "iufb":
                return _alike(pa.array(joined), value_type)
    return array_of_values(list(chain.from_iterable(rows)), value_type)


def _alike(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    if not _is_alike(array.type, data_type):
        raise TypeError(f"it is {array.type}")
    return _rounded(array, data_type)


def _rounded(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Convert numbers to another type of numbers. Raises for fractions if the type is an integer, and for overflows."""
    made = array.cast(data_type)
    if pa.types.is_floating(data_type) and _infinite(made) != _infinite(array):
        raise OverflowError(f"a number is beyond the range of {data_type}")
    return made


def _infinite(array: pa.Array) -> int:
    if not pa.types.is_floating(array.type):
        return 0
    return int(pc.sum(pc.is_inf(array.cast(pa.float64()))).as_py() or 0)


def _one_array(result: Any, data_type: pa.DataType) -> pa.Array:
    if isinstance(result, pa.Table):
        result = result.to_struct_array()
    if isinstance(result, pa.RecordBatch):
        return result.to_struct_array()
    if isinstance(result, pa.ChunkedArray):
        return result.combine_chunks() if result.num_chunks != 1 else result.chunk(0)
    if isinstance(result, pa.Array):
        return result
    if pa.types.is_struct(data_type) and not isinstance(result, list):
        columns = _parts(result, [field.name for field in data_type])
        children = [as_type(column, field.type, field.name) for column, field in zip(columns, data_type, strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(data_type))
    if isinstance(result, list):
        return array_of_values(result, data_type)
    if isinstance(result, np.ndarray) and result.ndim > 1:
        return array_of_values(list(result), data_type)
    if isinstance(result, np.ndarray) or hasattr(result, "__arrow_array__") or hasattr(result, "__array__"):
        return pa.array(result)
    raise TypeError("it is not an array")


def _is_alike(first: pa.DataType, other: pa.DataType) -> bool:
    """Return whether two types differ only in width."""
    if first == other or pa.types.is_null(first):
        return True
    if _is_list(first) and _is_list(other):
        return _is_alike(first.value_type, other.value_type)
    if pa.types.is_struct(first) and pa.types.is_struct(other):
        names = [field.name for field in first] == [field.name for field in other]
        return names and all(_is_alike(a.type, b.type) for a, b in zip(first, other, strict=True))
    return any(family(first) and family(other) for family in (_is_number, _is_text, _is_bytes, pa.types.is_timestamp))


def _is_number(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type))


def _is_text(data_type: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(data_type) or types.is_large_string(data_type) or types.is_string_view(data_type))


def _is_bytes(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type))


def _described(value: Any) -> str:
    try:
        text = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 (whatever the user's class does)
        text = "…"
    return f"{type(value).__name__} {text[:80]}{'…' if len(text) > 80 else ''}"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def compute_batch(
    function: Callable[[], Callable[..., Any]],
    batch: pa.RecordBatch,
    *,
    name: str,
    kind: FunctionKind,
    inputs: Sequence[str] | None,
    data_type: pa.DataType,
    timeout: float | None,
) -> pa.Array:
    """Return the results for ``batch``. ``function`` is called for its callable only if there are rows.

    See :meth:`chunkmill.engine.tables.UDF.compute`.
    """
    chosen = batch if inputs is None else _chosen(batch, inputs, name)
    if batch.num_rows == 0:
        return pa.array([], data_type)
    call = function()
    if kind is FunctionKind.SCALAR:
        values = _called_for_rows(call, [python_values(column) for column in chosen.columns], timeout)
        try:
            return array_of_values(values, data_type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise_for_row(values, data_type, name, error)
    result = call(chosen) if kind is FunctionKind.RECORD_BATCH else call(*chosen.columns)
    made = as_type(result, data_type, name)
    if len(made) != batch.num_rows:
        raise FunctionResultError(f"UDF {name!r} returned {len(made):,} values for a batch of {batch.num_rows:,} rows")
    return made


def _chosen(batch: pa.RecordBatch, inputs: Sequence[str], name: str) -> pa.RecordBatch:
    """Return the input columns by name, or in order if the batch has other names."""
    names = batch.schema.names
    if set(inputs) <= set(names):
        columns = [batch.column(names.index(column)) for column in inputs]
    elif len(names) == len(inputs):
        columns = batch.columns
    else:
        raise UsageError(f"UDF {name!r} is called with the columns {list(inputs)}, but the batch has {names}")
    return pa.RecordBatch.from_arrays(columns, names=list(inputs))


def python_values(column: pa.Array) -> list[Any]:
    """Return the values of a column as Python objects; None for null."""
    if column.null_count == 0 and (pa.types.is_integer(column.type) or pa.types.is_float64(column.type)):
        return cast("list[Any]", column.to_numpy().tolist())
    return cast("list[Any]", column.to_pylist())


def _called_for_rows(call: Callable[..., Any], columns: Sequence[list[Any]], timeout: float | None) -> list[Any]:
    """Return the result of each row. An error of the function gets a note that names the row."""
    values: list[Any] = []
    try:
        if timeout is None:
            values.extend(map(call, *columns))  # keeps the results before an error: their number is the row
        else:
            with _row_timer(timeout) as timed:
                values.extend(timed(call, row) for row in zip(*columns, strict=True))
    except Exception as error:
        error.add_note(f"In row {len(values):,} of a batch of {len(columns[0]):,}.")
        with suppress(Exception):  # a class without room for attributes
            setattr(error, ROW, len(values))
        raise
    return values


@contextmanager
def _row_timer(seconds: float) -> Iterator[Callable[[Callable[..., Any], tuple[Any, ...]], Any]]:
    """Yield a function that calls another for one row, and raises ``TimeoutError`` after ``seconds``.

    Only a process's main thread gets a signal. In other threads the time is checked after the call.
    """
    late = f"the function took more than {seconds:g} s for a row"
    if threading.current_thread() is not threading.main_thread():

        def judged(call: Callable[..., Any], row: tuple[Any, ...]) -> Any:
            start = time.monotonic()
            value = call(*row)
            if time.monotonic() - start > seconds:
                raise TimeoutError(late)
            return value

        yield judged
        return

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(late)

    def interrupted(call: Callable[..., Any], row: tuple[Any, ...]) -> Any:
        signal.setitimer(signal.ITIMER_REAL, seconds, seconds)  # again, if the function swallowed the first
        try:
            return call(*row)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    start = time.monotonic()
    before = signal.signal(signal.SIGALRM, ring)
    left, every = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - start), 0.001), every)


_PATIENCE: Final = 16
"""The number of batches of the smallest size after which a larger one is tried."""
SECONDS: Final = 10.0
"""The target time of a batch of a function."""
LOAD_SECONDS: Final = 60.0
"""The target time of a batch of a load."""
FLUSH_SECONDS: Final = 5.0
"""The time after which computed values are stored as a checkpoint."""
FLUSH_BYTES: Final = 64 * MIB
READ_ROWS: Final = 2**17
READ_BYTES: Final = 4 * MIB
"""The bytes of one read. Reading blobs took twice as long with 32 MiB, as each read then allocates new memory."""
ASKED_READ_BYTES: Final = 32 * MIB
"""The most bytes of one read if the number of rows of a batch is given."""


@dataclass(frozen=True)
class Batching:
    """The limits of a batch's rows, its target time, and the time between checkpoints."""

    first: int | None = None
    least: int = 1
    most: int | None = None
    seconds: float = SECONDS
    flush_seconds: float = FLUSH_SECONDS
    read_bytes: int = READ_BYTES

    def __post_init__(self) -> None:
        for name in ("first", "least", "most"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"a checkpoint must have at least one row, got {value}")
        if self.most is not None and self.most < self.least:
            raise UsageError(f"max_checkpoint_size is {self.most}, less than min_checkpoint_size, {self.least}")
        if self.flush_seconds < 0:
            raise UsageError("batch_checkpoint_flush_interval_seconds must be at least 0")

    @property
    def read_rows(self) -> int:
        """Rows that are read at once."""
        return min(self.most or READ_ROWS, max(READ_ROWS, self.first or 0))


class BatchSize:
    """The rows of the next batch, from the times of earlier batches.

    >>> size = BatchSize(Batching(first=100, least=10, most=1000, seconds=1.0))
    >>> size.rows
    100
    >>> size.took(100, 4.0)
    >>> size.rows
    25
    """

    def __init__(self, batching: Batching) -> None:
        self._batching = batching
        self.rows = self._within(batching.first or batching.least)
        self._initial = self.rows
        self._at_least = 0

    def took(self, rows: int, seconds: float) -> None:
        """Adapt to the time that a batch took."""
        batching = self._batching
        self.rows = self._within(round(rows / max(seconds, 1e-6) * batching.seconds))
        self._at_least = self._at_least + 1 if self.rows == batching.least else 0
        if self._at_least >= _PATIENCE:
            self.rows = self._within(min(self.rows + 1, max(self._initial, batching.least + 1)))

    def _within(self, rows: int) -> int:
        limit = self._batching.most or 2**31
        if self._batching.first is not None and self._batching.most is None:
            limit = self._batching.first
        return max(min(self._batching.least, limit), min(rows, limit))
