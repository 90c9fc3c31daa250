"""Running work to its end: choose the executor, run the tasks, raise what failed, commit what did not."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import pyarrow as pa

from ..errors import ReadWarning, SessionError, WriteError
from ..locations import Location, local_path
from ..objects import ObjectUrl
from ..reports import RunReport
from ..rrd import FilePassage, StoreEntry
from ..spark import interruptible
from .choice import executor_name
from .chunk_rows import Note, PartChunk, parse_rows
from .commit import RrdCommit, commit_shards
from .failures import failure_from_dict
from .folders import Folder
from .inline import run_inline
from .joined import JoinedWork
from .part import PartJob
from .passing import Passing, passage_of, passed_parts
from .progress import ProgressListener
from .quarantine import settle
from .reporting import Ran, RunStart
from .staging import Staging
from .watch import watching
from .work import Task, Work


def scratch_folder() -> Path:
    """Where results that stay lie: ``CHUNKMILL_SCRATCH``, else this user's folder in the system's temporary one."""
    given = os.environ.get("CHUNKMILL_SCRATCH")
    return local_path(given) if given else Path(tempfile.gettempdir()) / f"chunkmill-{os.getuid()}"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run: executor (None: the default), Spark master and settings, who is told of progress, and the start."""

    executor: str | None = None
    master: str | None = None
    conf: Mapping[str, str] | None = None
    progress: ProgressListener | None = None
    start: RunStart = field(default_factory=RunStart)


def write_rrd(destination: Location, outputs: Sequence[tuple[StoreEntry, Work]], options: RunOptions) -> RunReport:
    """Run works and commit their chunks as one RRD with a store for each.

    Raises what a task raised; then, and whenever the run is cut, nothing is left at the destination but what was
    there before.
    """
    joined: Work = outputs[0][1] if len(outputs) == 1 else JoinedWork([w for _, w in outputs])
    check_destination(destination, joined)
    tasks = joined.tasks
    stores = tuple(store for store, work in outputs for _ in work.tasks)
    with (
        Staging.beside(destination) as staging,
        contextlib.closing(RrdCommit(staging, destination, [s for s, _ in outputs])) as commit,
    ):
        whole = whole_name(destination, outputs)
        passing = Passing() if whole and passage_of(joined, 0) is None else _passing(joined, stores, commit)
        names = (whole,) if whole else ()
        job = PartJob(joined, stores, staging.location, str(destination), passing=passing, whole=names)
        chunks, notes = run_parts(job, staging, options)
        ran = Ran(tasks, chunks, notes, passed_parts(joined, notes))
        committing = time.perf_counter()
        size = commit_ran(commit, ran, stores)
    return finished_report(ran, destination, size, time.perf_counter() - committing, options)


def commit_ran(commit: RrdCommit, ran: Ran, stores: Sequence[StoreEntry]) -> int:
    """Let what tasks wrote appear as one RRD, ``stores`` being those of the tasks; gives its size in bytes."""
    whole = ran.whole()
    if whole is None:
        return commit.finish(stores, ran.chunks, ran.passed)
    commit.take(whole.part)
    return whole.size


def write_rrd_shards(
    destination: Location, store: StoreEntry, work: Work, shard_bytes: int, options: RunOptions
) -> RunReport:
    """Run work and commit its chunks as a folder of RRDs, which appears whole or not at all.

    In an object store the shards appear one after the other, in quick succession, when all are there.
    """
    _check_shard_folder(destination)
    tasks = work.tasks
    with Staging.beside(destination) as staging:
        job = PartJob(work, (store,) * len(tasks), staging.location, str(destination))
        ran = Ran(tasks, *run_parts(job, staging, options))
        committing = time.perf_counter()
        size = commit_shards(staging, destination, store, ran.chunks, shard_bytes)
    return finished_report(ran, destination, size, time.perf_counter() - committing, options)


def whole_name(destination: Location, outputs: Sequence[tuple[StoreEntry, Work]]) -> str:
    """The name of a file that one task may write whole, as nothing else comes into it; empty where there is none."""
    alone = len(outputs) == 1 and len(outputs[0][1].tasks) == 1
    return str(destination) if alone and not isinstance(destination, ObjectUrl) else ""


def _passing(work: Work, stores: Sequence[StoreEntry], commit: RrdCommit) -> Passing:
    """How tasks pass messages on: into regions of the one file, where that is all that any of them does.

    Else those that do nothing else leave them where they lie, and the commit copies them.
    """
    passages = [(passage_of(work, i), store) for i, store in enumerate(stores)]
    sizes = [p.size_in(s) for p, s in passages if p is not None]
    if sizes and len(sizes) == len(stores):
        return Passing(commit.reserve(sizes))
    return Passing(later=commit.follow([(p if isinstance(p, FilePassage) else None, s) for p, s in passages]))


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


