"""The work of an executor: tasks that each give pieces in order; and several works as one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Protocol, runtime_checkable

from ..chunk import Chunk, Minter, RunIds
from ..rrd import Run, RunRows
from .transport import Packed

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
