"""A stage: a body that runs for numbered tasks, inline or as one ``mapInArrow`` stage; executors, and quarantine.

This module has the common parts of all tasks: context, retries, the decisive failure, warnings, quarantine, durations,
progress, interruption.
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
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final, TypeVar

import pyarrow as pa

from ..chunk import Chunk
from ..errors import ChunkmillError, ReadError, ReadWarning, SessionError, UnmatchedWarning, UsageError, writing
from ..lance import FixedTable
from ..locations import local_path, located
from ..reports import SizeHistogram
from ..rrd import OpenFiles
from ..spark import check_not_in_task, in_task, interruptible, tries_before
from ..storage.folder import OPEN_SUFFIX, Folder
from ..task_context import Clock, TaskContext, find
from .commit import AMOUNT_SUFFIX, DONE_SUFFIX, Staging
from .reporting import ProgressListener, Ran, RunStart, watching
from .spark_stage import failure_from_dict, failure_to_dict, is_transient
from .work import Note, RowWriter, Task, parse_rows

SCHEMA = pa.schema(
    [
        ("entity_path", pa.string()),
        ("component", pa.string()),
        ("selector", pa.string()),
        ("chunk_id", pa.string()),
        ("num_rows", pa.int64()),
        ("code", pa.string()),
        ("message", pa.string()),
        ("quarantined_at", pa.timestamp("us", tz="UTC")),
        ("chunk", pa.large_binary()),
    ]
)
"""One row per chunk; ``chunk`` has the chunk as an Arrow IPC stream, for :meth:`Chunk.from_record_batch`."""

_REPAIR = "Nothing was committed. Choose another table, or repair this one."

Row = tuple[str, dict[str, Any]]
"""The path of a table, and a row for it."""


class Quarantined(list[Row]):
    """The rows of one run or task, in its context."""


@dataclass(frozen=True, slots=True)
class QuarantineTable:
    """The hook that lenses call with a failed chunk and its error: both become a row of the Lance table at ``path``."""

    path: str

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> QuarantineTable:
        """Return the table at a path; the first row creates it."""
        return cls(str(local_path(path)))

    def __call__(self, chunk: Chunk, error: ChunkmillError) -> None:
        """Keep the chunk and its error."""
        row = (self.path, _row(chunk, error))
        rows = find(Quarantined)
        if rows is None:
            append_rows([row])
        else:
            rows.append(row)


def _row(chunk: Chunk, error: ChunkmillError) -> dict[str, Any]:
    place = error.to_dict()
    sink = pa.BufferOutputStream()
    batch = chunk.to_record_batch()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return {
        "entity_path": chunk.entity_path,
        "component": place.get("component"),
        "selector": place.get("selector"),
        "chunk_id": chunk.id,
        "num_rows": chunk.num_rows,
        "code": error.code,
        "message": str(error),
        "quarantined_at": datetime.now(UTC),
        "chunk": sink.getvalue().to_pybytes(),
    }


def rows_as_bytes(rows: Sequence[Row]) -> bytes:
    """Return a task's rows as a file, which is kept next to the task's part until the run has succeeded."""
    tables = pa.array([table for table, _ in rows], pa.string())
    batch = pa.RecordBatch.from_pylist([row for _, row in rows], schema=SCHEMA).append_column("table", tables)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def rows_from_bytes(data: bytes) -> list[Row]:
    """The inverse of :func:`rows_as_bytes`."""
    rows = pa.ipc.open_file(pa.py_buffer(data)).read_all().to_pylist()
    return [(row.pop("table"), row) for row in rows]


def append_rows(rows: Sequence[Row]) -> None:
    """Append rows to their tables, one commit for each table."""
    for path in dict.fromkeys(table for table, _ in rows):
        table = FixedTable(located(path), SCHEMA, name="the quarantine table", unread=_REPAIR, unwritten=_REPAIR)
        table.append(pa.Table.from_pylist([row for at, row in rows if at == path], schema=SCHEMA))


EXECUTORS: Final = ("auto", "inline", "spark")

_START_SECONDS: Final = 2.5
_RUNNING_SECONDS: Final = 0.2
"""Seconds until the first task begins if Spark must be started, and if it runs already (2 cores)."""

_BYTES_A_SECOND: Final = 25_000_000
_OWN_BYTES_A_SECOND: Final = 5_000_000
"""The least input, in bytes, that this process converts in a second, without and with the user's own functions.

