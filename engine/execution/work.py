"""The work of an executor: tasks that give pieces in order, packed on their way to workers; several works as one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, Final, TypeVar, overload

from ..chunk import Chunk, Minter, RunIds
from ..rrd import Run, RunRows

T = TypeVar("T")

Piece = Chunk | RunRows
"""What comes of a task: a chunk, or messages of RRDs that nothing looks into."""


@dataclass(frozen=True, slots=True)
class Task:
    """One split's way from its source to the sink. ``size`` is in source bytes."""

    index: int
    label: str
    size: int


class Work(ABC):
    """A fused pipeline. It pickles: every Spark task gets a copy.

    Guarantee: the ids that its minters give ascend in the order of the tasks, and within each. Who runs a task lets its
    minter mint meanwhile: tried again, it gives the same ids.
    """

    @property
    @abstractmethod
    def tasks(self) -> Sequence[Task]:
        """The tasks, in the order of the output."""

    @abstractmethod
    def run(self, index: int) -> Iterator[Chunk]:
        """Yield the chunks of one task, in order."""

    @abstractmethod
    def minter(self, index: int) -> Minter:
        """Return the source of ids for the chunks that a task makes."""

    @property
    @abstractmethod
    def later(self) -> RunIds:
        """The ids of a work that makes something of the chunks of this one."""

    @abstractmethod
    def source_paths(self) -> set[str]:
        """Return the files that are read, as far as known; nothing may be written onto them."""

    def pieces(self, index: int) -> Iterator[Piece]:
        """Yield the pieces of one task, in order: by default its chunks."""
        return self.run(index)

    def whole_run(self, index: int) -> Run | None:  # noqa: ARG002
        """Return all messages of one task, if nothing looks into any of them; by default None."""
        return None


def dealt(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[tuple[T, ...]]:
    """The items in their order, in groups for a task each: as many as have ``most`` together, larger ones alone.

    >>> list(dealt([3, 4, 2, 9, 1], lambda item: item, 7))
    [(3, 4), (2,), (9,), (1,)]
    """
    group: list[T] = []
    total = 0
    for item in items:
        if group and total + size(item) > most:
            yield tuple(group)
            group, total = [], 0
        group.append(item)
        total += size(item)
    if group:
        yield tuple(group)


_AT_ONCE: Final = 64


class Packed(Sequence[T]):
    """Items that are packed ``at_once`` by ``at_once`` on their way to tasks.

    Every task gets the whole sequence and needs one item: with a thousand splits, a thousand tasks would otherwise
    each make a thousand objects.

    >>> from pyspark.serializers import CloudPickleSerializer as Serializer
    >>> far = Serializer().loads(Serializer().dumps(Packed(range(1000))))
    >>> len(far), far[700], far[-1], far[998:]
    (1000, 700, 999, (998, 999))
    """

    def __init__(self, items: Iterable[T], at_once: int = _AT_ONCE) -> None:
        all_items = tuple(items)
        self._count = len(all_items)
        self._at_once = at_once
        self._pieces: list[tuple[T, ...] | bytes] = [
            all_items[i : i + at_once] for i in range(0, len(all_items), at_once)
        ]

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...

    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        numbers = range(self._count)[index]
        if isinstance(numbers, range):
            return tuple(self[i] for i in numbers)
        at, place = divmod(numbers, self._at_once)
        return self._piece(at)[place]

    def _piece(self, at: int) -> tuple[T, ...]:
        piece = self._pieces[at]
        if isinstance(piece, bytes):
            piece = self._pieces[at] = tuple(spark_serializer().loads(piece))
        return piece

    def __getstate__(self) -> dict[str, Any]:
        pieces = [piece if isinstance(piece, bytes) else spark_serializer().dumps(piece) for piece in self._pieces]
        return {"pieces": pieces, "count": self._count, "at_once": self._at_once}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._pieces, self._count, self._at_once = state["pieces"], state["count"], state["at_once"]


def spark_serializer() -> Any:
    """The pickler with which Spark packs the functions of its own stages."""
    from pyspark.serializers import CloudPickleSerializer

    return CloudPickleSerializer()  # type: ignore[no-untyped-call]


class JoinedWork(Work):
    """Several works as one, their tasks one after the other. On its way to tasks each work is packed by itself."""

    def __init__(self, works: Sequence[Work]) -> None:
        self._works = Packed(works, at_once=1)
        self._ends = list(accumulate(len(work.tasks) for work in works))
        tasks = chain.from_iterable(work.tasks for work in works)
        self._tasks = Packed(Task(i, task.label, task.size) for i, task in enumerate(tasks))

    @property
    def tasks(self) -> Sequence[Task]:
        """The tasks of all works, numbered through."""
        return self._tasks

    def run(self, index: int) -> Iterator[Chunk]:
        """Yield the chunks of one task."""
        work, own = self._at(index)
        return work.run(own)

    def minter(self, index: int) -> Minter:
        """Return the source of ids for the chunks of one task: as in its own work."""
        work, own = self._at(index)
        return work.minter(own)

    @property
    def later(self) -> RunIds:
        """The ids of what is made of the chunks."""
        return self._works[-1].later

    def whole_run(self, index: int) -> Run | None:
        """Return all messages of one task, if nothing looks into any of them."""
        work, own = self._at(index)
        return work.whole_run(own)

    def pieces(self, index: int) -> Iterator[Piece]:
        """Yield the pieces of one task, in order."""
        work, own = self._at(index)
        return work.pieces(own)

    def source_paths(self) -> set[str]:
        """Return the files that any of the works reads."""
        return set().union(*(work.source_paths() for work in self._works))

    def _at(self, index: int) -> tuple[Work, int]:
        """Return the work of a task, and the number of the task there."""
        if not 0 <= index < len(self._tasks):
            raise IndexError(index)
        at = bisect_right(self._ends, index)
        return self._works[at], index - (self._ends[at - 1] if at else 0)
