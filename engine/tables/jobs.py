"""Jobs on the columns of a table: their counts, progress and failures, kept as JSON in the table's folder."""

from __future__ import annotations

import contextlib
import getpass
import json
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, TypeVar

from ..errors import JobFailedError, NotFoundError, ReadError, UsageError, WriteError, writing
from ..execution import ProgressListener, ProgressState, RunOptions, is_gone, this_process
from ..locations import located
from ..reports import RunReport
from ..spark import Terminated, cancel_jobs_while, interruptible, raise_in_thread
from ..storage.folder import OPEN_SUFFIX, Folder
from .checkpoints import COMPUTED, parsed, record_of
from .policies import ROW_NOTE


class RowProgress:
    """Reports all stages of a run to a listener as one stage, of the ``rows`` that the run computes.

    ``steps`` is the number of rows that its stages read: more if few are selected, or several functions are called.
    """

    def __init__(self, listener: ProgressListener, rows: int, steps: int) -> None:
        self._listener = listener
        self._rows = rows
        self._steps = max(steps, 1)
        self._passed = 0
        self._tasks = self._earlier_tasks = 0
        self._began = time.monotonic()
        listener.started(0, rows)

    def started(self, total_splits: int, total_bytes: int) -> None:
        """Another stage begins."""
        del total_bytes
        self._earlier_tasks, self._tasks = self._tasks, self._tasks + total_splits

    def advanced(self, done: ProgressState) -> None:
        """A stage advanced; its sizes are rows."""
        rows = min((self._passed + done.bytes_done) * self._rows // self._steps, self._rows)
        seconds = time.monotonic() - self._began
        tasks = self._earlier_tasks + done.splits_done
        self._listener.advanced(
            replace(
                done,
                splits_done=tasks,
                splits_total=self._tasks,
                bytes_done=rows,
                bytes_total=self._rows,
                seconds=seconds,
            )
        )

    def finished(self, result: RunReport) -> None:
        """Do nothing: the run has no report of its own."""

    def passed(self, rows: int) -> None:
        """Count rows that a stage has finished."""
        self._passed += rows


def rows_shown(run: RunOptions, rows: int, steps: int) -> RunOptions:
    """Return options whose listener sees all stages of a run as one, by :class:`RowProgress`."""
    return run if run.progress is None else replace(run, progress=RowProgress(run.progress, rows, steps))


@dataclass
class RunCounts:
    """Counts of a run. Of ``rows``: those with a value, and failed ones by policy. Of ``total``: finished fragments.

    ``errors`` are the names of files with error records; ``taken`` are the fragments that another job filled meanwhile.
    """

    processed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    fragments: int = 0
    total: int = 0
    errors: list[str] = field(default_factory=list)
    commits: int = 0
    taken: set[int] = field(default_factory=set)


RUNNING: Final = "RUNNING"
DONE: Final = "DONE"
FAILED: Final = "FAILED"

_INTERRUPTED: Final = "it was interrupted"
_KEPT: Final = "Committed values stay, and other computed values are kept for the next run."
_CLEARING: Final = 5.0
"""Seconds that an interrupted job gets to store computed values."""

_TIMES: Final = ("launched_at", "completed_at", "heard_at")
_BEAT_SECONDS: Final = 60.0
_SILENCE: Final = timedelta(hours=1)
"""Time after which a silent job on another host counts as dead."""

R = TypeVar("R")


@dataclass(frozen=True)
class UdfResult:
    """The result of a job for one column: the numbers of rows with a value, and of rows that a policy left null."""

    udf_name: str | None = None
    udf_version: str | None = None
    rows_processed: int = 0
    rows_skipped: int = 0
    input_columns: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class BackfillJobResult:
    """Result of a backfill: its counts and times. ``cluster_…`` and ``manifest_…`` are always None."""

    job_id: str
    status: str
    table_name: str
    launched_at: datetime | None = None
    completed_at: datetime | None = None
    cluster_name: str | None = None
    cluster_source: str | None = None
    manifest_id: str | None = None
    manifest_source: str | None = None
    columns: dict[str, UdfResult] = field(default_factory=dict)


@dataclass(frozen=True)
class ErrorRecord:
    """A row, or a batch, for which a function failed.

    ``row_address`` is the fragment's number times 2**32 plus the row's offset in it. It is None for a whole batch, and
    for an exception that ended the job: then ``error_trace`` names the row, if known.
    """

    error_id: str
    error_type: str
    error_message: str
    error_trace: str
    job_id: str
    table_uri: str
    table_name: str
    table_version: int
    column_name: str
    udf_name: str
    udf_version: str
    input_columns: list[str]
    output_columns: list[str]
    actor_id: str | None
    fragment_id: int | None
    batch_index: int | None
    row_address: int | None
    attempt: int
    max_attempts: int
    bisect_depth: int
    timestamp: datetime


@dataclass(frozen=True)
class JobMetric:
    """A metric of a job: ``n`` of ``total``."""

    name: str
    n: int
    total: int = 0
    done: bool = False
    desc: str = ""


@dataclass(frozen=True)
class JobRecord:
    """The record of a job in the table's folder.

    ``status`` is RUNNING, DONE or FAILED. A job whose process is gone has failed. ``config`` is JSON.
    """

    table_name: str
    column_name: str
    job_id: str
    job_type: str
    status: str
    launched_at: datetime
    completed_at: datetime | None = None
    config: str = "{}"
    launched_by: str = ""
    metrics: list[JobMetric] = field(default_factory=list)
    error: str | None = None
    errors: list[str] = field(default_factory=list)
    """The files with the job's error records."""
    process: dict[str, Any] = field(default_factory=dict)
    version: int = 0
    """The oldest version of the table that the job may need."""
    heard_at: datetime | None = None
    """The time of the last heartbeat of the job's process."""

    @property
    def is_silent(self) -> bool:
        """Return whether the job's process cannot be checked, and sent no heartbeat for an hour."""
        heard = self.heard_at or self.launched_at
        return self.process.get("host") != this_process()["host"] and datetime.now(UTC) - heard > _SILENCE


class JobTable:
    """The jobs of the table at a place, and their error records."""

    def __init__(self, place: str, name: str) -> None:
        self._place = place
        self._name = name
        self._jobs = Folder.at(located(place) / COMPUTED / "jobs")
        self._errors = Folder.at(located(place) / COMPUTED / "errors")

    def begin(self, job_id: str, job_type: str, column: str, config: Mapping[str, Any], version: int = 0) -> JobRecord:
        """Record a running job. While it runs, cleanups keep ``version`` and later versions of the table."""
        record = JobRecord(
            self._name,
            column,
            job_id,
            job_type,
            RUNNING,
            datetime.now(UTC),
            config=json.dumps(config, default=str),
            launched_by=_user(),
            process=this_process(),
            version=version,
            heard_at=datetime.now(UTC),
        )
        self.put(record)
        return record

    def put(self, record: JobRecord) -> None:
        """Store the present state of a job."""
        data = asdict(record)
        for name in _TIMES:
            data[name] = data[name] and data[name].isoformat()
        with writing(self._place):
            self._jobs.make()
            self._jobs.replace(f"{record.job_id}.json", json.dumps(data).encode(), "job.write")

    def end(self, record: JobRecord, counts: RunCounts, error: BaseException | None = None) -> None:
        """Record the end of a job, and its result."""
        skipped = sum(counts.skipped.values())
        ended = replace(
            record,
            status=DONE if error is None else FAILED,
            completed_at=datetime.now(UTC),
            error=None if error is None else _told_of(error),
            errors=[name for name in counts.errors if name],
            metrics=[
                JobMetric("rows_processed", counts.processed, counts.rows, error is None, "Rows with a value"),
                JobMetric("rows_skipped_on_error", skipped, 0, error is None, "Rows skipped on error"),
                JobMetric("fragments", counts.fragments, counts.total, error is None, "Fragments committed"),
                JobMetric("commits", counts.commits, 0, error is None, "Commits"),
                JobMetric("fragments_taken", len(counts.taken), 0, error is None, "Fragments that another job filled"),
            ],
        )
        self.put(ended)

    def all(self) -> list[JobRecord]:
        """All jobs, oldest first. Jobs with a damaged record are skipped, with a warning."""
        records = []
        for name in self._names(self._jobs):
            try:
                records.append(self.get(name.removesuffix(".json")))
            except ReadError as error:
                warnings.warn(f"a job is skipped: {error}", RuntimeWarning, stacklevel=3)
            except NotFoundError:
                continue  # it was removed meanwhile
        return sorted(records, key=lambda record: record.launched_at)

    def sweep(self) -> None:
        """Remove partial records of killed jobs."""
        self._jobs.delete(self._names(self._jobs, OPEN_SUFFIX))

    def forget(self, record: JobRecord) -> None:
        """Remove the record of a job."""
        self._jobs.delete([f"{record.job_id}.json"])

    def running(self) -> list[JobRecord]:
        """The running jobs. A job with a damaged record is not running: a power failure ended it."""
        records = []
        for name in self._names(self._jobs):
            with contextlib.suppress(ReadError, NotFoundError):
                record = self.get(name.removesuffix(".json"))
                records += [record] if record.status == RUNNING else []
        return records

    def get(self, job_id: str) -> JobRecord:
        """A job, by its id. Raises ``NotFoundError`` if it does not exist."""
        name = f"{job_id}.json"
        try:
            record = record_of(JobRecord, parsed(self._jobs.get(name)))
            if record.job_id != job_id or not all(map(_is_of_errors, record.errors)):
                raise ValueError("it belongs to another job")
            is_dead = record.status == RUNNING and (is_gone(record.process) or record.is_silent)
        except FileNotFoundError:
            raise NotFoundError(f"table {self._name!r} has no job {job_id!r}", path=self._place) from None
        except (KeyError, TypeError, ValueError, OSError) as error:
            hint = "Remove the file: the table does not need a job's record."
            raise ReadError(
                f"the record of a job is damaged: {error!r}", path=self._jobs.place(name), hint=hint
            ) from None
        if is_dead:
            names = [file for file in self._names(self._errors, ".jsonl") if file.startswith(f"{job_id}-")]
            why = "it sent no heartbeat for an hour" if record.is_silent else "its process is gone"
            return replace(record, status=FAILED, error=why, errors=sorted(names))
        return record

    def errors(
        self, job_id: str | None = None, column: str | None = None, kind: str | None = None
    ) -> list[ErrorRecord]:
        """The error records of all jobs, or of one job, column or error type."""
        jobs = self.all() if job_id is None else [self.get(job_id)] if self._has(job_id) else []
        files = {name: job for job in jobs for name in job.errors}  # a run may continue files of an earlier one
        records = (record for name, job in files.items() for record in self._records(job, name))
        return [
            record
            for record in records
            if (column is None or column in (record.column_name, *record.output_columns))
            and (kind is None or record.error_type == kind)
        ]

    def _names(self, folder: Folder, suffix: str = ".json") -> list[str]:
        try:
            return [name for name in folder.names() if name.endswith(suffix)]
        except FileNotFoundError:
            return []

    def _has(self, job_id: str) -> bool:
        return self._jobs.exists(f"{job_id}.json")

    def _records(self, job: JobRecord, name: str) -> Iterator[ErrorRecord]:
        """Yield the records in a file. Damaged ones are left out, with a warning: an interrupted run may leave one."""
        damaged: list[Exception] = []
        try:
            lines = self._errors.get(name).splitlines()
        except OSError as error:
            damaged, lines = [error], []
        about = {"job_id": job.job_id, "table_name": self._name, "table_uri": self._place}
        for line in lines:
            try:
                yield record_of(ErrorRecord, _error_data(line) | about)
            except (AttributeError, ValueError) as error:
                damaged.append(error)
        if damaged:
            warnings.warn(
                f"{self._errors.place(name)}: {len(damaged)} error records are damaged, and skipped: {damaged[0]}",
                RuntimeWarning,
                stacklevel=2,
            )


_ERROR_FIELDS: Final = tuple(member.name for member in fields(ErrorRecord))


def _error_data(line: bytes) -> dict[str, Any]:
    data = parsed(line)
    return {name: data.get(name) for name in _ERROR_FIELDS}


def _is_of_errors(name: str) -> bool:
    """Return whether a name is a file name of error records, and not a path to another folder."""
    return "/" not in name and name.endswith(".jsonl")


@contextmanager
def kept(
    jobs: JobTable,
    job: str,
    job_type: str,
    column: str,
    config: Mapping[str, Any],
    version: int = 0,
    *,
    is_saved: bool = True,
) -> Iterator[RunCounts]:
    """Run a job in the block. Its record says that it runs, and may need the table from a version on.

    If ``is_saved`` is False, the record is removed when the job ends. Raises ``JobFailedError`` for the block's errors;
    a ``UsageError`` stays unchanged. An interrupt's message says how to continue.
    """
    counts = RunCounts()
    record = jobs.begin(job, job_type, column, config, version)

    def ended(error: BaseException | None) -> None:
        if is_saved:
            jobs.end(record, counts, error)
        else:
            jobs.forget(record)

    try:
        with _heard(jobs, record):
            yield counts
    except BaseException as error:
        try:
            ended(error)
        except (OSError, WriteError) as second:
            error.add_note(f"Also, the job's failure could not be recorded: {second}")
        if _is_interrupt(error):
            done = f"{counts.fragments} of {counts.total} fragments of {column!r} are committed"
            message = f"{done}, and checkpoints of others are kept. Run the same again to continue (job {job})."
            raise type(error)(message) from None
        if isinstance(error, UsageError) or not isinstance(error, Exception):
            raise
        row = next(
            (
                f"{'' if str(error).endswith('.') else '.'} {note[:-1]}"
                for note in getattr(error, "__notes__", ())
                if note.startswith(ROW_NOTE)
            ),
            "",
        )
        raise JobFailedError(f"job {job} failed: {type(error).__name__}: {error}{row}", hint=_KEPT) from error
    ended(None)


@contextmanager
def announced(jobs: JobTable, job: str, reader: str, config: Mapping[str, Any], version: int) -> Iterator[None]:
    """In the block, another table's folder, if writable, has a record that a job reads the table from a version on."""
    try:
        record = jobs.begin(f"{job}-reads", f"READ by {reader}", "", config, version)
    except (OSError, WriteError):
        yield
        return
    try:
        with _heard(jobs, record):
            yield
    finally:
        with contextlib.suppress(OSError, WriteError):
            jobs.forget(record)


@contextmanager
def _heard(jobs: JobTable, record: JobRecord) -> Iterator[None]:
    """In the block, record from time to time that the job's process is alive."""
    over = threading.Event()

    def saying() -> None:
        while not over.wait(_BEAT_SECONDS):
            with contextlib.suppress(OSError, WriteError):  # the next heartbeat may succeed
                jobs.put(replace(record, heard_at=datetime.now(UTC)))

    thread = threading.Thread(target=saying, name=f"chunkmill-heard-{record.job_id[:8]}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class JobFuture(Generic[R]):
    """The future result of a job that runs in the background."""

    def __init__(self, job_id: str, run: Callable[[], R]) -> None:
        self.job_id = job_id
        self._future: Future[R] = Future()
        # not a daemon: the process waits for the thread before it ends
        self._thread = threading.Thread(target=self._run, args=(run,), name=f"chunkmill-job-{job_id[:8]}")
        self._thread.start()

    def _run(self, run: Callable[[], R]) -> None:
        try:
            self._future.set_result(run())
        except BaseException as error:  # noqa: BLE001 (`result` raises it)
            self._future.set_exception(error)

    def done(self, timeout: float | None = None) -> bool:
        """Return whether the job has ended; with ``timeout``, wait up to this many seconds for it."""
        if timeout:
            try:
                self._future.exception(timeout)
            except FutureTimeoutError:
                return False
        return self._future.done()

    def result(self, timeout: float | None = None) -> R:
        """Return the result. Raises the job's errors, and ``TimeoutError`` after ``timeout`` seconds."""
        try:
            return self._future.result(timeout)
        except FutureTimeoutError:
            if self._future.done():
                raise
            raise TimeoutError(f"job {self.job_id} is not done after {timeout} s") from None

    def waited(self, seconds: float | None, what: str) -> R:
        """Return the result, or raise ``TimeoutError`` while the job continues. An interrupt ends the job."""
        began = time.monotonic()
        with interruptible():
            try:
                if not self.done(seconds) and seconds is not None and time.monotonic() - began >= seconds:
                    raise TimeoutError(f"{what} did not complete within {seconds:g}s")
            except (KeyboardInterrupt, Terminated) as interrupt:
                if self._thread.ident is not None:
                    raise_in_thread(self._thread.ident)
                cancel_jobs_while(self._thread.is_alive, _CLEARING)
                failure = self._future.exception() if self._future.done() else None
                raise type(interrupt)(str(failure or _INTERRUPTED)) from None
        return self.result()


class Job(Generic[R]):
    """A job in the background."""

    def __init__(self, table_name: str, column_names: list[str], future: JobFuture[R]) -> None:
        self.job_id = future.job_id
        self.table_name = table_name
        self.column_names = column_names
        self.future = future

    @property
    def status(self) -> str:
        """RUNNING, DONE or FAILED."""
        if not self.future.done():
            return RUNNING
        try:
            self.future.result(0)
        except Exception:  # noqa: BLE001 (whatever it was)
            return FAILED
        return DONE

    def done(self, timeout: float | None = None) -> bool:
        """Return whether the job has ended; with ``timeout``, wait up to this many seconds for it."""
        return self.future.done(timeout)

    def result(self, timeout: float | None = None) -> R:
        """The result. Raises ``TimeoutError``, and ``JobFailedError`` if it failed."""
        return self.future.result(timeout)

    def __repr__(self) -> str:
        return f"Job({self.job_id}, {self.table_name}.{', '.join(self.column_names)}, {self.status})"


def _told_of(error: BaseException) -> str:
    return _INTERRUPTED if _is_interrupt(error) else f"{type(error).__name__}: {error}"


def _is_interrupt(error: BaseException) -> bool:
    return isinstance(error, (KeyboardInterrupt, Terminated))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