One core converts 60 MB/s of mixed ROS messages; the estimate is lower, as Spark uses several cores.
"""

_QUERIED_BYTES_A_SECOND: Final = 300_000_000
"""Bytes of chunks that this process converts to rows in a second.

Measured with numbers: 180 MB/s for one long segment, 320 MB/s for several; Spark 320 MB/s, after a later start (2
cores).
"""


def executor_name(given: str | None) -> str:
    """Return the executor: the argument, else ``CHUNKMILL_EXECUTOR``, else ``spark``; within a task, ``inline``.

    ``auto`` is ``spark`` if the amount of work is unknown; see :func:`executor_for`. Raises ``UsageError`` for unknown
    names, and within a task for ``spark``.
    """
    return executor_for(given, lambda: None)


def is_auto(given: str | None) -> bool:
    """Return True if the requested executor (argument or environment) is ``auto``."""
    return _asked_for(given) == "auto"


def executor_for(given: str | None, num_bytes: Callable[[], int | None], *, own_functions: bool = False) -> str:
    """Return the executor, like :func:`executor_name`; ``auto`` depends on the bytes of input.

    ``auto`` is ``inline`` for local input that takes less time than the start of Spark: up to 60 MB, or 5 MB if Spark
    is running; a fifth of that with the user's own functions, whose cost is unknown. ``num_bytes`` is called only for
    ``auto``; it returns None for unknown or remote input.
    """
    name = _asked_for(given)
    if name != "auto":
        return name
    return _quicker(num_bytes, _OWN_BYTES_A_SECOND if own_functions else _BYTES_A_SECOND)


def query_executor(given: str | None, num_bytes: Callable[[], int | None]) -> str:
    """Return the executor of a query: the argument, else the environment, else ``auto``.

    ``auto`` is ``inline`` if reading the needed chunks, ``num_bytes``, takes less time than the start of Spark: up to
    750 MB, or 60 MB if Spark is running.
    """
    name = _asked_for(given) if given or in_task() or os.environ.get("CHUNKMILL_EXECUTOR") else "auto"
    return _quicker(num_bytes, _QUERIED_BYTES_A_SECOND) if name == "auto" else name


def _quicker(num_bytes: Callable[[], int | None], bytes_a_second: int) -> str:
    if in_task():
        return "inline"
    size = num_bytes()
    seconds = None if size is None else size / bytes_a_second
    limit = _RUNNING_SECONDS if "pyspark" in sys.modules and _has_session() else _START_SECONDS
    return "spark" if seconds is None or seconds > limit else "inline"


def _asked_for(given: str | None) -> str:
    if given == "spark":
        check_not_in_task()
    name = given or ("inline" if in_task() else os.environ.get("CHUNKMILL_EXECUTOR")) or "spark"
    if name not in EXECUTORS:
        raise UsageError(f"unknown executor {name!r}", hint=f"Use one of: {', '.join(EXECUTORS)}.")
    return name


def _has_session() -> bool:
    from ..spark import session_is_there

    return session_is_there()


Progress = ProgressListener | bool | None
"""The receiver of a run's progress: a listener, a bar (True), none (False); None is a bar in interactive sessions."""


@contextlib.contextmanager
def progress_shown(
    progress: Progress, label: str = "chunkmill", *, of_rows: bool = False
) -> Iterator[ProgressListener | None]:
    """Yield the listener for ``progress``, drawn during the block.

    None draws a bar only in interactive sessions and notebooks. Outside notebooks, the bar needs a terminal as standard
    error. With ``of_rows``, the sizes of tasks are numbers of rows.

    Raises ``TypeError`` for an object that is not a listener.
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

_QUARANTINE_SUFFIX = ".stage"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run: executor (None is the default), Spark's master and settings, listener, start."""

    executor: str | None = None
    master: str | None = None
    conf: Mapping[str, str] | None = None
    progress: ProgressListener | None = None
    start: RunStart = field(default_factory=RunStart)


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One try of a task: its number, the prefix of its files in the stage's folder, and its rows for the driver."""

    index: int
    name: str
    location: str
    rows: RowWriter

    @property
    def folder(self) -> Folder:
        """The folder for the files."""
        return Folder.at(self.location)

    def put(self, name: str, data: bytes | memoryview) -> None:
        """Write a temporary file of the run, without syncing it. Raises ``WriteError``."""
        with writing(self.location):
            self.folder.put(name, data, durable=False)

    def tell(self, amount: int) -> None:
        """Report how much of the task's size is finished, for progress listeners."""
        self.folder.put(f"{self.name}{AMOUNT_SUFFIX}", str(amount).encode(), durable=False)


