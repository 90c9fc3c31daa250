"""Rows of queries that Spark tasks compute, in order, a few tasks ahead of the consumer.

The first job has one task for each core, so that a query for a few rows, such as a ``limit``, costs no more. Each
further job has four times as many tasks, up to sixteen for each core: larger jobs would need more space in the scratch
folder. It begins when the first rows of the job before are requested, so that cores do not idle between jobs. A file is
removed when the rows of all its segments were taken; if they are requested again, its task runs again.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ..errors import SessionError, writing
from ..execution import Body, RunOptions, ScratchFolder, Stage, Staging, Task, TaskRun, raise_failure, warn_of
from ..query import SegmentFigures
from ..spark import cancel_tagged, running_session, tag_jobs
from .metrics import MeasuredScan, measured_batches
from .plan import RowRequest, SegmentShare, TaskShares

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARROW_SUFFIX: Final = ".arrow"


@dataclass(frozen=True, slots=True)
class QueryBody(Body):
    """Tasks that write the rows of some segments into one file each, with an Arrow stream for each segment with rows.

    Each task reports the position and rows of its segments, and when measuring, their figures. The body is picklable.
    """

    tasks: tuple[TaskShares, ...]
    request: RowRequest
    measures: bool = False

    def label(self, index: int) -> str:
        """The name of a task's input."""
        return self.tasks[index].label

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Write the file of one task."""
        figures: list[SegmentFigures] | None = [] if self.measures else None
        path = Path(task.location) / (task.name + ARROW_SUFFIX)
        try:
            with writing(task.location):
                file = pa.OSFile(str(path), "wb")
            with file:
                streams = [
                    _written(_rows(share, self.request, figures), file, task.location)
                    for share in self.tasks[task.index].shares
                ]
                size = file.tell()
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        yield from ()
        outcome = {"file": path.name, "streams": streams, "bytes": size, "rows": sum(rows for _, _, rows in streams)}
        return (
            outcome
            if figures is None
            else {**outcome, "figures": [segment_figures.to_dict() for segment_figures in figures]}
        )


def _rows(share: SegmentShare, request: RowRequest, figures: list[SegmentFigures] | None) -> Iterator[pa.RecordBatch]:
    rows = share.batches(request)
    return rows if figures is None else measured_batches(rows, figures)


def _written(batches: Iterator[pa.RecordBatch], file: pa.NativeFile, location: str) -> tuple[int, int, int]:
    """Write the rows of a share; return their position, their bytes and their number."""
    start, rows = file.tell(), 0
    writer: pa.ipc.RecordBatchStreamWriter | None = None
    for batch in batches:
        with writing(location):
            if writer is None:
                writer = pa.ipc.new_stream(file, batch.schema)
            writer.write_batch(batch)
        rows += len(batch)
    if writer is not None:
        with writing(location):
            writer.close()
    return start, file.tell() - start, rows


class TaskFile:
    """The file that a task wrote: one stream of batches for each of its segments."""

    def __init__(self, path: Path, outcome: dict[str, Any]) -> None:
        self.outcome = outcome
        self._path = path
        self._map: pa.Buffer | None = None

    def batches(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of segment ``number`` of the task, counted from 0."""
        start, size, rows = self.outcome["streams"][number]
        if not rows:
            return
        if self._map is None:
            with pa.memory_map(str(self._path)) as file:
                self._map = file.read_buffer()
        with pa.ipc.open_stream(self._map.slice(start, size)) as stream:
            yield from stream

    def remove(self) -> None:
        """Remove the file; its batches stay valid while they are referenced."""
        self._map = None
        self._path.unlink(missing_ok=True)


_GROWTH: Final = 4
_MOST_TASKS: Final = 16
"""The most tasks of a job for each core."""

_UNKNOWN_CORES: Final = 16
_LONGEST_STOP: Final = 10.0
"""The most seconds to wait for the end of a cancelled job."""

_CANCEL_PERIOD: Final = 0.2


@dataclass(eq=False)
class _Job:
    """Some tasks that Spark runs together."""

    numbers: list[int]
    is_asked_for: bool = False
    thread: threading.Thread | None = None


@dataclass(eq=False)
class _TaskState:
    """A task: its running or finished job, its file while it exists, and the segments that are not taken yet."""

    job: _Job | None = None
    file: TaskFile | None = None
    waiting: set[int] = field(default_factory=set)


