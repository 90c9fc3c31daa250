"""A stage: a body that is run for numbered tasks, one after the other in this process, or as one ``mapInArrow`` stage.

What is the same for all tasks, whatever they do, is here: their context, retries, the failure that wins, warnings,
what was quarantined, how long it took, progress, interruption.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

import pyarrow as pa

from ..errors import ReadError, ReadWarning, SessionError, UnmatchedWarning, writing
from ..folders import OPEN_SUFFIX, Folder
from ..reports import SizeHistogram
from ..rrd import OpenFiles
from ..spark import interruptible, tries_before
from ..task_context import Clock, TaskContext
from .chunk_rows import Note, RowWriter, parse_rows
from .executors import executor_name
from .quarantine import Quarantined, append_rows, rows_as_bytes, rows_from_bytes
from .reporting import ProgressListener, Ran, RunStart, watching
from .staging import AMOUNT_SUFFIX, DONE_SUFFIX, Staging
from .transport import failure_from_dict, failure_to_dict, is_transient
from .work import Task

Progress = ProgressListener | bool | None
"""Who is told how a run goes: a listener, a bar (True), nobody (False); None is a bar where somebody watches."""


@contextlib.contextmanager
def progress_shown(
    progress: Progress, label: str = "chunkmill", *, of_rows: bool = False
) -> Iterator[ProgressListener | None]:
    """The listener that ``progress`` stands for, drawn for as long as the block runs.

    None draws a bar in an interactive session and in a notebook, and nothing elsewhere. On standard error, where that
    is no terminal, none is drawn, either. With ``of_rows`` the sizes of tasks are numbers of rows.

    Raises ``TypeError`` for what is no listener.
    """
    if progress is None:
        progress = hasattr(sys, "ps1") or bool(sys.flags.interactive)
    if isinstance(progress, bool):
        if not progress:
            yield None
            return
        from .progress_bar import drawn

        with drawn(label, of_rows=of_rows) as bar:
            yield bar
    elif hasattr(progress, "advanced"):
        yield progress
    else:
        raise TypeError(f"progress: expected True, False, None or a ProgressListener, got {progress!r}")


T = TypeVar("T")
R = TypeVar("R")

_QUARANTINE_SUFFIX = ".quarantine"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The choices of a run: executor (None: the default), Spark's master and settings, a listener, the start."""

    executor: str | None = None
    master: str | None = None
    conf: Mapping[str, str] | None = None
    progress: ProgressListener | None = None
    start: RunStart = field(default_factory=RunStart)


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One try at a task: its number, what its files are named in the stage's folder, and what it tells the driver."""

    index: int
    name: str
    location: str
    rows: RowWriter

    @property
    def folder(self) -> Folder:
        """The folder for the files."""
        return Folder.at(self.location)

    def put(self, name: str, data: bytes | memoryview) -> None:
        """Write a file of the run, which is of no use after a crash. Raises ``WriteError``."""
        with writing(self.location):
            self.folder.put(name, data, durable=False)

    def tell(self, amount: int) -> None:
        """Say how much of the task's size is done, for whoever watches the run."""
        self.folder.put(f"{self.name}{AMOUNT_SUFFIX}", str(amount).encode(), durable=False)


