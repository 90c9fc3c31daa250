"""What an executor runs: tasks that each give chunks in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..chunk import Chunk
from ..chunk.tuid import Minter, RunIds


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
        """What gives ids to the chunks that a task makes."""
        ...

    @property
    def later(self) -> RunIds:
        """The ids of a work that makes something of the chunks of this one."""
        ...

    def source_paths(self) -> set[str]:
        """The files that are read, as far as known; nothing may be written onto them."""
        ...
