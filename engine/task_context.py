"""The context of a task: its clock, its ids, its quarantine, the file it keeps open, and memory that it reuses.

The stage makes a context for each task, and takes each step of the task within it. Code that runs there finds it by
:func:`current`, as the calls of lenses, lazy payloads and users' functions have no room for an argument. So this is the
only state of the core that changes while a task runs. Between two steps, it is restored, so that runs with interleaved
results don't see each other's context.

The clock divides the task's time into phases, which exclude each other. A phase covers work that does not yield, so
that the time of a generator's consumer is not charged to it.

However a task ends, it closes the users' generators that it began (:func:`held`): an exception keeps the frames of its
traceback, and with them unfinished generators.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Final, TypeVar

T = TypeVar("T")
K = TypeVar("K")


class TaskContext:
    """The objects of a task, one of each type, and those of the context in which it is made.

    >>> class Count:
    ...     number = 0
    >>> with TaskContext(Count()).entered():
    ...     current().own(Count).number += 1
    ...     current().find(Count).number
    1
    >>> current().find(Count) is None
    True
    """

    __slots__ = ("_around", "_held", "things")

    def __init__(self, *things: object) -> None:
        self._around = _thread.context
        self._held: dict[int, Callable[[], None]] = {}
        self.things: dict[type, Any] = dict(self._around.things)
        self.things.update({type(thing): thing for thing in things})

    def find(self, kind: type[K]) -> K | None:
        """The object of this type, or None."""
        return self.things.get(kind)

    def own(self, kind: type[K]) -> K:
        """Return the task's object of this type, made on first use."""
        return _made(self.things, kind)

    def run(self, items: Iterable[T]) -> Generator[T, None, Any]:
        """Yield ``items``, each made within this context, and return the value that a generator returns.

        At the end, it closes ``items`` and every generator that is :func:`held`, in this context or one within it.
        """
        remaining = iter(items)
        thread = _thread
        with self.ending(remaining):
            while True:
                before, thread.context = thread.context, self
                try:
                    item = next(remaining)
                except StopIteration as end:
                    return end.value
                finally:
                    thread.context = before
                yield item

    @contextmanager
    def entered(self) -> Iterator[TaskContext]:
        """Let this thread run the block within this context."""
        before, _thread.context = _thread.context, self
        try:
            yield self
        finally:
            _thread.context = before

    def hold(self, thing: object, close: Callable[[], None]) -> None:
        """Call ``close`` at the end, unless :meth:`let_go` was called for ``thing``."""
        self._held[id(thing)] = close

    def let_go(self, thing: object) -> None:
        """Take back :meth:`hold`."""
        self._held.pop(id(thing), None)

    @contextmanager
    def ending(self, items: object = None) -> Iterator[None]:
        """Close ``items`` and all held generators, newest first, at the end of the block or of the outer context."""
        close = getattr(items, "close", None)
        if close is not None:
            self.hold(items, close)
        self._around.hold(self, self._close)
        try:
            yield
        except BaseException as error:
            try:
                self._close()
            except Exception as other:  # the first error is the cause
                if isinstance(error, GeneratorExit):
                    raise
                error.add_note(f"A generator that was closed then raised {type(other).__name__}: {other}")
            raise
        else:
            self._close()
        finally:
            self._around.let_go(self)

    def _close(self) -> None:
        before, _thread.context = _thread.context, self
        try:
            with ExitStack() as stack:
                for close in self._held.values():
                    stack.callback(close)
                self._held = {}
        finally:
            _thread.context = before


class _NoTask(TaskContext):
    """The context outside of tasks, which has no objects."""

    def __init__(self) -> None:
        self._around = self
        self._held = {}
        self.things = {}


class _Thread(threading.local):
    def __init__(self) -> None:
        self.context: TaskContext = _NoTask()
        self.memory: dict[type, Any] = {}


_thread = _Thread()


def as_task(items: Iterable[T]) -> Generator[T, None, Any]:
    """Run ``items`` like a task: in its own context, which closes :func:`held` generators at its end."""
    return TaskContext().run(items)


def current() -> TaskContext:
    """The context of the task that this thread runs, or, outside of tasks, of the thread."""
    return _thread.context


def find(kind: type[K]) -> K | None:
    """The task's object of this type, or None: in one call, as every phase of every chunk needs it."""
    return _thread.context.things.get(kind)


def held(items: Iterable[T]) -> Iterator[T]:
    """Give the items of a user's iterable. A generator is closed at the end of the task at the latest.

    >>> def numbers():
    ...     try:
    ...         yield from range(3)
    ...     finally:
    ...         print("closed")
    >>> given = TaskContext().run(map(str, held(numbers())))  # map has no close()
    >>> next(given)
    '0'
    >>> given.close()
    closed
    """
    remaining = iter(items)
    close = getattr(remaining, "close", None)
    return remaining if close is None else _held(remaining, close)