class Body(ABC):
    """The work of a stage for each task. It pickles."""

    __slots__ = ()

    @abstractmethod
    def label(self, index: int) -> str:
        """Return the name of a task's input, for errors."""

    @abstractmethod
    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Do one task: give batches of ``task.rows`` as they fill, and return what is to be said of it at its end.

        Where it raises, it leaves nothing behind.
        """

    def quick_tasks(self) -> Sequence[int]:
        """Return the tasks that the driver does in less time than it takes to ask a worker; by default none."""
        return ()

    def quick(self, task: TaskRun) -> dict[str, Any] | None:  # noqa: ARG002
        """Do one of :meth:`quick_tasks` as :meth:`run` would; return None if that is not quick after all."""
        return None


@dataclass(frozen=True, slots=True)
class TaskRunner:
    """The function that an executor runs for the number of a task. It pickles.

    ``groups``, one for each task, says which tasks need each other: when one fails, the others of its group need not
    begin. Without, all do. ``tries`` is how often the executor tries a task, 0 where that is not known: the last try
    gives a failure as a row, whatever it is. Unless it is ``watched``, nothing is said in the folder of what is done
    or has failed; without a ``folder`` nothing can. Errors of writing there name the ``destination``.
    """

    body: Body
    folder: str = ""
    destination: str = ""
    groups: tuple[int, ...] = ()
    tries: int = 0
    watched: bool = True

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """Run task ``index``: give its rows, and at the end one of kind ``task``.

        A failure that would come again gives a row of kind ``failure``; one that may pass is raised, so that the
        executor tries the task once more.
        """
        if self._staging is not None and self._staging.has_failed(self._group(index)):
            return
        try:
            yield from self._run(self._begin(index))
        except GeneratorExit:
            raise
        except BaseException as error:
            if may_pass(error, self.tries) or not isinstance(error, (Exception, SystemExit)):
                raise
            if self._staging is not None:
                self._staging.mark_failed(self._group(index))
            rows = RowWriter(index)
            rows.note("failure", failure_to_dict(error, self.body.label(index)))
            yield rows.batch()

    def quick(self, threads: int) -> dict[int, pa.RecordBatch]:
        """The rows of tasks that the body does quickly, by so many ``threads`` of this process.

        One that fails is left out, to fail again, and be reported, as any other.
        """
        numbers = self.body.quick_tasks()
        if not numbers:
            return {}
        with ThreadPoolExecutor(threads, "chunkmill-quick") as pool:
            results = zip(numbers, pool.map(self._quick, numbers), strict=True)
            return {index: rows for index, rows in results if rows is not None}

    def begun(self) -> set[int]:
        """The tasks that began to write a part and did not end, where that can be seen."""
        try:
            return {int(name[:6]) for name in Folder.at(self.folder).names() if name.endswith(OPEN_SUFFIX)}
        except (OSError, ValueError, ReadError):
            return set()

    def _run(self, task: TaskRun) -> Iterator[pa.RecordBatch]:
        measured, files, quarantined = _Measured(), OpenFiles(), Quarantined()
        caught: list[warnings.WarningMessage] = []
        with contextlib.closing(files):
            steps = _recording(self.body.run(task), caught)
            told = yield from TaskContext(measured.clock, files, quarantined).run(steps)
        if quarantined:
            with writing(self.destination or self.folder):
                task.folder.put(task.name + _QUARANTINE_SUFFIX, rows_as_bytes(quarantined), durable=False)
            task.rows.note("quarantine", {"file": task.name + _QUARANTINE_SUFFIX})
        for warning in caught:
            task.rows.note("warning", {"category": warning.category.__name__, "text": str(warning.message)})
        self._close(task, told, measured)
        yield task.rows.batch()

    def _quick(self, index: int) -> pa.RecordBatch | None:
        task, measured = self._begin(index), _Measured()
        try:
            with TaskContext(measured.clock).entered():
                told = self.body.quick(task)
            if told is None:
                return None
            self._close(task, told, measured)
        except Exception:  # noqa: BLE001 - it is reported, or tried again, by who runs the task then
            return None
        return task.rows.batch()

    def _begin(self, index: int) -> TaskRun:
        return TaskRun(index, f"{index:06d}-{secrets.token_hex(4)}", self.folder, RowWriter(index))

    def _close(self, task: TaskRun, told: Mapping[str, Any], measured: _Measured) -> None:
        """Say that the task is done: to who watches the folder, and to the driver."""
        if self._staging is not None:
            done = {"task": task.index, **{name: told.get(name, 0) for name in ("chunks", "bytes")}}
            with writing(self.destination or self.folder):
                task.folder.put(task.name + DONE_SUFFIX, json.dumps(done).encode(), durable=False)
        task.rows.note("task", {**told, **measured.told()})

    @property
    def _staging(self) -> Staging | None:
        return Staging(Folder.at(self.folder)) if self.folder and self.watched else None

    def _group(self, index: int) -> int:
        return self.groups[index] if self.groups else 0


def _recording(steps: Generator[T, None, R], caught: list[warnings.WarningMessage]) -> Generator[T, None, R]:
    """Take steps, and add what each warns of to ``caught``. Between two, the process's filters are as before."""
    with contextlib.closing(steps):
        while True:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                try:
                    step = next(steps)
                except StopIteration as end:
                    result: R = end.value
                    return result
                finally:
                    caught += warned
            yield step


class _Measured:
    """The facts that a task tells of itself for the report of the run."""

    def __init__(self) -> None:
        self.clock = Clock()
        self._began, self._started = time.time(), time.perf_counter()

    def told(self) -> dict[str, Any]:
        return {
            "seconds": time.perf_counter() - self._started,
            "began": self._began,
            "phases": self.clock.seconds,
            "passed": self.clock.passed_bytes,
            "sizes_in": SizeHistogram.of(self.clock.sizes_in).counts,
            "worker": f"{socket.gethostname()}:{os.getpid()}",
        }