def run_parts(job: PartJob, staging: Staging, options: RunOptions) -> tuple[list[PartChunk], list[Note]]:
    """Run all tasks of a job into parts; raise what failed, show what was warned of, check that none is missing."""
    chunks, notes = run_rows(job, staging, options)
    raise_failure(notes)
    warn_of(notes, set())
    check_closed(Ran(job.work.tasks, chunks, notes))
    settle(staging, notes)
    return chunks, notes


def warn_of(notes: Sequence[Note], told: set[str]) -> None:
    """Show what tasks warned of, unless it is among the texts ``told``, to which it is added."""
    for text, category in {n.data["text"]: n.data["category"] for n in notes if n.kind == "warning"}.items():
        if text not in told:
            warnings.warn(text, _category(category), stacklevel=4)
            told.add(text)


def raise_failure(notes: Sequence[Note]) -> None:
    """Raise what the first task that failed raised, if any did."""
    failures = [n for n in notes if n.kind == "failure"]
    if failures:
        raise failure_from_dict(min(failures, key=lambda n: n.task).data)


def run_rows(job: PartJob, staging: Staging, options: RunOptions) -> tuple[list[PartChunk], list[Note]]:
    """Run all tasks of a job into parts, and give what they told, failures among it."""
    tasks = job.work.tasks
    with interruptible(), watching(staging, tasks, options.progress):
        return parse_rows(_batches(job, tasks, options))


def _batches(job: PartJob, tasks: Sequence[Task], options: RunOptions) -> Iterator[pa.RecordBatch]:
    if not tasks:
        return iter(())
    if executor_name(options.executor) == "inline":
        return run_inline(job, tasks)
    from ..spark import running_session
    from .spark_stage import run_spark, slots_of, tries_of

    spark = running_session(options.master, options.conf)
    slots = slots_of(spark)
    passed = {} if slots is None else job.pass_here(slots)
    tried = job if job.groups else replace(job, tries=tries_of(spark))
    if not passed:
        return run_spark(spark, tried, tasks)
    numbers = [i for i in range(len(tasks)) if i not in passed]
    if not numbers:
        return iter(passed.values())
    return chain(passed.values(), run_spark(spark, tried, [tasks[i] for i in numbers], numbers=numbers))


def _category(name: str) -> type[Warning]:
    known: dict[str, type[Warning]] = {"DeprecationWarning": DeprecationWarning, "RuntimeWarning": RuntimeWarning}
    return ReadWarning if name == ReadWarning.__name__ else known.get(name, UserWarning)


def check_closed(ran: Ran) -> None:
    """Every task must have closed, once, with as many chunks as came; raises ``SessionError``."""
    closed = {n.task: n.data["chunks"] for n in ran.notes if n.kind == "task"}
    came: dict[int, int] = dict.fromkeys(closed, 0)
    came.update((n.task, n.data["chunks"]) for n in ran.notes if n.kind == "task" and "passed_to" in n.data)
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


def _check_shard_folder(destination: Location) -> None:
    if isinstance(destination, ObjectUrl):
        is_taken = Folder.at(destination).exists()
    else:
        is_taken = destination.exists() and (not destination.is_dir() or any(destination.iterdir()))
    if is_taken:
        raise WriteError(
            "is there already", path=str(destination), hint="Shards go into a folder that is new or empty."
        )


def check_destination(destination: Location, work: Work, *, parents: bool = True) -> None:
    """Whether an RRD can be written there: ``parents``, its folder must be there already. Raises ``WriteError``."""
    if isinstance(destination, ObjectUrl):
        if str(destination) in work.source_paths():
            raise _is_source(destination)
        return
    if destination.is_dir():
        raise WriteError("is a folder", path=str(destination), hint="Give the name of a file in it.")
    if parents and not destination.parent.is_dir():
        raise WriteError(
            "cannot be written: No such file or directory (os error 2)",
            path=str(destination),
            hint=f"Make the folder {destination.parent} first.",
        )
    if destination.exists():
        for source in work.source_paths():
            if Path(source).exists() and destination.samefile(source):
                raise _is_source(destination)


def _is_source(destination: Location) -> WriteError:
    return WriteError(
        "is a source of the same pipeline",
        path=str(destination),
        hint="Write to another file; the source would be lost while it is read.",
    )
