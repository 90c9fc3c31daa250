"""Iteration on Spark: chunks are yielded as tasks make them, in order, and only a few tasks run ahead.

The tasks of an iteration run as a series of small Spark jobs, two at a time. A task reports its output piece by piece,
in its own folder, which the driver watches: the first chunk at once, then the new chunks at growing intervals. So the
first chunk arrives long before its task is done, and an error is raised after the chunks before it. If the loop ends
early, running tasks are cancelled, and the others never begin.

A job has one task for each core. If the driver had to wait for it, the next job has twice as many, up to sixteen for
each core. Larger jobs would keep more in the scratch folder; smaller ones leave cores idle between two jobs.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import pyarrow as pa

from ..chunk import Chunk, minting
from ..errors import SessionError, writing
from ..limits import SPLIT_BYTES
from ..rrd import MessageWriter
from ..storage.folder import OPEN_SUFFIX, Folder, LocalFolder, NewFile
from .commit import PART_SUFFIX, Staging
from .scratch import STORE, ScratchFolder, lazy_chunk
from .spark_stage import failure_from_dict
from .stage import Body, RunOptions, TaskRun, TaskRunner, settle, warn_of
from .work import Note, RowWriter, Work, parse_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS_SUFFIX = ".rows"
_FIRST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.32
"""The longest time between two pieces of a task, in seconds; it doubles from piece to piece."""

_LONGEST_TAKING: Final = 0.3
"""Seconds after which a job begins with the available splits, if writing them takes long."""

_SHORTEST_WAIT: Final = 0.0005
_LONGEST_WAIT: Final = 0.016
"""The longest time between two checks for a piece, in seconds."""

_LONGEST_STOP: Final = 10.0
"""Seconds to wait for the end of a cancelled job."""

_MOST_JOBS: Final = 2
_MOST_TASKS: Final = 16
"""The most tasks of a job for each core."""


class Sized(Protocol):
    """A split; ``size`` is in source bytes."""

    @property
    def size(self) -> int:
        """The size in bytes."""
        ...


S = TypeVar("S", bound=Sized)


@dataclass(frozen=True, slots=True)
class _PiecesBody(Body):
    """Tasks that write their output piece by piece."""

    work: Work
    folder: str
    first: int

    def label(self, index: int) -> str:
        """The name of a task's input."""
        return self.work.tasks[index].label

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Yield the rows of each piece once it can be read; after an error, first those of the chunks before it."""
        with writing(self.folder):
            pieces = _PieceWriter(_task_folder(Path(self.folder), self.first + task.index), task)
        try:
            for chunk in minting(self.work.minter(task.index), self.work.run(task.index)):
                if pieces.add(chunk):
                    yield from pieces.take()
        except (Exception, SystemExit):
            yield from pieces.take()
            raise
        yield from pieces.take()
        return {"chunks": pieces.chunks}


@dataclass(frozen=True, slots=True)
class PiecesJob:
    """Tasks that report their output piece by piece; ``first`` is the first task's number in the iteration.

    All reports are files in their folders, so there are no rows.
    """

    work: Work
    folder: str
    first: int
    tries: int

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """Run task ``index``."""
        if Staging(Folder.at(self.folder)).has_failed():
            return
        body = _PiecesBody(self.work, self.folder, self.first)
        folder, attempt = _task_folder(Path(self.folder), self.first + index), secrets.token_hex(4)
        batches = TaskRunner(body, self.folder, tries=self.tries, watched=False).run(index)
        for number, batch in enumerate(batches):
            name = f"{attempt}-{number:06d}{_ROWS_SUFFIX}"
            with writing(str(folder)):
                with pa.ipc.new_stream(str(folder / (name + OPEN_SUFFIX)), batch.schema) as stream:
                    stream.write_batch(batch)
                (folder / (name + OPEN_SUFFIX)).rename(folder / name)
        yield from ()

    def begun(self) -> set[int]:
        """The tasks that began to write a piece and did not finish it."""
        begun = Path(self.folder).glob(f"*/*{PART_SUFFIX}{OPEN_SUFFIX}")
        return {int(path.parent.name) - self.first for path in begun}


class _PieceWriter:
    """Writes the chunks of one try of a task in pieces: files of messages, each with rows that describe it."""

    def __init__(self, folder: Path, task: TaskRun) -> None:
        folder.mkdir(exist_ok=True)
        self.chunks = 0
        self._folder = LocalFolder(folder)
        self._task = task
        self._pieces = 0
        self._pause = _FIRST_PAUSE
        self._taken_at = 0.0
        self._new: NewFile | None = None

    def add(self, chunk: Chunk) -> bool:
        """Add the next chunk; return whether it is time to report the piece."""
        if self._new is None:
            self._begin()
        self._batches += self._rows.add(self._writer.append(chunk), self._part)
        self.chunks += 1
        return time.monotonic() >= self._taken_at + self._pause

    def take(self) -> Iterator[pa.RecordBatch]:
        """Finish the piece and yield its rows, if there are new chunks."""
        if self._new is None:
            return
        self._writer.flush()
        self._new.finish()
        self._new = None
        self._pieces += 1
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        yield pa.Table.from_batches([*self._batches, self._rows.batch()]).combine_chunks().to_batches()[0]
        self._taken_at = time.monotonic()

    def _begin(self) -> None:
        self._rows = RowWriter(self._task.index, first=self.chunks)
        self._batches: list[pa.RecordBatch] = []
        self._part = f"{self._task.name}-{self._pieces:06d}{PART_SUFFIX}"
        path = str(self._folder.location)
        with writing(path):
            self._new = self._folder.new(self._part)
        self._writer = MessageWriter(self._new.file, STORE, path=path)


def iterated_chunks(
    units: Generator[tuple[int, S], None, None],
    work_of: Callable[[Sequence[tuple[int, S]], int], Work],
    options: RunOptions,
) -> Iterator[Chunk]:
    """Yield the chunks of all units, in order. ``work_of`` makes the work for units, given the number before them.

    A unit is a split with the number of its source. Units are taken from their iterator on demand. An error of the
    iterator or of a task is raised after the chunks before it. Quarantined rows are written to their table at the end.
    """
    from ..spark import running_session

    jobs = _Jobs(running_session(options.master, options.conf), units, work_of)
    notes: list[Note] = []
    warned: set[str] = set()
    try:
        for number in itertools.count():
            if not jobs.begin_to(number):
                break
            reader = _PieceReader(jobs.scratch, number)
            while not reader.is_closed:
                is_last = jobs.has_ended()
                yield from reader.read()
                if reader.is_waiting:
                    jobs.wait(is_last)
                else:
                    jobs.go_on()
            notes += reader.notes
            warn_of(reader.notes, warned)
    finally:
        jobs.stop()
        units.close()
    settle(jobs.staging, notes)


class _PieceReader:
    """Reads the chunks reported by all tries of one task. The first report of a chunk counts."""

    def __init__(self, scratch: ScratchFolder, number: int) -> None:
        self.is_closed = False
        self.is_waiting = False
        self.notes: list[Note] = []
        self._folder = ScratchFolder(_task_folder(scratch.path, number), within=scratch)
        self._given = 0
        self._next: dict[str, int] = {}

    def read(self) -> Iterator[Chunk]:
        """Yield the chunks reported since the last call; raise the task's error after the chunks before it."""
        self.is_waiting = True
        for name in self._names():
            attempt, _, number = name.removesuffix(_ROWS_SUFFIX).partition("-")
            if self.is_closed or int(number) != self._next.get(attempt, 0):
                continue
            self._next[attempt] = int(number) + 1
            self.is_waiting = False
            path = self._folder.path / name
            with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
                chunks, notes = parse_rows(stream)
            path.unlink()
            for chunk in chunks:
                if chunk.position >= self._given:
                    self._given = chunk.position + 1
                    yield lazy_chunk(str(self._folder.path / chunk.part), chunk.entry, self._folder)
            self._take(notes)

    def _names(self) -> list[str]:
        try:
            return sorted(p.name for p in self._folder.path.iterdir() if p.suffix == _ROWS_SUFFIX)
        except FileNotFoundError:
            return []

    def _take(self, notes: Sequence[Note]) -> None:
        for note in notes:
            if note.kind == "failure":
                raise failure_from_dict(note.data)
            if note.kind == "task":
                self.is_closed = note.data["chunks"] == self._given
        if self.is_closed:
            self.notes += notes


