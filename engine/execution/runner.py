"""Running work to its end: choose the executor, run the tasks, raise what failed, commit what did not."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import pyarrow as pa

from ..chunk import Chunk
from ..errors import ReadWarning, SessionError, WriteError
from ..locations import Location, local_path
from ..objects import ObjectUrl
from ..reports import RunReport
from ..rrd import Passage, StoreEntry
from .choice import executor_name
from .chunk_rows import Note, PartChunk, parse_rows
from .commit import RrdCommit, commit_shards
from .failures import failure_from_dict
from .folders import Folder
from .inline import run_inline
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


@dataclass(frozen=True)
class JoinedWork:
    """Several works as one, their tasks one after the other."""

    works: tuple[Work, ...]

    @property
    def tasks(self) -> Sequence[Task]:
        """The tasks of all works, numbered through."""
        found = chain.from_iterable(w.tasks for w in self.works)
        return [Task(i, t.label, t.size) for i, t in enumerate(found)]

    def run(self, index: int) -> Iterator[Chunk]:
        """The chunks of one task."""
        for work in self.works:
            if index < len(work.tasks):
                return work.run(index)
            index -= len(work.tasks)
        raise IndexError(index)

    def passage(self, index: int) -> Passage | None:
        """What one task passes on, where that is all that it does."""
        for work in self.works:
            if index < len(work.tasks):
                return passage_of(work, index)
            index -= len(work.tasks)
        raise IndexError(index)

    def source_paths(self) -> set[str]:
        """The files that any of the works reads."""
        return set().union(*(w.source_paths() for w in self.works))


def write_rrd(destination: Location, outputs: Sequence[tuple[StoreEntry, Work]], options: RunOptions) -> RunReport:
    """Run works and commit their chunks as one RRD with a store for each.

    Raises what a task raised; then, and whenever the run is cut, nothing is left at the destination but what was
    there before.
    """
    joined: Work = outputs[0][1] if len(outputs) == 1 else JoinedWork(tuple(w for _, w in outputs))
    _check_destination(destination, joined)
    tasks = joined.tasks
    stores = tuple(store for store, work in outputs for _ in work.tasks)
    with (
        Staging.beside(destination) as staging,
        contextlib.closing(RrdCommit(staging, destination, [s for s, _ in outputs])) as commit,
    ):
        job = PartJob(joined, stores, staging.location, str(destination), passing=_passing(joined, stores, commit))
        chunks, notes = run_parts(job, staging, options)
        ran = Ran(tasks, chunks, notes, passed_parts(joined, notes))
        committing = time.perf_counter()
        size = commit.finish(stores, ran.chunks, ran.passed)
    return _finished(ran, destination, size, time.perf_counter() - committing, options)


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
    return _finished(ran, destination, size, time.perf_counter() - committing, options)


def _passing(work: Work, stores: Sequence[StoreEntry], commit: RrdCommit) -> Passing | None:
    """How tasks pass messages on: into regions of the one file, where that is all that any of them does."""
    passages = [passage_of(work, i) for i in range(len(stores))]
    if not any(passages):
        return None
    sizes = [p.size_in(s) for p, s in zip(passages, stores, strict=True) if p is not None]
    return Passing(commit.reserve(sizes) if len(sizes) == len(stores) else None)


def _finished(ran: Ran, destination: Location, size: int, commit_seconds: float, options: RunOptions) -> RunReport:
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
    tasks = job.work.tasks
    with watching(staging, tasks, options.progress):
        chunks, notes = parse_rows(_batches(job, tasks, options))
    failures = [n for n in notes if n.kind == "failure"]
    if failures:
        raise failure_from_dict(min(failures, key=lambda n: n.task).data)
    for text, category in {n.data["text"]: n.data["category"] for n in notes if n.kind == "warning"}.items():
        warnings.warn(text, _category(category), stacklevel=3)
    _check_counts(tasks, chunks, notes)
    settle(staging, notes)
    return chunks, notes


def _batches(job: PartJob, tasks: Sequence[Task], options: RunOptions) -> Iterator[pa.RecordBatch]:
    if not tasks:
        return iter(())
    if executor_name(options.executor) == "inline":
        return run_inline(job, tasks)
    from .session import running_session
    from .spark import run_spark

    return run_spark(running_session(options.master, options.conf), job, tasks)


def _category(name: str) -> type[Warning]:
    known: dict[str, type[Warning]] = {"DeprecationWarning": DeprecationWarning, "RuntimeWarning": RuntimeWarning}
    return ReadWarning if name == ReadWarning.__name__ else known.get(name, UserWarning)


def _check_counts(tasks: Sequence[Task], chunks: Sequence[PartChunk], notes: Sequence[Note]) -> None:
    """Every task must have closed, once, with as many chunks as came."""
    closed = {n.task: n.data["chunks"] for n in notes if n.kind == "task"}
    came: dict[int, int] = dict.fromkeys(closed, 0)
    came.update((n.task, n.data["chunks"]) for n in notes if n.kind == "task" and "passed_to" in n.data)
    for chunk in chunks:
        came[chunk.task] = came.get(chunk.task, 0) + 1
    if len(closed) != len(tasks) or came != closed:
        raise SessionError(
            f"{len(tasks) - len(closed)} of {len(tasks)} tasks did not report back, or not all of what they wrote",
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


def _check_destination(destination: Location, work: Work) -> None:
    if isinstance(destination, ObjectUrl):
        if str(destination) in work.source_paths():
            raise _is_source(destination)
        return
    if destination.is_dir():
        raise WriteError("is a folder", path=str(destination), hint="Give the name of a file in it.")
    if not destination.parent.is_dir():
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
