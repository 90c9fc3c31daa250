"""What an executor runs: tasks that each give chunks in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..chunk import Chunk


@dataclass(frozen=True, slots=True)
class Task:
    """One split's way from its source to the sink. ``size`` is in source bytes."""

    index: int
    label: str
    size: int


class Work(Protocol):
    """A fused pipeline. It pickles: every Spark task gets a copy."""

    @property
    def tasks(self) -> Sequence[Task]:
        """The tasks, in the order of the output."""
        ...

    def run(self, index: int) -> Iterator[Chunk]:
        """The chunks of one task, in order."""
        ...

    def source_paths(self) -> set[str]:
        """The files that are read, as far as known; nothing may be written onto them."""
        ...