@dataclass(eq=False)
class _SparkJob:
    """A job that runs tasks up to ``stop`` (exclusive)."""

    stop: int
    thread: Any = None
    error: BaseException | None = field(default=None)


class _Jobs(Generic[S]):
    """The Spark jobs of one iteration: the one whose chunks are yielded, and one ahead."""

    def __init__(
        self,
        spark: SparkSession,
        units: Iterator[tuple[int, S]],
        work_of: Callable[[Sequence[tuple[int, S]], int], Work],
    ) -> None:
        from .spark_stage import cores_of, tries_of

        self.staging = Staging.in_scratch()
        self.scratch = ScratchFolder(self.staging.local)
        self._spark = spark
        self._units = units
        self._work_of = work_of
        self._cores = cores_of(spark) or _MOST_TASKS
        self._tries = tries_of(spark)
        self._tag = f"chunkmill-{secrets.token_hex(4)}"
        self._jobs: deque[_SparkJob] = deque()
        self._begun = 0
        self._most = self._cores
        self._pause = _SHORTEST_WAIT
        self._waited = self._is_slow = self._is_done = False
        self._error: Exception | None = None

    def begin_to(self, number: int) -> bool:
        """Begin jobs until task ``number`` has begun; return False if there is no such task. Raises the errors of the
        units.
        """
        while self._jobs and self._jobs[0].stop <= number:
            self._jobs.popleft()
        while self._begun <= number and not self._is_done:
            self._begin()
        if self._begun <= number and self._error is not None:
            raise self._error
        return number < self._begun

    def _begin(self) -> None:
        """Begin another job, if there are units left and too few jobs run ahead."""
        if self._is_done or len(self._jobs) >= (1 if self._is_slow else _MOST_JOBS):
            return
        units = list(self._taken())
        if units:
            self._start(self._work_of(units, self._begun), len(units))
            if self._waited:
                self._waited = False
                self._most = min(2 * self._most, _MOST_TASKS * self._cores)

    def _taken(self) -> Iterator[tuple[int, S]]:
        started, size = time.monotonic(), 0
        for taken in range(1, self._most + 1):
            try:
                unit = next(self._units, None)
            except Exception as error:  # noqa: BLE001 (raised after the chunks before it)
                unit, self._error = None, error
            if unit is None:
                self._is_done = True
                return
            yield unit
            size += unit[1].size
            self._is_slow = getattr(unit[1], "came_slowly", False)
            enough = taken >= self._cores and size >= 2 * self._cores * SPLIT_BYTES
            if self._is_slow or enough or time.monotonic() > started + _LONGEST_TAKING:
                return

    def _start(self, work: Work, count: int) -> None:
        from pyspark import InheritableThread

        from .spark_stage import run_spark

        job = _SparkJob(self._begun + count)
        body = PiecesJob(work, self.staging.location, self._begun, self._tries)

        def run() -> None:
            try:
                self._spark.addTag(self._tag)
                for _ in run_spark(self._spark, body, work.tasks, dealt=False):
                    pass
            except BaseException as error:  # noqa: BLE001 (raised when the chunks are yielded)
                job.error = error

        job.thread = InheritableThread(run, session=self._spark, name="chunkmill-iteration", daemon=True)
        job.thread.start()
        self._jobs.append(job)
        self._begun = job.stop

    def has_ended(self) -> bool:
        """Return whether the first job has ended; then all reports of its tasks are visible."""
        return not self._jobs[0].thread.is_alive()

    def wait(self, has_ended: bool) -> None:
        """Wait briefly for a task of the first job; raise an error if the job has ended without reporting it."""
        if has_ended:
            raise self._jobs[0].error or SessionError(
                "a task ended without reporting what it wrote", hint="Run it again.", transient=True
            )
        self._pause = min(2 * self._pause, _LONGEST_WAIT)
        self._waited = True
        time.sleep(self._pause)

    def go_on(self) -> None:
        """Begin the next job, after a chunk was yielded: earlier, it would have taken the first job's cores."""
        self._pause = _SHORTEST_WAIT
        self._begin()

    def stop(self) -> None:
        """Cancel running jobs, and prevent others from beginning."""
        if self._jobs:
            self.staging.mark_failed()
        until = time.monotonic() + _LONGEST_STOP
        for job in self._jobs:
            while job.thread.is_alive() and time.monotonic() < until:
                with contextlib.suppress(Exception):
                    self._spark.interruptTag(self._tag)
                job.thread.join(0.2)


def _task_folder(root: Path, number: int) -> Path:
    return root / f"{number:09d}"
