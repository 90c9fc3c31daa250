"""Phases of a task's time, which exclude each other, and the bytes that came in.

A phase is entered around work that does not yield, so that whoever consumes a generator is not charged to it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, TypeVar

from .task_context import TaskContext, find

READ: Final = "read"
DECODE: Final = "decode"
OPERATE: Final = "operate"
ENCODE: Final = "encode"
WRITE: Final = "write"

PHASES: Final = (READ, DECODE, OPERATE, ENCODE, WRITE)
"""The phases of a task, in the order in which a chunk goes through them.

``read``: from the source, decompressed and checked; ``decode``: messages or record batches made into columns;
``operate``: filters, lenses, functions, compaction; ``encode``: columns made into compressed messages; ``write``:
messages and copied payloads to the part, and what makes them durable.
"""

T = TypeVar("T")


class Clock:
    """Seconds by phase, of one task."""

    __slots__ = ("_last", "_stack", "passed_bytes", "seconds", "sizes_in")

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        self.passed_bytes = 0
        self.sizes_in: list[int] = []
        self._stack: list[str] = []
        self._last = 0.0

    def enter(self, name: str) -> None:
        """Begin a phase inside of the one that runs, which stands still until this one ends."""
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


@contextmanager
def measuring() -> Iterator[Clock]:
    """Measure what this thread does in the block, by a clock of its own."""
    clock = Clock()
    with TaskContext(clock).entered():
        yield clock


class phase:  # noqa: N801 (reads as a word: `with phase(READ):`)
    """Charges its block to a phase; nothing where nobody measures.

    >>> with measuring() as clock, phase(READ):
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
    """The same items; the time it takes to make each is charged to a phase.

    >>> with measuring() as clock:
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


def passed_through(size: int) -> None:
    """Count bytes of a payload that were copied as they lay."""
    clock = find(Clock)
    if clock is not None:
        clock.passed_bytes += size


def came_in(size: int) -> None:
    """Count a chunk of the source, of ``size`` bytes."""
    clock = find(Clock)
    if clock is not None:
        clock.sizes_in.append(size)


def is_measuring() -> bool:
    """Whether :func:`came_in` is heard, so that a size need not be computed for nobody."""
    return find(Clock) is not None