def may_pass(error: BaseException, tries: int) -> bool:
    """Whether a task that raised this is worth another try, and gets one of ``tries`` (0: nobody knows)."""
    return is_transient(error) and not (tries and tries_before() + 1 >= tries)


@dataclass(frozen=True, slots=True)
class Stage:
    """``body`` over ``tasks``, whose files go into ``staging``; the others are as in :class:`TaskRunner`.

    Without a staging folder there are no files, and tasks that follow one that failed run all the same.
    """

    body: Body
    tasks: Sequence[Task]
    staging: Staging | None = None
    groups: tuple[int, ...] = ()
    destination: str = ""

    def run(self, options: RunOptions) -> Ran:
        """Run all tasks, and give what they told, failures among it. An interrupt cancels what runs."""
        with interruptible(), watching(self.staging, self.tasks, options.progress):
            return Ran(list(self.tasks), *parse_rows(self._rows(options)))

    def _rows(self, options: RunOptions) -> Iterator[pa.RecordBatch]:
        if not self.tasks:
            return iter(())
        folder = "" if self.staging is None else self.staging.location
        if executor_name(options.executor) == "inline":
            here = TaskRunner(self.body, folder, self.destination, self.groups, tries=1)
            return chain.from_iterable(here.run(task.index) for task in self.tasks)
        from ..spark import running_session
        from .spark_stage import run_spark, slots_of, tries_of

        spark = running_session(options.master, options.conf)
        slots = slots_of(spark)
        # where groups are told apart, one that fails for a reason that may pass is run again alone
        runner = TaskRunner(self.body, folder, self.destination, self.groups, 0 if self.groups else tries_of(spark))
        done = {} if slots is None else runner.quick(slots)
        if not done:
            return run_spark(spark, runner, self.tasks)
        numbers = [i for i in range(len(self.tasks)) if i not in done]
        if not numbers:
            return iter(done.values())
        return chain(done.values(), run_spark(spark, runner, [self.tasks[i] for i in numbers], numbers=numbers))


def check(ran: Ran, staging: Staging) -> None:
    """Raise what failed, show what was warned of, see that no task is missing, and keep what was quarantined."""
    raise_failure(ran.notes)
    warn_of(ran.notes, set())
    check_closed(ran)
    settle(staging, ran.notes)


def settle(staging: Staging, notes: Iterable[Note]) -> None:
    """Append what the run's tasks quarantined to its tables."""
    files = [note.data["file"] for note in notes if note.kind == "quarantine"]
    if files:
        append_rows([row for file in files for row in rows_from_bytes(staging.folder.get(file))])


def raise_failure(notes: Sequence[Note]) -> None:
    """Raise what the first task that failed raised, if any did."""
    failures = [n for n in notes if n.kind == "failure"]
    if failures:
        raise failure_from_dict(min(failures, key=lambda n: n.task).data)


def warn_of(notes: Sequence[Note], told: set[str]) -> None:
    """Show what tasks warned of, unless it is among the texts ``told``, to which it is added."""
    for text, category in {n.data["text"]: n.data["category"] for n in notes if n.kind == "warning"}.items():
        if text not in told:
            warnings.warn(text, _category(category), stacklevel=5)
            told.add(text)


def check_closed(ran: Ran) -> None:
    """Every task must have closed, once, with as many chunks as came; raises ``SessionError``."""
    closed = {n.task: n.data["chunks"] for n in ran.notes if n.kind == "task"}
    came: dict[int, int] = dict.fromkeys(closed, 0)
    came.update(
        (n.task, n.data["chunks"]) for n in ran.notes if n.kind == "task" and not {"extent", "part"}.isdisjoint(n.data)
    )
    came.update((n.task, len(n.data["table"])) for n in ran.notes if n.kind == "listing")
    for task, count in [(c.task, 1) for c in ran.chunks] + [
        (n.task, n.data["count"]) for n in ran.notes if n.kind == "small"
    ]:
        came[task] = came.get(task, 0) + count
    if len(closed) != len(ran.tasks) or came != closed:
        missing = len(ran.tasks) - len(closed)
        raise SessionError(
            f"{missing} of {len(ran.tasks)} tasks did not report back, or not all of what they wrote",
            hint="Nothing was committed; run it again.",
            transient=True,
        )


def _category(name: str) -> type[Warning]:
    known = (DeprecationWarning, RuntimeWarning, ReadWarning, UnmatchedWarning)
    return next((category for category in known if category.__name__ == name), UserWarning)