def _held(remaining: Iterator[T], close: Callable[[], None]) -> Iterator[T]:
    context = current()
    context.hold(remaining, close)
    try:
        yield from remaining
    finally:
        context.let_go(remaining)


def lasting(kind: type[K]) -> K:
    """Return the object of this type that is shared by the tasks of this thread, made on first use.

    Results never depend on its content: buffers, and cached facts.
    """
    return _made(_thread.memory, kind)


def _made(things: dict[type, Any], kind: type[K]) -> K:
    instance: K | None = things.get(kind)
    if instance is None:
        instance = things[kind] = kind()
    return instance


def _forget() -> None:
    """Begin anew in a forked process, which must not continue its parent's context."""
    _thread.context, _thread.memory = _NoTask(), {}


os.register_at_fork(after_in_child=_forget)


READ: Final = "read"
DECODE: Final = "decode"
OPERATE: Final = "operate"
ENCODE: Final = "encode"
WRITE: Final = "write"

PHASES: Final = (READ, DECODE, OPERATE, ENCODE, WRITE)
"""The phases of a task, in the order in which a chunk goes through them.

``read``: reading, decompressing and checking the source; ``decode``: turning messages or record batches into columns;
``operate``: filters, lenses, functions, compaction; ``encode``: turning columns into compressed messages; ``write``:
writing messages and copied payloads to the part, durably.
"""


class Fetches:
    """One task's reads of files and requests to object stores, including those of threads that read ahead.

    ``pieces`` were requested by callers, ``requests`` were sent for them, and ``bytes`` arrived.
    """

    __slots__ = ("_lock", "bytes", "pieces", "requests")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.pieces = self.requests = self.bytes = 0

    def add(self, pieces: int, requests: int, size: int) -> None:
        """Count some more."""
        with self._lock:
            self.pieces += pieces
            self.requests += requests
            self.bytes += size


class Clock:
    """Seconds by phase, and reads, of one task."""

    __slots__ = ("_last", "_stack", "fetches", "passed_bytes", "seconds", "sizes_in")

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        self.fetches = Fetches()
        self.passed_bytes = 0
        self.sizes_in: list[int] = []
        self._stack: list[str] = []
        self._last = 0.0

    def enter(self, name: str) -> None:
        """Begin a phase inside the running one, which pauses until this one ends."""
        now = time.perf_counter()
        if self._stack:
            self.seconds[self._stack[-1]] += now - self._last
        self._stack.append(name)
        self._last = now

    def leave(self) -> None:
        """End the phase begun last."""
        now = time.perf_counter()
        self.seconds[self._stack.pop()] += now - self._last
        self._last = now


class phase:  # noqa: N801 (reads as a word: `with phase(READ):`)
    """Charges the time of its block to a phase; does nothing if times are not measured.

    >>> with TaskContext(clock := Clock()).entered(), phase(READ):
    ...     with phase(DECODE):
    ...         pass
    >>> clock.seconds[READ] > 0, clock.seconds[WRITE]
    (True, 0.0)
    """

    __slots__ = ("_clock", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._clock = find(Clock)

    def __enter__(self) -> None:
        if self._clock is not None:
            self._clock.enter(self._name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._clock is not None:
            self._clock.leave()


def timed(items: Iterable[T], name: str) -> Iterator[T]:
    """Yield the same items; the time to make each is charged to a phase.

    >>> with TaskContext(clock := Clock()).entered():
    ...     list(timed("ab", READ)), clock.seconds[READ] > 0
    (['a', 'b'], True)
    """
    clock = find(Clock)
    return iter(items) if clock is None else _timed(iter(items), name, clock)


def _timed(items: Iterator[T], name: str, clock: Clock) -> Iterator[T]:
    while True:
        clock.enter(name)
        try:
            item = next(items)
        except StopIteration:
            return
        finally:
            clock.leave()
        yield item


def asked_for(pieces: int = 1) -> None:
    """Count requested pieces of a file."""
    fetches = find(Fetches)
    if fetches is not None:
        fetches.add(pieces, 0, 0)


def fetched(size: int) -> None:
    """Count a read, or a request, that gave ``size`` bytes."""
    fetches, clock = find(Fetches), find(Clock)
    if fetches is not None:
        fetches.add(0, 1, size)
    if clock is not None:
        clock.fetches.add(0, 1, size)


def passed_through(size: int) -> None:
    """Count bytes of a payload that were copied unchanged."""
    clock = find(Clock)
    if clock is not None:
        clock.passed_bytes += size


def came_in(size: int) -> None:
    """Count a chunk of the source, of ``size`` bytes."""
    clock = find(Clock)
    if clock is not None:
        clock.sizes_in.append(size)


def is_measuring() -> bool:
    """Return whether :func:`came_in` counts, as otherwise no size need be computed."""
    return find(Clock) is not None