class SparkRows:
    """The rows of segments; ``places`` gives the tasks of each."""

    def __init__(
        self,
        tasks: Sequence[TaskShares],
        places: Sequence[range],
        request: RowRequest,
        options: RunOptions,
        measured: MeasuredScan | None = None,
    ) -> None:
        self._tasks = tasks
        self._places = places
        self._request = request
        self._options = options
        self._measured = measured
        self._first = {number: at for at, place in reversed(list(enumerate(places))) for number in place}
        self._states = [_TaskState(waiting=set(range(len(task.shares)))) for task in tasks]
        self._jobs: list[_Job] = []
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._is_closed = False
        self._spark: SparkSession | None = None
        self._staging: Staging | None = None
        self._scratch: ScratchFolder | None = None
        self._tag = f"chunkmill-{secrets.token_hex(4)}"
        self._most = self._cores = 0

    def rows(self, segment: int) -> Iterator[pa.RecordBatch]:
        """The rows of a segment. Raises the error of its task."""
        for number in self._places[segment]:
            own = segment - self._first[number]
            file = self._file(number, own)
            yield from file.batches(own)
            self._taken(number, own)

    def close(self) -> None:
        """Cancel running jobs, and remove all files."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._staging is None:
            return
        threads = [job.thread for job in self._jobs if job.thread is not None and job.thread.is_alive()]
        if threads:
            self._staging.mark_failed()
        until = time.monotonic() + _LONGEST_STOP
        for thread in threads:
            while thread.is_alive() and time.monotonic() < until:
                self._cancel()
                thread.join(_CANCEL_PERIOD)
        self._staging.remove()

    def _cancel(self) -> None:
        if self._spark is not None:
            with contextlib.suppress(Exception):
                cancel_tagged(self._spark, self._tag)

    # --- for the consumer of rows

    def _file(self, number: int, own: int) -> TaskFile:
        """Return the file of a task, once it exists."""
        state = self._states[number]
        with self._changed:
            while True:
                if self._error is not None:
                    raise self._error
                if self._is_closed:
                    raise SessionError("the rows of a query were requested after its end", hint="Run the query again.")
                if state.file is not None:
                    state.waiting.add(own)
                    break
                if state.job is None and (self._cores or not self._jobs):
                    self._begin(number)
                if state.job is not None and not state.job.is_asked_for:
                    state.job.is_asked_for = True
                    if len(self._jobs) > 1 and state.job is self._jobs[-1]:
                        self._begin(number)
                self._changed.wait()
            return state.file

    def _taken(self, number: int, own: int) -> None:
        """Remove a task's file when the rows of all its segments were taken."""
        state = self._states[number]
        with self._changed:
            state.waiting.discard(own)
            if not state.waiting and state.file is not None:
                state.file.remove()
                state.file = state.job = None
                state.waiting = set(range(len(self._tasks[number].shares)))

    # --- jobs

    def _begin(self, first: int) -> None:
        """Begin a job of tasks without a job, starting with task ``first``."""
        if self._staging is None:
            Staging.sweep_scratch()
            self._staging = Staging.in_scratch()
            self._scratch = ScratchFolder(self._staging.local)
        job = _Job([])
        self._jobs.append(job)
        if len(self._jobs) == 1:
            job.numbers = [first]  # more tasks once the number of cores is known
            self._states[first].job = job
        elif not self._take(job, first):
            self._jobs.pop()
            return
        job.thread = threading.Thread(target=self._run, args=(job,), name="chunkmill-query", daemon=True)
        job.thread.start()

    def _take(self, job: _Job, first: int) -> bool:
        """Give the next tasks to a job; return whether the job has tasks."""
        free = [n for n in (*range(first, len(self._tasks)), *range(first)) if self._states[n].job is None]
        for number in free[: self._most - len(job.numbers)]:
            self._states[number].job = job
            job.numbers.append(number)
        self._most = min(self._most * _GROWTH, _MOST_TASKS * self._cores)
        return bool(job.numbers)

    def _run(self, job: _Job) -> None:
        try:
            spark = self._session(job)
            if self._is_closed:
                return
            tag_jobs(spark, self._tag)
            files = self._files(job)
        except BaseException as error:  # noqa: BLE001 (raised where the rows are asked for)
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()
            return
        with self._changed:
            for number, file in zip(job.numbers, files, strict=True):
                self._states[number].file = file
            self._changed.notify_all()

    def _session(self, job: _Job) -> SparkSession:
        spark = running_session(self._options.master, self._options.conf)
        with self._changed:
            self._spark = spark
            if not self._cores:
                self._cores = _cores_of(spark)
                self._most = self._cores
                self._take(job, job.numbers[0])
                self._changed.notify_all()
        return spark

    def _files(self, job: _Job) -> list[TaskFile]:
        """Run the tasks of a job."""
        assert self._staging is not None
        shares = tuple(self._tasks[number] for number in job.numbers)
        tasks = [Task(i, some.label, some.size) for i, some in enumerate(shares)]
        ran = Stage(QueryBody(shares, self._request, self._measured is not None), tasks, self._staging).run(
            self._options
        )
        raise_failure(ran.notes)
        warn_of(ran.notes, set())
        outcomes: list[dict[str, Any]] = [some for some in ran.outcomes() if isinstance(some, dict)]
        if self._measured is not None:
            for number, some in zip(job.numbers, outcomes, strict=True):
                for own, figures in enumerate(some["figures"]):
                    self._measured.add(self._first[number] + own, SegmentFigures.from_dict(figures))
        folder = Path(self._staging.location)
        return [TaskFile(folder / some["file"], some) for some in outcomes]


def _cores_of(spark: SparkSession) -> int:
    from ..execution import cores_of

    return cores_of(spark) or _UNKNOWN_CORES
