"""A run's progress, observed in its staging folder, and its report, from its tasks' results."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol, TypeVar

import numpy as np

from ..errors import PipelineError, ReadError, SessionError
from ..reports import EntityReport, RunReport, SizeHistogram, TaskReport
from ..storage.folder import OPEN_SUFFIX, ObjectFolder
from ..task_context import PHASES
from .commit import AMOUNT_SUFFIX, DONE_SUFFIX, PART_SUFFIX, Extent, Staging
from .spark_stage import failure_from_dict
from .work import Note, PartChunk, Task

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunStart:
    """The start of a run on two clocks, the seconds of its planning, and the plan as text."""

    wall: float = field(default_factory=time.time)
    clock: float = field(default_factory=time.perf_counter)
    plan_seconds: float = 0.0
    plan: str = ""

    def planned(self, plan: str) -> RunStart:
        """Return the start with the time of planning and the plan."""
        return RunStart(self.wall, self.clock, time.perf_counter() - self.clock, plan)


@dataclass(frozen=True, slots=True)
class Ran:
    """The results of a run's tasks."""

    tasks: list[Task]
    chunks: list[PartChunk]
    notes: list[Note]
    listed: list[Extent] = field(default_factory=list)

    def outcomes(self) -> list[dict[str, Any] | Exception]:
        """Return each task's result or error. Raises ``SessionError`` if a task reported neither."""
        outcomes: dict[int, dict[str, Any] | Exception] = {n.task: n.data for n in self.notes if n.kind == "task"}
        outcomes.update((n.task, _failure(n)) for n in self.notes if n.kind == "failure")
        missing = [task for task in self.tasks if task.index not in outcomes]
        if missing:
            raise SessionError(
                f"{len(missing)} of {len(self.tasks)} tasks did not report back", hint="Run it again.", transient=True
            )
        return [outcomes[task.index] for task in self.tasks]

    def whole(self) -> tuple[str, int] | None:
        """The name and size of the part that is a complete RRD, or None if parts must be joined."""
        parts = [
            (n.data["whole"]["part"], n.data["whole"]["size"])
            for n in self.notes
            if n.kind == "task" and "whole" in n.data
        ]
        return parts[0] if len(parts) == len(self.tasks) == 1 else None

    def report(
        self, start: RunStart, *, executor: str, destination: str, bytes_out: int, commit_seconds: float
    ) -> RunReport:
        """Return the report of the run, after the commit."""
        closed = {n.task: n for n in self.notes if n.kind == "task"}
        tasks = [_task(task, closed[task.index], start) for task in self.tasks if task.index in closed]
        phases = {"plan": start.plan_seconds}
        if tasks:
            phases["start"] = max(0.0, min(t.start for t in tasks) - start.plan_seconds)
        for name in PHASES:
            phases[name] = sum(t.phases.get(name, 0.0) for t in tasks)
        phases["other"] = max(0.0, sum(t.seconds - sum(t.phases.values()) for t in tasks))
        phases["commit"] = commit_seconds
        return RunReport(
            splits=len(self.tasks),
            chunks=sum(t.chunks for t in tasks),
            rows=sum(t.rows for t in tasks),
            bytes_in=sum(t.size for t in self.tasks),
            bytes_out=bytes_out,
            seconds=time.perf_counter() - start.clock,
            warnings=tuple(dict.fromkeys(n.data["text"] for n in self.notes if n.kind == "warning")),
            bytes_passed=sum(t.bytes_passed for t in tasks),
            bytes_read=sum(t.bytes_read for t in tasks),
            requests=sum(t.requests for t in tasks),
            started=start.wall,
            executor=executor,
            destination=destination,
            plan=start.plan,
            phases=phases,
            tasks=tasks,
            entities=_entities(self.chunks, self.listed),
            sizes_in=SizeHistogram.sum(_histogram(n.data["sizes_in"]) for n in closed.values()),
            sizes_out=SizeHistogram.of(
                chain(
                    (c.entry.uncompressed_size for c in self.chunks),
                    *(e.listed.table.uncompressed_sizes.tolist() for e in self.listed),
                )
            ),
        )


def _failure(note: Note) -> Exception:
    error = failure_from_dict(note.data)
    if isinstance(error, Exception):
        return error
    return PipelineError(f"a function of the pipeline called sys.exit: {error}")


def _task(task: Task, note: Note, start: RunStart) -> TaskReport:
    data = note.data
    return TaskReport(
        index=task.index,
        label=task.label,
        start=max(0.0, data["began"] - start.wall),
        seconds=data["seconds"],
        phases=data["phases"],
        chunks=data["chunks"],
        rows=data["rows"],
        bytes_in=task.size,
        bytes_out=data["bytes"],
        bytes_passed=data["passed"],
        worker=data["worker"],
        bytes_read=data["read"],
        requests=data["requests"],
    )


