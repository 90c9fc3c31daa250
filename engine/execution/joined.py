"""Several works run as one stage."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain

from ..chunk import Chunk, Minter, RunIds
from ..rrd import Run
from .packed import Packed
from .work import Piece, Task, Work, pieces_of, whole_run_of


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
