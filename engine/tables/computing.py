"""Calls of a function for a batch: columns as Python values or arrays, the calls, the results as one array."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, cast

import pyarrow as pa

from ..errors import FunctionResultError, UsageError
from .results import ROW, array_of_values, as_type, raise_for_row
from .signatures import FunctionKind


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
    """The results for ``batch`` of what ``function`` gives; it is asked for it only where there are rows.

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
    """The input columns, found by name; where the batch has others, they are those in order."""
    names = batch.schema.names
    if set(inputs) <= set(names):
        columns = [batch.column(names.index(column)) for column in inputs]
    elif len(names) == len(inputs):
        columns = batch.columns
    else:
        raise UsageError(f"UDF {name!r} is called with the columns {list(inputs)}, and the batch has {names}")
    return pa.RecordBatch.from_arrays(columns, names=list(inputs))


def python_values(column: pa.Array) -> list[Any]:
    """The values of a column as Python has them, None for null."""
    if column.null_count == 0 and (pa.types.is_integer(column.type) or pa.types.is_float64(column.type)):
        return cast("list[Any]", column.to_numpy().tolist())
    return cast("list[Any]", column.to_pylist())


def _called_for_rows(call: Callable[..., Any], columns: Sequence[list[Any]], timeout: float | None) -> list[Any]:
    """The result of each row. What the function raises has a note of the row."""
    values: list[Any] = []
    try:
        if timeout is None:
            values.extend(map(call, *columns))  # keeps what came before an error: the row is known by their number
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
    """A way to call a function for one row that raises ``TimeoutError`` after ``seconds``.

    Only a process's main thread is told by a signal. In others the call is waited for, and judged by the clock.
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
        signal.setitimer(signal.ITIMER_REAL, seconds, seconds)  # again, where the function swallowed the first
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
