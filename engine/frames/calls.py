"""Calls of a query frame's methods: their executions, their first error, and their end on an interrupt."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

from ..errors import ChunkmillError
from .execution import Execution

T = TypeVar("T")

_LONGEST_STOP: Final = 10.0
"""Seconds that an interrupted call may take to end before it is left to itself."""


class UserCall:
    """A call by the user: its executions and its first read error, as DataFusion passes on only the text of errors."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._executions: list[Execution] = []
        self._holders = 0
        self._is_closed = False
        self._waiter: _Waiter | None = None

    def add(self, execution: Execution) -> None:
        """Tell of an execution."""
        with self._lock:
            self._executions.append(execution)
            is_closed = self._is_closed
        if is_closed:
            execution.close()

    def fail(self, error: BaseException) -> None:
        """Keep an error, unless there is one."""
        with self._lock:
            self.error = self.error or error

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Raise what reading failed with in place of DataFusion's words for it."""
        try:
            yield
        except (ChunkmillError, StopIteration, StopAsyncIteration):
            raise
        except Exception as error:
            if self.error is None:
                raise
            raise self.error from error

    def held(self) -> Callable[[], None]:
        """Let one more hold it: the function that lets go. When nobody holds it any more, it is closed."""
        self._holders += 1

        def let_go() -> None:
            self._holders -= 1
            if not self._holders:
                self.close()

        return let_go

    def close(self) -> None:
        """End what its executions run, and remove their files."""
        with self._lock:
            self._is_closed = True
            executions = list(self._executions)
            waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.end()
        for execution in executions:
            execution.close()

    def answer(self, work: Callable[[], T]) -> T:
        """Run ``work``, which may wait in DataFusion for tasks, and return its result. An interrupt ends it.

        DataFusion checks for signals by a timer that pauses while its threads wait. In the main thread, which gets
        signals, another thread therefore waits for DataFusion, unless it is known that there are no tasks.
        """
        if threading.current_thread() is not threading.main_thread() or self._reads_here():
            with calling(self):
                return work()
        waiting = _Waiting(self, work)
        waiter = self._waiter or _Waiter()
        waiter.run(partial(contextvars.copy_context().run, waiting.run))
        if self._holders:  # a stream asks again
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
        """Return whether it is known of all executions that this process reads."""
        with self._lock:
            return bool(self._executions) and all(execution.is_here for execution in self._executions)


class _Waiter:
    """A thread that does work, one piece after another, until it is ended. A stream has one for all its batches."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=_do_all, args=(self._work,), name="chunkmill-query", daemon=True).start()

    def run(self, work: Callable[[], None]) -> None:
        """Let it do this when it has done what it was given before."""
        self._work.put(work)

    def end(self) -> None:
        """Let it end after that."""
        self._work.put(None)


def _do_all(work: SimpleQueue[Callable[[], None] | None]) -> None:
    while (function := work.get()) is not None:
        function()
        del function  # or it holds the last batch until the next call


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
    """The calls that are going on, by their threads."""

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
        """The call of this thread, if it is in one."""
        return self._thread.call

    def current(self) -> UserCall | None:
        """The call of this thread; DataFusion 52 plans some in threads of its own: then the one that there is."""
        with self._lock:
            distinct = {id(call): call for call in self._active}
        only = next(iter(distinct.values())) if len(distinct) == 1 else None
        return self._thread.call or only


_calls = _Calls()


def calling(call: UserCall) -> AbstractContextManager[None]:
    """Let this thread be in a call until the end of the block: DataFusion plans in the thread that asks."""
    return _calls.entered(call)


def outer_call() -> UserCall | None:
    """The call that this thread is in, if it is in one: what it calls in turn is part of it."""
    return _calls.of_thread()


def current_call() -> UserCall:
    """The call that this thread is in, or else a new one."""
    return _calls.current() or UserCall()
