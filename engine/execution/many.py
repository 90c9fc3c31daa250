"""Many recordings written by few stages: each is committed, or fails, by itself."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..errors import SessionError, SessionStartError
from ..failing import writing
from ..locations import Location, located
from ..reports import RunReport
from ..rrd import StoreEntry
from .choice import executor_name
from .commit import RrdCommit
from .extents import RunPlaces
from .folders import Folder
from .grouped import STAGE_BYTES, STAGE_TASKS, GroupedStage
from .joined import JoinedWork
from .reporting import Ran, RunStart
from .rrd_sink import check_destination, commit_ran
from .sink import finished_report
from .stage import RunOptions
from .staging import Staging
from .work import Work


@dataclass(frozen=True, slots=True)
class Recording:
    """One RRD to be written: its name, and its stores with the work that gives each its chunks."""

    destination: Location
    outputs: Sequence[tuple[StoreEntry, Work]]
    start: RunStart = field(default_factory=RunStart)

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return sum(len(work.tasks) for _, work in self.outputs)

    @property
    def size(self) -> int:
        """Source bytes."""
        return sum(task.size for _, work in self.outputs for task in work.tasks)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of the recording ``index``: a report, or the error for which nothing was written."""

    index: int
    report: RunReport | None = None
    error: Exception | None = None


def write_recordings(recordings: Iterable[Recording], folder: Location, options: RunOptions) -> Iterator[Outcome]:
    """Write recordings below ``folder``, a stage for every 256 tasks or 4 GiB of them, in order; more on many cores.

    Guarantee: a recording appears whole or not at all, and one that fails leaves the others alone. When a stage is
    done, its recordings are committed one by one, each as the outcome of the one before is taken. A failure of Spark
    itself (a worker that was killed too often) is tried again with each recording of the stage in a stage of its own;
    one to start is raised.
    """
    folder = located(folder)  # tasks run in other folders
    stage: list[tuple[int, Recording]] = []
    tasks = size = 0
    for index, recording in enumerate(recordings):
        try:
            check_destination(recording.destination, JoinedWork([w for _, w in recording.outputs]), parents=False)
        except Exception as error:  # noqa: BLE001 (an outcome of its own)
            yield Outcome(index, error=error)
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
    """The factor by which a stage has to be larger so that every core of the cluster has some four tasks of it."""
    if executor_name(options.executor) == "inline":
        return 1
    from ..spark import running_session
    from .spark_stage import cores_of

    cores = cores_of(running_session(options.master, options.conf))
    return 1 if cores is None else max(1, -(-4 * cores // STAGE_TASKS))


def _run(stage: Sequence[tuple[int, Recording]], folder: Location, options: RunOptions) -> Iterator[Outcome]:
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
        failures: list[tuple[tuple[int, Recording], SessionError]] = []
        try:
            ran: Sequence[Ran | None] = grouped.run(options)
        except SessionStartError:
            raise
        except SessionError as error:
            failures = [(one, error) for one in stage]
            ran = [None] * len(stage)
        for one, its in zip(stage, ran, strict=True):
            if its is not None:
                try:
                    yield _commit(one, grouped, its, staging, options)
                except SessionError as error:
                    failures.append((one, error))
    for one, failure in failures:
        if len(stage) == 1:
            yield Outcome(one[0], error=failure)
        else:
            yield from _run([one], folder, options)


def _commit(
    numbered: tuple[int, Recording], stage: GroupedStage, ran: Ran, staging: Staging, options: RunOptions
) -> Outcome:
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
    except Exception as error:  # noqa: BLE001 (an outcome of its own)
        return Outcome(index, error=error)
    own = replace(options, start=recording.start, progress=None)
    report = finished_report(ran, recording.destination, size, time.perf_counter() - committing, own)
    return Outcome(index, _own(report))


def _own(report: RunReport) -> RunReport:
    """The report with the time that was spent on this recording, without what it waited for the others."""
    phases = {**report.phases, "start": 0.0}
    return replace(report, phases=phases, seconds=sum(phases.values()))