class Body(ABC):
    """The work of a stage for each task. Can be pickled."""

    __slots__ = ()

    @abstractmethod
    def label(self, index: int) -> str:
        """Return the name of a task's input, for errors."""

    @abstractmethod
    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Run one task: yield full batches of ``task.rows``, and return the record of the task.

        After an error, no files are left.
        """

    def quick_tasks(self) -> Sequence[int]:
        """Return the tasks that the driver runs faster than a request to a worker takes; by default none."""
        return ()

    def quick(self, task: TaskRun) -> dict[str, Any] | None:  # noqa: ARG002
        """Run one of :meth:`quick_tasks` like :meth:`run`; return None if it turns out not to be quick."""
        return None


@dataclass(frozen=True, slots=True)
class TaskRunner:
    """The function that an executor calls with the number of a task. Can be pickled.

    ``groups`` has the group of each task: after a failure, later tasks of the same group are skipped. Without groups,
    all tasks form one. ``tries`` is the executor's number of tries per task, or 0 if unknown; the last try returns any
    failure as a row. If ``watched``, progress and failures are recorded in the ``folder``. Write errors there name the
    ``destination``.
    """

    body: Body
    folder: str = ""
    destination: str = ""
    groups: tuple[int, ...] = ()
    tries: int = 0
    watched: bool = True

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """Run task ``index``: yield its rows, and at the end a row of kind ``task``.

        A permanent failure gives a row of kind ``failure``; a transient one is raised, so that the executor retries the
        task.
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
        """Run the quick tasks of the body in ``threads`` threads of this process, and return their rows.

        Failed tasks are left out: they run again as ordinary tasks, which report the failure.
        """
        numbers = self.body.quick_tasks()
        if not numbers:
            return {}
        with ThreadPoolExecutor(threads, "chunkmill-quick") as pool:
            results = zip(numbers, pool.map(self._quick, numbers), strict=True)
            return {index: rows for index, rows in results if rows is not None}

    def begun(self) -> set[int]:
        """The tasks with an unfinished part, if visible."""
        try:
            return {int(name[:6]) for name in Folder.at(self.folder).names() if name.endswith(OPEN_SUFFIX)}
        except (OSError, ValueError, ReadError):
            return set()

    def _run(self, task: TaskRun) -> Iterator[pa.RecordBatch]:
        measured, files, quarantined = _Measured(), OpenFiles(), Quarantined()
        caught: list[warnings.WarningMessage] = []
        with contextlib.closing(files):
            steps = _recording(self.body.run(task), caught)
            outcome = yield from TaskContext(measured.clock, files, quarantined).run(steps)
        if quarantined:
            with writing(self.destination or self.folder):
                task.folder.put(task.name + _QUARANTINE_SUFFIX, rows_as_bytes(quarantined), durable=False)
            task.rows.note("quarantine", {"file": task.name + _QUARANTINE_SUFFIX})
        for warning in caught:
            task.rows.note("warning", {"category": warning.category.__name__, "text": str(warning.message)})
        self._close(task, outcome, measured)
        yield task.rows.batch()

    def _quick(self, index: int) -> pa.RecordBatch | None:
        task, measured = self._begin(index), _Measured()
        try:
            with TaskContext(measured.clock).entered():
                outcome = self.body.quick(task)
            if outcome is None:
                return None
            self._close(task, outcome, measured)
        except Exception:  # noqa: BLE001 - the caller reports it, or retries the task
            return None
        return task.rows.batch()

    def _begin(self, index: int) -> TaskRun:
        return TaskRun(index, f"{index:06d}-{secrets.token_hex(4)}", self.folder, RowWriter(index))

    def _close(self, task: TaskRun, outcome: Mapping[str, Any], measured: _Measured) -> None:
        """Report the end of the task in the folder, for progress, and to the driver."""
        if self._staging is not None:
            done = {"task": task.index, **{name: outcome.get(name, 0) for name in ("chunks", "bytes")}}
            with writing(self.destination or self.folder):
                task.folder.put(task.name + DONE_SUFFIX, json.dumps(done).encode(), durable=False)
        task.rows.note("task", {**outcome, **measured.figures()})

    @property
    def _staging(self) -> Staging | None:
        return Staging(Folder.at(self.folder)) if self.folder and self.watched else None

    def _group(self, index: int) -> int:
        return self.groups[index] if self.groups else 0


