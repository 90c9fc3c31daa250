"""The context of a task: its clock, its ids, what it quarantines, the file it keeps open, memory it uses again.

The stage makes a context for each task, and takes each step of the task within it. What runs there finds it by
:func:`current`: lenses, lazy payloads and functions of users are called in ways that have no room for an argument. So
this is the one state of the core that changes while a task runs; between two steps it is as before, so that runs whose
results are taken in turns don't see each other's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
K = TypeVar("K")


class TaskContext:
    """Things of which a task has one of each type, beside those of the context in which it is made.

    >>> class Count:
    ...     number = 0
    >>> with TaskContext(Count()).entered():
    ...     current().own(Count).number += 1
    ...     current().find(Count).number
    1
    >>> current().find(Count) is None
    True
    """

    __slots__ = ("things",)

    def __init__(self, *things: object) -> None:
        self.things: dict[type, Any] = dict(_thread.context.things)
        self.things.update({type(thing): thing for thing in things})

    def find(self, kind: type[K]) -> K | None:
        """The thing of this type, if there is one."""
        return self.things.get(kind)

    def own(self, kind: type[K]) -> K:
        """The thing of this type, made when it is first asked for."""
        return _made(self.things, kind)

    def run(self, items: Iterable[T]) -> Generator[T, None, Any]:
        """Give ``items``, and return what a generator returns; each is made within this context."""
        remaining = iter(items)
        thread = _thread
        try:
            while True:
                before, thread.context = thread.context, self
                try:
                    item = next(remaining)
                except StopIteration as end:
                    return end.value
                finally:
                    thread.context = before
                yield item
        finally:
            close = getattr(remaining, "close", None)
            if close is not None:
                close()

    @contextmanager
    def entered(self) -> Iterator[TaskContext]:
        """Let this thread run the block within this context."""
        before, _thread.context = _thread.context, self
        try:
            yield self
        finally:
            _thread.context = before


class _NoTask(TaskContext):
    """Outside of tasks there is nothing."""

    def __init__(self) -> None:
        self.things = {}


class _Thread(threading.local):
    def __init__(self) -> None:
        self.context: TaskContext = _NoTask()
        self.memory: dict[type, Any] = {}


_thread = _Thread()


def current() -> TaskContext:
    """The context of the task that this thread runs; outside of tasks, that of the thread."""
    return _thread.context


def find(kind: type[K]) -> K | None:
    """The thing of this type that the task has, if there is one: in one call, as every phase of every chunk asks."""
    return _thread.context.things.get(kind)


def lasting(kind: type[K]) -> K:
    """The memory of this type that one task after the other uses in this thread, made when it is first asked for.

    Nothing depends on what is in it: buffers, and what was found out before.
    """
    return _made(_thread.memory, kind)


def _made(things: dict[type, Any], kind: type[K]) -> K:
    found: K | None = things.get(kind)
    if found is None:
        found = things[kind] = kind()
    return found


def _forget() -> None:
    """Begin anew in a forked process, which must not go on where its parent is."""
    _thread.context, _thread.memory = _NoTask(), {}


os.register_at_fork(after_in_child=_forget)
