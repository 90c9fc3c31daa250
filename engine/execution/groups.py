"""Several recordings in one stage: each has its own outcome, and a failure does not affect the others.

A few stages write many recordings; each is committed, or fails, separately.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ..errors import PipelineError, SessionError, SessionStartError, WriteError, writing
from ..locations import Location, located
from ..reports import RunReport
from ..rrd import StoreEntry
from ..storage.folder import Folder
from .commit import RrdCommit, RunPlaces, Staging
from .reporting import Ran, RunStart
from .sink import RrdParts, check_destination, commit_ran, finished_report, run_tasks, whole_name
from .stage import RunOptions, check_closed, executor_name, raise_failure, settle
from .work import JoinedWork, PartChunk, Work

STAGE_TASKS: Final = 256
"""The tasks of one stage: if a run is interrupted, the work of the whole stage is lost."""

STAGE_BYTES: Final = 4 << 30
"""The source bytes of one stage."""

Outputs = Sequence[tuple[StoreEntry, Work]]
"""The output of one recording: its stores, each with the work that produces its chunks."""


class GroupedStage:
    """The outputs of several recordings as one stage, into parts in ``staging``.

    With ``destinations``, one for each recording, a single task's local file is a whole RRD: workers then make the
    footers, not the driver.
    """

    def __init__(
        self,
        groups: Sequence[Outputs],
        staging: Staging,
        destination: str,
        *,
        digests: bool = False,
        runs: RunPlaces | None = None,
        destinations: Sequence[Location] = (),
    ) -> None:
        self._groups = len(groups)
        self._staging = staging
        self._work = JoinedWork([work for outputs in groups for _, work in outputs])
        counts = [sum(len(work.tasks) for _, work in outputs) for outputs in groups]
        self._owners = tuple(at for at, count in enumerate(counts) for _ in range(count))
        self.stores = tuple(store for outputs in groups for store, work in outputs for _ in work.tasks)
        """The store of each task."""
        names = list(map(whole_name, destinations, groups))
        self._destination = destination
        self._parts = RrdParts(
            self.stores,
            destination,
            digests,
            runs=runs,
            whole=tuple(names[owner] for owner in self._owners) if names else (),
            times=digests,
        )

    def run(self, options: RunOptions) -> list[Ran]:
        """The results of each recording's tasks, including failures; see :func:`check`."""
        return self._by_group(
            run_tasks(self._work, self._parts, self._staging, options, self._destination, self._owners)
        )

    def check(self, ran: Ran) -> None:
        """Raise the error of one of these tasks, if any; store the chunks that their lenses quarantined."""
        try:
            raise_failure(ran.notes)
        except SystemExit as error:
            raise PipelineError(f"a function of the pipeline called sys.exit: {error}") from error
        check_closed(ran)
        settle(self._staging, ran.notes)

    def _by_group(self, ran: Ran) -> list[Ran]:
        groups = [Ran([], [], [], []) for _ in range(self._groups)]
        for task in ran.tasks:
            groups[self._owners[task.index]].tasks.append(task)
        for name in ("chunks", "notes", "listed"):
            for item in getattr(ran, name):
                getattr(groups[self._owners[item.task]], name).append(item)
        return groups


@dataclass(frozen=True, slots=True)
class Group:
    """The outputs of one recording after the run: the chunks of each of its stores, in order, and warnings."""

    chunks: tuple[tuple[StoreEntry, list[PartChunk]], ...]
    warnings: tuple[str, ...] = ()


def is_of_all(error: Exception) -> bool:
    """Return True if a failure concerns the machine, not one recording, so that the run cannot continue."""
    if isinstance(error, SessionError):
        return not error.transient  # if workers were killed repeatedly, their recording is the cause
    return isinstance(error, WriteError)


def run_groups(
    groups: Sequence[Outputs], staging: Staging, destination: str, options: RunOptions, *, digests: bool
) -> list[Group | Exception]:
    """Run the outputs of several recordings into parts below ``staging``; return the result or error of each.

    With ``digests``, parts also have the times of their chunks, as stores need them.

    After a failure of Spark itself (a worker was killed too often), each recording is retried alone.
    """
    if not groups:
        return []
    inner = staging.inner()
    try:
        stage = GroupedStage(groups, inner, destination, digests=digests)
        ran = stage.run(options)
    except SessionStartError:
        raise
    except SessionError as error:
        if len(groups) == 1:
            return [error]
        return [run_groups([outputs], staging, destination, options, digests=digests)[0] for outputs in groups]
    return [_group(outputs, stage, result, inner) for outputs, result in zip(groups, ran, strict=True)]


def _group(outputs: Outputs, stage: GroupedStage, ran: Ran, inner: Staging) -> Group | Exception:
    try:
        stage.check(ran)
    except Exception as error:  # noqa: BLE001 (it is the outcome)
        return error
    below = inner.location.rpartition("/")[2]
    at = 0
    chunks_of_stores: list[tuple[StoreEntry, list[PartChunk]]] = []
    numbers = [task.index for task in ran.tasks]
    for store, work in outputs:
        mine = set(numbers[at : at + len(work.tasks)])
        at += len(work.tasks)
        chunks_of_stores.append((store, [replace(c, part=f"{below}/{c.part}") for c in ran.chunks if c.task in mine]))
    warnings = dict.fromkeys(n.data["text"] for n in ran.notes if n.kind == "warning")
    return Group(tuple(chunks_of_stores), tuple(warnings))