def _recording(steps: Generator[T, None, R], caught: list[warnings.WarningMessage]) -> Generator[T, None, R]:
    """Yield the steps, and add their warnings to ``caught``. Between steps, the process's warning filters apply."""
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
    """The measurements of a task for the report of the run."""

    def __init__(self) -> None:
        self.clock = Clock()
        self._began, self._started = time.time(), time.perf_counter()

    def figures(self) -> dict[str, Any]:
        return {
            "seconds": time.perf_counter() - self._started,
            "began": self._began,
            "phases": self.clock.seconds,
            "passed": self.clock.passed_bytes,
            "requests": self.clock.fetches.requests,
            "read": self.clock.fetches.bytes,
            "sizes_in": SizeHistogram.of(self.clock.sizes_in).counts,
            "worker": f"{socket.gethostname()}:{os.getpid()}",
        }


def may_pass(error: BaseException, tries: int) -> bool:
    """Return whether a retry of a task may help after this error, and is left among ``tries`` (0: unknown)."""
    return is_transient(error) and not (tries and tries_before() + 1 >= tries)


@dataclass(frozen=True, slots=True)
class Stage:
    """Runs ``body`` for each of ``tasks``, with files in ``staging``. For other fields, see :class:`TaskRunner`.

    Without a staging folder there are no files, and a failed task does not stop later ones.
    """

    body: Body
    tasks: Sequence[Task]
    staging: Staging | None = None
    groups: tuple[int, ...] = ()
    destination: str = ""

    def run(self, options: RunOptions) -> Ran:
        """Run all tasks, and return their results, including failures. An interrupt cancels running tasks."""
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
        # with separate groups, a group with a transient failure is run again alone
        runner = TaskRunner(self.body, folder, self.destination, self.groups, 0 if self.groups else tries_of(spark))
        done = {} if slots is None else runner.quick(slots)
        if not done:
            return run_spark(spark, runner, self.tasks)
        numbers = [i for i in range(len(self.tasks)) if i not in done]
        if not numbers:
            return iter(done.values())
        return chain(done.values(), run_spark(spark, runner, [self.tasks[i] for i in numbers], numbers=numbers))


def check(ran: Ran, staging: Staging) -> None:
    """Raise failures, show warnings, check that no task is missing, and store the quarantined chunks."""
    raise_failure(ran.notes)
    warn_of(ran.notes, set())
    check_closed(ran)
    settle(staging, ran.notes)


def settle(staging: Staging, notes: Iterable[Note]) -> None:
    """Append the rows that the run's tasks quarantined to their tables."""
    files = [note.data["file"] for note in notes if note.kind == "quarantine"]
    if files:
        append_rows([row for file in files for row in rows_from_bytes(staging.folder.get(file))])


def raise_failure(notes: Sequence[Note]) -> None:
    """Raise the error of the first failed task."""
    failures = [n for n in notes if n.kind == "failure"]
    if failures:
        raise failure_from_dict(min(failures, key=lambda n: n.task).data)


def warn_of(notes: Sequence[Note], shown: set[str]) -> None:
    """Show the warnings of tasks that are not in ``shown``, and add them to it."""
    for text, category in {n.data["text"]: n.data["category"] for n in notes if n.kind == "warning"}.items():
        if text not in shown:
            warnings.warn(text, _category(category), stacklevel=5)
            shown.add(text)


def check_closed(ran: Ran) -> None:
    """Check that every task reported its end, and that all its chunks arrived. Raises ``SessionError``."""
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
            f"{missing} of {len(ran.tasks)} tasks did not report back, or reports are incomplete",
            hint="Nothing was committed; run it again.",
            transient=True,
        )


def _category(name: str) -> type[Warning]:
    categories = (DeprecationWarning, RuntimeWarning, ReadWarning, UnmatchedWarning)
    return next((category for category in categories if category.__name__ == name), UserWarning)
