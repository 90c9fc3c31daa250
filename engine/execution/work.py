"""The work of an executor: tasks that each give chunks in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ..chunk import Chunk, Minter, RunIds
from ..rrd import Run, RunRows

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
