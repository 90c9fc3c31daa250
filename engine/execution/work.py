"""The work of an executor: tasks that give pieces in order, packed on their way to workers; several works as one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, Final, Protocol, TypeVar, overload, runtime_checkable

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


class Work(Protocol):
    """A fused pipeline. It pickles: every Spark task gets a copy.

    Guarantee: the ids that its minters give ascend in the order of the tasks, and within each. Who runs a task lets its
    minter mint meanwhile: tried again, it gives the same ids.
    """

    @property
    def tasks(self) -> Sequence[Task]:
        """The tasks, in the order of the output."""
        ...

    def run(self, index: int) -> Iterator[Chunk]:
        """The chunks of one task, in order."""
        ...

    def minter(self, index: int) -> Minter:
        """The source of ids for the chunks that a task makes."""
        ...

    @property
    def later(self) -> RunIds:
        """The ids of a work that makes something of the chunks of this one."""
        ...

    def source_paths(self) -> set[str]:
        """The files that are read, as far as known; nothing may be written onto them."""
        ...


@runtime_checkable
class WorkWithRuns(Protocol):
    """Work of which some tasks give messages that nothing looks into."""

    def whole_run(self, index: int) -> Run | None:
        """All that a task gives, where it gives nothing but messages that nothing looks into."""
        ...

    def pieces(self, index: int) -> Iterator[Piece]:
        """The pieces that come of a task, in order."""
        ...


def pieces_of(work: Work, index: int) -> Iterator[Piece]:
    """The pieces that come of task ``index`` of any work."""
    return work.pieces(index) if isinstance(work, WorkWithRuns) else work.run(index)


def whole_run_of(work: Work, index: int) -> Run | None:
    """All that task ``index`` of any work gives, where that is nothing but messages that nothing looks into."""
    return work.whole_run(index) if isinstance(work, WorkWithRuns) else None


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
        found = tuple(items)
        self._count = len(found)
        self._at_once = at_once
        self._pieces: list[tuple[T, ...] | bytes] = [found[i : i + at_once] for i in range(0, len(found), at_once)]

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


class JoinedWork:
    """Several works as one, their tasks one after the other. On its way to tasks each work is packed by itself."""

    def __init__(self, works: Sequence[Work]) -> None:
        self._works = Packed(works, at_once=1)
        counts = [len(work.tasks) for work in works]
        self._ends = list(accumulate(counts))
        found = chain.from_iterable(work.tasks for work in works)
        self.tasks: Sequence[Task] = Packed(Task(i, task.label, task.size) for i, task in enumerate(found))
        """The tasks of all works, numbered through."""

    def work_of(self, index: int) -> int:
        """The number of the work that a task is of."""
        if not 0 <= index < len(self.tasks):
            raise IndexError(index)
        return bisect_right(self._ends, index)

    def run(self, index: int) -> Iterator[Chunk]:
        """The chunks of one task."""
        at = self.work_of(index)
        return self._works[at].run(index - (self._ends[at - 1] if at else 0))

    def minter(self, index: int) -> Minter:
        """The source of ids for the chunks of one task: as in its own work."""
        at = self.work_of(index)
        return self._works[at].minter(index - (self._ends[at - 1] if at else 0))

    @property
    def later(self) -> RunIds:
        """The ids of what is made of the chunks."""
        return self._works[-1].later

    def whole_run(self, index: int) -> Run | None:
        """All that one task gives, where nothing looks into it."""
        at = self.work_of(index)
        return whole_run_of(self._works[at], index - (self._ends[at - 1] if at else 0))

    def pieces(self, index: int) -> Iterator[Piece]:
        """The pieces that come of one task, in order."""
        at = self.work_of(index)
        return pieces_of(self._works[at], index - (self._ends[at - 1] if at else 0))

    def source_paths(self) -> set[str]:
        """The files that any of the works reads."""
        return set().union(*(work.source_paths() for work in self._works))
