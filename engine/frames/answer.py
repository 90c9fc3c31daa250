"""A query result as a dataset of segments for DataFusion; its executions, and the user calls that wait for rows.

The scan applies columns and filters that DataFusion pushes down and pyarrow can express. DataFusion applies filters on
components again, and evaluates everything else above the scan.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ..errors import ChunkmillError, SessionError, UnsupportedError
from ..execution import RunOptions, query_executor
from ..query import AnswerColumns, QueriedSegment, grouped, lacking_guarantee, satisfiable, segment_guarantee
from .filters import ValueFilter, conjuncts_of, divided
from .metrics import MeasuredScan, Measuring
from .plan import RowRequest, SegmentShare, Unit, needed_bytes, stored_bytes, tasks_over


class Rows(Protocol):
    """The rows of an execution's segments, from any executor."""

    def rows(self, segment: int) -> Iterator[pa.RecordBatch]:
        """The rows of a segment."""
        ...

    def close(self) -> None:
        """End running tasks, and remove all files."""
        ...


class Execution:
    """An execution. It starts to read when rows are requested."""

    def __init__(
        self,
        segments: Sequence[Unit],
        predicate: pc.Expression | None,
        options: RunOptions,
        measured: MeasuredScan | None = None,
    ) -> None:
        self._segments = segments
        self._predicate = predicate
        self._options = options
        self._measured = measured
        self._lock = threading.Lock()
        self._rows: Rows | None = None
        self._is_closed = False

    def rows(self, segment: int, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """The rows of a segment, with the columns ``names``; no rows for a missing segment."""
        rows = self._unmeasured(segment, names)
        return rows if self._measured is None else self._measured.stream(segment, names, rows)

    @property
    def is_here(self) -> bool:
        """Whether this process is known to be the reader."""
        return isinstance(self._rows, LocalRows)

    def _unmeasured(self, segment: int, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        if segment < len(self._segments):
            for batch in self._chosen(None if names is None else tuple(names)).rows(segment):
                self._check()
                yield batch

    def _check(self) -> None:
        if self._is_closed:
            raise SessionError("the rows of a query were requested after its end", hint="Run the query again.")

    def close(self) -> None:
        """End running tasks, and remove all files."""
        self._is_closed = True
        if self._measured is not None:
            self._measured.stop()
        with self._lock:
            if self._rows is not None:
                self._rows.close()
        if self._measured is not None:
            self._measured.close()

    def _chosen(self, names: tuple[str, ...] | None) -> Rows:
        """The reader, chosen once, as all segments are read with the same columns."""
        with self._lock:
            self._check()
            if self._rows is None:
                self._rows = rows_of(self._segments, RowRequest(names, self._predicate), self._options, self._measured)
            return self._rows


def rows_of(
    segments: Sequence[Unit], request: RowRequest, options: RunOptions, measured: MeasuredScan | None = None
) -> Rows:
    """The rows of segments, read by the executor of ``options``. Without one, the number of bytes decides."""
    stored = stored_bytes(segments)
    # if even all stored bytes are few, no manifest is read to count the needed ones
    executor = query_executor(options.executor, lambda: int(stored.sum()))
    if executor == "inline":
        return LocalRows(segments, request)
    needed = needed_bytes(segments, request, stored)
    if query_executor(options.executor, lambda: int(needed.sum())) == "inline":
        return LocalRows(segments, request)
    from .spark_rows import SparkRows

    tasks, places = tasks_over(segments, needed)
    return SparkRows(tasks, places, request, options, measured)


class LocalRows:
    """The rows of segments, read lazily in this process by the threads that request them."""

    def __init__(self, segments: Sequence[Unit], request: RowRequest) -> None:
        self._segments = segments
        self._request = request

    def rows(self, segment: int) -> Iterator[pa.RecordBatch]:
        """The rows of a segment."""
        return SegmentShare(self._segments[segment]).batches(self._request)

    def close(self) -> None:
        """Do nothing: rows are read only when they are taken."""


T = TypeVar("T")

_LONGEST_STOP: Final = 10.0
"""The most seconds to wait for the end of an interrupted call."""


class UserCall:
    """A call by the user: its executions and its first read error, as DataFusion keeps only the text of errors."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._executions: list[Execution] = []
        self._holders = 0
        self._is_closed = False
        self._waiter: _Waiter | None = None

    def add(self, execution: Execution) -> None:
        """Add an execution."""
        with self._lock:
            self._executions.append(execution)
            is_closed = self._is_closed
        if is_closed:
            execution.close()

    def fail(self, error: BaseException) -> None:
        """Keep the first error."""
        with self._lock:
            self.error = self.error or error

    @contextmanager
    def telling(self) -> Iterator[None]:
        """A block that raises the first read error in place of DataFusion's error."""
        try:
            yield
        except (ChunkmillError, StopIteration, StopAsyncIteration):
            raise
        except Exception as error:
            if self.error is None:
                raise
            raise self.error from error

    def held(self) -> Callable[[], None]:
        """Add a holder of the call, and return its release function. The last release closes the call."""
        self._holders += 1

        def let_go() -> None:
            self._holders -= 1
            if not self._holders:
                self.close()

        return let_go

    def close(self) -> None:
        """End the executions, and remove their files."""
        with self._lock:
            self._is_closed = True
            executions = list(self._executions)
            waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.end()
        for execution in executions:
            execution.close()

    def answer(self, work: Callable[[], T]) -> T:
        """Run ``work``, which may wait in DataFusion for tasks, and return its result. An interrupt ends the work.

        DataFusion checks for signals by a timer that pauses while its threads wait. If called in the main thread, which
        receives signals, another thread therefore waits for DataFusion, unless there are no tasks.
        """
        if threading.current_thread() is not threading.main_thread() or self._reads_here():
            with calling(self):
                return work()
        waiting = _Waiting(self, work)
        waiter = self._waiter or _Waiter()
        waiter.run(partial(contextvars.copy_context().run, waiting.run))
        if self._holders:  # a stream calls again
            self._waiter = waiter
        else:
            waiter.end()
        try:
            waiting.done.wait()
        except BaseException:
            self.close()
            waiting.done.wait(_LONGEST_STOP)
            raise
        if waiting.error is not None:
            raise waiting.error
        return waiting.results[0]

    def _reads_here(self) -> bool:
        """Return whether this process is known to be the reader of all executions."""
        with self._lock:
            return bool(self._executions) and all(execution.is_here for execution in self._executions)


class _Waiter:
    """A thread that runs functions one after another, until :meth:`end`. A stream uses one for all batches."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=_do_all, args=(self._work,), name="chunkmill-query", daemon=True).start()

    def run(self, work: Callable[[], None]) -> None:
        """Run ``work`` in the thread, after the functions before it."""
        self._work.put(work)

    def end(self) -> None:
        """End the thread when its functions have run."""
        self._work.put(None)


def _do_all(work: SimpleQueue[Callable[[], None] | None]) -> None:
    while (function := work.get()) is not None:
        function()
        del function  # else it keeps the last batch in memory until the next call


class _Waiting(Generic[T]):
    """Work that another thread does."""

    def __init__(self, call: UserCall, work: Callable[[], T]) -> None:
        self.done = threading.Event()
        self.results: list[T] = []
        self.error: BaseException | None = None
        self._call = call
        self._work = work

    def run(self) -> None:
        try:
            with calling(self._call):
                self.results.append(self._work())
        except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
            self.error = error
        self.done.set()


class _Thread(threading.local):
    call: UserCall | None = None


class _Calls:
    """The active calls, by their threads."""

    def __init__(self) -> None:
        self._thread = _Thread()
        self._lock = threading.Lock()
        self._active: list[UserCall] = []

    @contextmanager
    def entered(self, call: UserCall) -> Iterator[None]:
        before, self._thread.call = self._thread.call, call
        with self._lock:
            self._active.append(call)
        try:
            yield
        finally:
            self._thread.call = before
            with self._lock:
                self._active.remove(call)

    def of_thread(self) -> UserCall | None:
        """The call of this thread, or None."""
        return self._thread.call

    def current(self) -> UserCall | None:
        """The call of this thread, or else (DataFusion 52 has threads of its own) the only active call."""
        with self._lock:
            distinct = {id(call): call for call in self._active}
        only = next(iter(distinct.values())) if len(distinct) == 1 else None
        return self._thread.call or only


_calls = _Calls()


def calling(call: UserCall) -> AbstractContextManager[None]:
    """A block in which this is the current call of the thread, as DataFusion plans in the calling thread."""
    return _calls.entered(call)


def outer_call() -> UserCall | None:
    """The call of this thread, or None. Inner calls are part of it."""
    return _calls.of_thread()


def current_call() -> UserCall:
    """The current call of this thread, or else a new one."""
    return _calls.current() or UserCall()


class Answer(ds.Dataset):  # type: ignore[misc]
    """The result of a query as a dataset."""

    def __init__(
        self, columns: AnswerColumns, segments: Sequence[QueriedSegment], options: RunOptions, measuring: Measuring
    ) -> None:
        self.columns = columns
        self.segments = segments
        self.options = options
        self._measuring = measuring

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self.columns.arrow

    def scanner(self, columns: Sequence[str] | None = None, **_: Any) -> _Scan:
        """The columns of a scan, for DataFusion's planner."""
        return _Scan(self.columns.arrow, columns, lambda: iter(()))

    def get_fragments(self, filter: pc.Expression | None = None) -> list[_Segment]:  # noqa: A002 (pyarrow's name)
        """The segments that may have rows that pass the filter; at least one, as DataFusion needs one."""
        call = current_call()
        if isinstance(filter, pa.Scalar):  # DataFusion found that it is constant
            filter = pc.scalar(filter)  # noqa: A001
        below, rest = divided(filter, self.columns)
        try:
            segments = possible_segments(self.columns, self.segments, below)
        except UnsupportedError as error:
            call.fail(error)
            raise
        units = grouped(segments)
        measured = self._measuring.scan(self.columns, units, below, conjuncts_of(filter))
        execution = Execution(units, below, self.options, measured)
        call.add(execution)
        return [_Segment(execution, number, call, rest) for number in range(max(len(units), 1))]


def possible_segments(
    columns: AnswerColumns, segments: Sequence[QueriedSegment], predicate: pc.Expression | None
) -> list[QueriedSegment]:
    """Return the segments whose entries allow rows that pass a predicate.

    Raises ``UnsupportedError`` for a predicate that Arrow cannot evaluate.
    """
    possible = [segment for segment in segments if segment.may_have_rows]
    if predicate is None:
        return possible
    lacking: dict[Any, pc.Expression | None] = {}
    guarantees = []
    for segment in possible:
        if id(segment.component_keys) not in lacking:
            lacking[id(segment.component_keys)] = lacking_guarantee(columns, segment.component_keys)
        guarantees.append(
            segment_guarantee(columns, segment.segment_id, segment.bounds, lacking[id(segment.component_keys)])
        )
    return [possible[number] for number in satisfiable(predicate, guarantees, columns.arrow)]


class _Segment:
    """A segment as a fragment of a dataset."""

    def __init__(self, execution: Execution, number: int, call: UserCall, rest: ValueFilter | None) -> None:
        self._execution = execution
        self._rest = rest
        self._number = number
        self._call = call

    def scanner(
        self,
        schema: pa.Schema,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002, ARG002 (pyarrow's name; it is that of the fragments)
        **_: Any,
    ) -> _Scan:
        """The rows that pass the filter."""
        return _Scan(schema, columns, lambda: self._batches(schema.names if columns is None else columns))

    def _batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._rows(columns)
        except GeneratorExit:
            raise
        except BaseException as error:  # also an interrupt, if this is the main thread
            self._call.fail(error)
            raise

    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self._rest is None:
            return self._execution.rows(self._number, columns)
        beside = [name for name in self._rest.names if name not in columns]
        return self._rest.kept(self._execution.rows(self._number, [*columns, *beside]), columns)


class _Scan:
    """The batches of a scan, made as they are taken."""

    def __init__(
        self, schema: pa.Schema, columns: Sequence[str] | None, batches: Callable[[], Iterator[pa.RecordBatch]]
    ) -> None:
        self.projected_schema = (
            schema if columns is None else pa.schema([schema.field(name) for name in columns], schema.metadata)
        )
        self._batches = batches

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The batches."""
        return self._batches()
