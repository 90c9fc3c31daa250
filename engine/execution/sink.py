"""A sink: where the chunks of a pipeline go, part by part, and then all at once.

1. On the driver, before any task runs, :meth:`Sink.begin` gives what tasks write parts with; that pickles.
2. In each task, :meth:`Parts.open` begins a part in the staging folder.
3. The part takes each chunk of the task, in order, and is closed; what it returns then goes to the driver.
4. Of a task that fails, the part is discarded. It may be tried again, and then has another part.
5. On the driver, :meth:`Sink.commit` brings the parts together that count, in the order of the tasks, and lets the
   result appear; where anything failed, :meth:`Sink.abort` is called instead. The staging folder goes either way.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from ..chunk import Chunk, minting
from ..locations import Location
from ..reports import RunReport
from ..rrd import Run
from ..task_context import TaskContext
from .commit import listed_extents
from .executors import executor_name
from .quarantine import Quarantined, append_rows
from .reporting import ProgressListener, Ran, told
from .stage import Body, RunOptions, Stage, TaskRun, check
from .staging import Staging
from .work import Piece, Work


class Part(ABC):
    """The file that one try at a task writes."""

    takes_runs = False
    """Whether it takes runs of untouched messages beside chunks."""

    @abstractmethod
    def write(self, piece: Piece) -> Iterable[pa.RecordBatch] | None:
        """Take the next chunk. Gives rows that are to go to the driver now, if there are any."""

    @abstractmethod
    def close(self) -> dict[str, Any]:
        """Let the part have its name, whole; gives what is to be said of it, as JSON data.

        ``chunks``, ``rows`` and ``bytes`` are counted; a ``part`` names the file.
        """

    def rows(self) -> Iterable[pa.RecordBatch]:
        """Rows for the driver, once the part is closed."""
        return ()

    @abstractmethod
    def discard(self) -> None:
        """Leave nothing behind."""


class Parts(ABC):
    """The way in which tasks write parts. It pickles."""

    @property
    def adopts(self) -> bool:
        """Whether :meth:`adopt` is to be tried."""
        return False

    @abstractmethod
    def open(self, task: TaskRun) -> Part:
        """Begin a part: files of ``task.folder`` whose names begin with ``task.name``."""

    def adopt(self, task: TaskRun, run: Run) -> dict[str, Any] | None:  # noqa: ARG002
        """Take all that a task gives, untouched, without a chunk object; None where that can't be done."""
        return None

    def quick_tasks(self, work: Work) -> Sequence[int]:  # noqa: ARG002
        """The tasks that the driver can do as fast as a worker, as nothing looks into what they give."""
        return ()


class Sink(ABC):
    """The end of a pipeline. Guarantee: until :meth:`commit` returns, what stood at ``destination`` is untouched."""

    destination: Location

    @abstractmethod
    def begin(self, work: Work, staging: Staging) -> Parts:
        """Prepare for a run of ``work``, whose parts will lie in ``staging``."""

    @abstractmethod
    def commit(self, ran: Ran, staging: Staging) -> int:
        """Let the result appear, whole; gives its size in bytes. :meth:`Ran.outcomes` is what parts said, in order."""

    def abort(self) -> None:  # noqa: B027 - most have nothing to do
        """Give up what :meth:`begin` and :meth:`commit` began."""


@dataclass(frozen=True, slots=True)
class WriteBody(Body):
    """Tasks of ``work`` that each write a part."""

    work: Work
    parts: Parts

    def label(self, index: int) -> str:
        """The name of a task's input."""
        return self.work.tasks[index].label

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Write the part of one task."""
        told = self.quick(task)
        if told is None:
            told = yield from minting(self.work.minter(task.index), self._write(task))
        return told

    def quick_tasks(self) -> Sequence[int]:
        """The tasks that the driver may do."""
        return self.parts.quick_tasks(self.work)

    def quick(self, task: TaskRun) -> dict[str, Any] | None:
        """Write all that a task gives, if nothing looks into it and its footer's word suffices."""
        run = self.work.whole_run(task.index) if self.parts.adopts else None
        return None if run is None else self.parts.adopt(task, run)

    def _write(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        part = self.parts.open(task)
        try:
            pieces = self.work.pieces(task.index) if part.takes_runs else self.work.run(task.index)
            for piece in pieces:
                batches = part.write(piece)
                if batches is not None:
                    yield from batches
            told = part.close()
            yield from part.rows()
            return told
        except BaseException:
            part.discard()
            raise


def write_to(sink: Sink, work: Work, options: RunOptions) -> RunReport:
    """Run ``work`` into ``sink``.

    Raises what a task raised; then, and whenever the run is cut, nothing is left at the destination but what was
    there before.
    """
    with Staging.beside(sink.destination) as staging:
        try:
            ran = run_work(work, sink.begin(work, staging), staging, options, str(sink.destination))
            committing = time.perf_counter()
            size = sink.commit(ran, staging)
        except BaseException:
            sink.abort()
            raise
    return finished_report(ran, sink.destination, size, time.perf_counter() - committing, options)


def run_work(work: Work, parts: Parts, staging: Staging, options: RunOptions, destination: str = "") -> Ran:
    """Run all tasks of a work into parts; raise what failed, show what was warned of, check that none is missing."""
    ran = run_tasks(work, parts, staging, options, destination)
    check(ran, staging)
    return ran


def run_tasks(
    work: Work,
    parts: Parts,
    staging: Staging,
    options: RunOptions,
    destination: str = "",
    groups: tuple[int, ...] = (),
) -> Ran:
    """Run all tasks of a work into parts, and give what they told, failures among it."""
    ran = Stage(WriteBody(work, parts), work.tasks, staging, groups, destination).run(options)
    return replace(ran, listed=listed_extents(work, ran.notes))


def inline_chunks(work: Work, listener: ProgressListener | None = None) -> Iterator[Chunk]:
    """The chunks of all tasks, as they come, without parts; what is quarantined goes to its table at the end."""
    quarantined = Quarantined()
    tasks = (minting(work.minter(task.index), work.run(task.index)) for task in work.tasks)
    yield from TaskContext(quarantined).run(chain.from_iterable(told(work.tasks, tasks, listener)))
    append_rows(quarantined)


def finished_report(
    ran: Ran, destination: Location, size: int, commit_seconds: float, options: RunOptions
) -> RunReport:
    """The report of a committed run, which the listener is told too."""
    result = ran.report(
        options.start,
        executor=executor_name(options.executor),
        destination=str(destination),
        bytes_out=size,
        commit_seconds=commit_seconds,
    )
    if options.progress is not None:
        options.progress.finished(result)
    return result