@dataclass(frozen=True, slots=True)
class PlannedRecording:
    """An RRD to write: its destination, and its stores with the work that produces their chunks."""

    destination: Location
    outputs: Sequence[tuple[StoreEntry, Work]]
    start: RunStart = field(default_factory=RunStart)

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return sum(len(work.tasks) for _, work in self.outputs)

    @property
    def size(self) -> int:
        """The size of the source, in bytes."""
        return sum(task.size for _, work in self.outputs for task in work.tasks)


@dataclass(frozen=True, slots=True)
class RecordingOutcome:
    """The end of the recording ``index``: a report, or the error for which nothing was written."""

    index: int
    report: RunReport | None = None
    error: Exception | None = None


def write_recordings(
    recordings: Iterable[PlannedRecording], folder: Location, options: RunOptions
) -> Iterator[RecordingOutcome]:
    """Write recordings below ``folder``, in order, in stages of 256 tasks or 4 GiB; more on many cores.

    Guarantee: a recording appears completely or not at all, and a failed one does not affect the others. After a stage,
    its recordings are committed one by one, each when the caller has taken the previous outcome. After a failure of
    Spark itself (a worker was killed too often), each recording of the stage is retried in its own stage. If Spark
    cannot start, the error is raised.
    """
    folder = located(folder)  # tasks have other working directories
    stage: list[tuple[int, PlannedRecording]] = []
    tasks = size = 0
    for index, recording in enumerate(recordings):
        try:
            check_destination(recording.destination, JoinedWork([w for _, w in recording.outputs]), parents=False)
        except Exception as error:  # noqa: BLE001 (it is the outcome)
            yield RecordingOutcome(index, error=error)
            continue
        stage.append((index, recording))
        tasks += recording.tasks
        size += recording.size
        if _is_full(tasks, size, 1) and _is_full(tasks, size, stages_at_once(options)):
            yield from _run(stage, folder, options)
            stage, tasks, size = [], 0, 0
    yield from _run(stage, folder, options)


def _is_full(tasks: int, size: int, times: int) -> bool:
    return tasks >= STAGE_TASKS * times or size >= STAGE_BYTES * times


def stages_at_once(options: RunOptions) -> int:
    """The factor by which a stage must be larger to give every core of the cluster about four tasks."""
    if executor_name(options.executor) == "inline":
        return 1
    from ..spark import running_session
    from .spark_stage import cores_of

    cores = cores_of(running_session(options.master, options.conf))
    return 1 if cores is None else max(1, -(-4 * cores // STAGE_TASKS))


def _run(
    stage: Sequence[tuple[int, PlannedRecording]], folder: Location, options: RunOptions
) -> Iterator[RecordingOutcome]:
    if not stage:
        return
    with writing(str(folder)):
        Folder.at(folder).make()
    with Staging.beside(folder / "recordings") as staging:
        grouped = GroupedStage(
            [r.outputs for _, r in stage],
            staging,
            str(folder),
            runs=RunPlaces(),
            destinations=[r.destination for _, r in stage],
        )
        failures: list[tuple[tuple[int, PlannedRecording], SessionError]] = []
        try:
            ran: Sequence[Ran | None] = grouped.run(options)
        except SessionStartError:
            raise
        except SessionError as error:
            failures = [(planned, error) for planned in stage]
            ran = [None] * len(stage)
        for planned, result in zip(stage, ran, strict=True):
            if result is not None:
                try:
                    yield _commit(planned, grouped, result, staging, options)
                except SessionError as error:
                    failures.append((planned, error))
    for planned, failure in failures:
        if len(stage) == 1:
            yield RecordingOutcome(planned[0], error=failure)
        else:
            yield from _run([planned], folder, options)


def _commit(
    numbered: tuple[int, PlannedRecording], stage: GroupedStage, ran: Ran, staging: Staging, options: RunOptions
) -> RecordingOutcome:
    index, recording = numbered
    try:
        stage.check(ran)
        committing = time.perf_counter()
        with writing(str(recording.destination)):
            Folder.at(recording.destination.parent).make()
        stores = [store for store, _ in recording.outputs]
        commit = RrdCommit(staging, recording.destination, stores)
        size = commit_ran(commit, ran, stage.stores)
    except SessionError:
        raise
    except Exception as error:  # noqa: BLE001 (it is the outcome)
        return RecordingOutcome(index, error=error)
    own = replace(options, start=recording.start, progress=None)
    report = finished_report(ran, recording.destination, size, time.perf_counter() - committing, own)
    return RecordingOutcome(index, _own(report))


def _own(report: RunReport) -> RunReport:
    """Return the report with the time for this recording, without waits for the others."""
    phases = {**report.phases, "start": 0.0}
    return replace(report, phases=phases, seconds=sum(phases.values()))