def _entities(chunks: Sequence[PartChunk], extents: Sequence[Extent]) -> list[EntityReport]:
    """The report of each entity, largest first."""
    counts_of: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for chunk in chunks:
        counts = counts_of[chunk.entry.header.entity_path]
        counts[0] += 1
        counts[1] += chunk.entry.header.num_rows
        counts[2] += chunk.entry.size
    for extent in extents:
        table = extent.listed.table
        change = ((extent.size or 0) - table.framed_bytes) // len(table) if len(table) else 0  # the other store's name
        codes, paths = table.entity_codes
        numbers = np.bincount(codes, minlength=len(paths))
        rows, sizes = (np.bincount(codes, n, len(paths)).astype(np.int64) for n in (table.num_rows, table.sizes))
        columns = (numbers.tolist(), rows.tolist(), (sizes + numbers * change).tolist())
        for path, *more in zip(paths, *columns, strict=True):
            counts_of[path] = [count + n for count, n in zip(counts_of[path], more, strict=True)]
    reports = [EntityReport(path, *counts) for path, counts in counts_of.items()]
    return sorted(reports, key=lambda e: (-e.bytes, e.entity_path))


def _histogram(counts: dict[str, int]) -> SizeHistogram:
    return SizeHistogram({int(bits): count for bits, count in counts.items()})


@dataclass(frozen=True, slots=True)
class ProgressState:
    """The state of a run. ``bytes_done`` counts source bytes of finished splits, ``bytes_written`` bytes in parts."""

    splits_done: int
    splits_total: int
    bytes_done: int
    bytes_total: int
    chunks: int
    bytes_written: int
    seconds: float


class ProgressListener(Protocol):
    """Receives the progress of a run; called from one thread at a time."""

    def started(self, total_splits: int, total_bytes: int) -> None:
        """Called when the plan is made and tasks begin."""
        ...

    def advanced(self, done: ProgressState) -> None:
        """Called after some splits finished, or bytes were written."""
        ...

    def finished(self, result: RunReport) -> None:
        """Called when the output is committed."""
        ...


def told(
    tasks: Sequence[Task], made: Iterable[Iterator[T]], listener: ProgressListener | None
) -> Iterator[Iterator[T]]:
    """Yield the output of each task in this process, one after another, and report it to the listener."""
    if listener is None:
        yield from made
        return
    sizes = [task.size for task in tasks]
    began, chunks, last = time.monotonic(), 0, 0.0
    listener.started(len(sizes), sum(sizes))

    def tell(done: int) -> None:
        seconds = time.monotonic() - began
        listener.advanced(ProgressState(done, len(sizes), sum(sizes[:done]), sum(sizes), chunks, 0, seconds))

    def counting(items: Iterator[T], done: int) -> Iterator[T]:
        nonlocal chunks, last
        for item in items:
            yield item
            chunks += 1
            if time.monotonic() - last > _PERIOD:
                last = time.monotonic()
                tell(done)
        tell(done + 1)

    for number, items in enumerate(made):
        yield counting(items, number)


_PERIOD = 0.1
_REMOTE_PERIOD = 1.0


@contextmanager
def watching(staging: Staging | None, tasks: Sequence[Task], listener: ProgressListener | None) -> Iterator[None]:
    """Report the progress of the tasks to ``listener`` during the block."""
    if listener is None or staging is None:
        yield
        return
    listener.started(len(tasks), sum(t.size for t in tasks))
    watch = _Watch(staging, tasks, listener)
    thread = threading.Thread(target=watch.run, name="chunkmill-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watch.stop.set()
        thread.join()
        watch.look()


class _Watch:
    def __init__(self, staging: Staging, tasks: Sequence[Task], listener: ProgressListener) -> None:
        self.stop = threading.Event()
        self._staging = staging
        self._sizes = [t.size for t in tasks]
        self._listener = listener
        self._done: dict[str, dict[str, int]] = {}
        self._started = time.monotonic()

    def run(self) -> None:
        is_remote = isinstance(self._staging.folder, ObjectFolder)
        while not self.stop.wait(_REMOTE_PERIOD if is_remote else _PERIOD):
            self.look()

    def look(self) -> None:
        """Count the parts and report them to the listener."""
        open_bytes, amounts = 0, defaultdict[int, int](int)
        try:
            for name in self._staging.folder.names():
                if name.endswith(DONE_SUFFIX):
                    if name not in self._done:
                        self._done[name] = json.loads(self._staging.folder.get(name) or b"{}")
                elif name.endswith(AMOUNT_SUFFIX):
                    task = int(name.partition("-")[0])
                    amounts[task] = max(amounts[task], int(self._staging.folder.get(name)))
                elif name.endswith(PART_SUFFIX + OPEN_SUFFIX):
                    open_bytes += self._staging.folder.size(name)
        except (OSError, ValueError, ReadError):
            return  # a file appeared or vanished meanwhile; the next check counts it
        done = [d for d in self._done.values() if d]
        tasks = {d["task"] for d in done}
        begun = sum(min(amount, self._sizes[task]) for task, amount in amounts.items() if task not in tasks)
        self._listener.advanced(
            ProgressState(
                splits_done=len(tasks),
                splits_total=len(self._sizes),
                bytes_done=sum(self._sizes[t] for t in tasks) + begun,
                bytes_total=sum(self._sizes),
                chunks=sum(d["chunks"] for d in done),
                bytes_written=sum(d["bytes"] for d in done) + open_bytes,
                seconds=time.monotonic() - self._started,
            )
        )
