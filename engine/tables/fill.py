"""A backfill run: stages of tasks over fragments, and a commit for each group of results."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..errors import SessionError, SkipThresholdExceededError, UsageError, WriteError, writing
from ..execution import Packed, RunOptions, Stage, Staging, Task, dealt, failure_from_dict, raise_failure, warn_of
from ..faults import reach
from ..lance import FragmentReader, LanceTable
from ..locations import located
from ..storage import publish
from ..storage.folder import Folder
from .checkpoints import COMPUTED, CheckpointStore, Computed, WrittenFile
from .computing import Batching
from .digests import job_digits, job_of
from .fill_task import MOST_KILLERS, BackfillBody, CalledRows, batches_at_hand, killed_by, rows_that_kill
from .jobs import DONE, RUNNING, JobTable, RowProgress, RunCounts
from .planning import (
    WHOLE,
    Piece,
    SelectedFragment,
    Window,
    declare,
    selection_of,
    store_single_token,
    task_rows_of,
    tasks_of,
)
from .targets import OTHER_FUNCTION, FilledColumns

_QUICKLY_JOINED: Final = 64 << 20
_FIRST_SECONDS: Final = 5.0
"""The time after which the first stage, with one task per worker, leaves its remaining rows to smaller tasks, as rows
may differ in time. Another stage costs 2 % of that; small tasks from the start cost brief functions more."""
_MOST_DEATHS: Final = 3
"""How many times in a row workers may be lost without a known cause."""


@dataclass(frozen=True)
class FragmentWork:
    """A job's work: columns to fill in fragments of a version. The other fields are as in ``BackfillRun``.

    ``home`` is the place of the table with the checkpoints; by default, of the table that is read.
    """

    table: LanceTable
    job: str
    batching: Batching
    run: RunOptions
    workers: int
    task_rows: int | None
    reader: FragmentReader
    target: FilledColumns
    counts: RunCounts
    home: str | None = None

    def checkpointed(self, pieces: Sequence[Piece]) -> None:
        """Compute rows into checkpoints. Raises the errors of :meth:`files_of`."""
        lost_workers = _LostWorkers(self, pieces)
        while True:
            with self.staging() as staging:
                try:
                    self._computed(staging, pieces, is_careful=lost_workers.were_lost)
                    return
                except SessionError as error:
                    if not error.transient:
                        raise
                    at_hand = batches_at_hand(staging)
            lost_workers.follow(at_hand)

    def files_of(self, group: Iterable[SelectedFragment]) -> dict[int, WrittenFile]:
        """Return the files of fragments, written by tasks or by an earlier interrupted run.

        If workers are lost, finds the rows that kill them. Raises the function's error, and ``PipelineError`` for such
        rows, unless a policy skips them.
        """
        files: dict[int, WrittenFile] = {}
        todo = list(group)
        lost_workers = _LostWorkers(self, [Piece.whole(choice) for choice in todo])
        while True:
            for choice in todo:
                existing = (file for file in self.store.of(choice.key).files() if self._is_there(file, choice))
                if (file := next(existing, None)) is not None:
                    files[choice.fragment.id] = file
            todo = [choice for choice in todo if choice.fragment.id not in files]
            if not todo:
                break
            with self.staging() as staging:
                try:
                    written = self._written(staging, todo, is_careful=lost_workers.were_lost)
                except SessionError as error:
                    if not error.transient:
                        raise
                    at_hand = batches_at_hand(staging)
                else:
                    files |= written
                    break
            lost_workers.follow(at_hand)
        return files

    def _written(
        self, staging: Staging, todo: Sequence[SelectedFragment], *, is_careful: bool
    ) -> dict[int, WrittenFile]:
        """Write the files of fragments by tasks, and return them."""
        pieces = list(map(Piece.whole, todo))
        files = written_files(self._computed(staging, pieces, is_careful=is_careful))
        whole = [(piece,) for piece in pieces if piece.fragment.id not in files]
        if whole:
            # Another stage of Spark takes 0.2 s; joining 64 MiB takes less.
            small = sum(self.store.of(piece.key).size() for (piece,) in whole) <= _QUICKLY_JOINED
            run = replace(self.run, progress=None)  # these rows were reported when they were computed
            if small and not is_careful:
                run = replace(run, executor="inline")
            files |= written_files(self.stage(staging, whole, is_careful=is_careful, run=run))
        for choice in todo:
            if not self.target.keeps_others and files[choice.fragment.id].computed < choice.rows:
                raise WriteError(
                    f"checkpoints of fragment {choice.fragment.id} disappeared while they were joined",
                    path=self.table.place,
                    hint="Nothing was committed; run it again.",
                    transient=True,
                )
        return files

    def _computed(self, staging: Staging, pieces: Sequence[Piece], *, is_careful: bool) -> list[dict[str, Any]]:
        """Compute pieces, first in one task per worker, then the rest in smaller ones; return the tasks' reports."""
        tasks = self._tasks(pieces, many=is_careful)
        is_brief = self.task_rows is None and len(tasks) > 1 and not is_careful and not self.target.is_cheap
        reports = self.stage(staging, tasks, is_careful=is_careful, seconds=_FIRST_SECONDS if is_brief else None)
        left = _left(tasks, reports)
        return reports + (self.stage(staging, self._tasks(left, many=True), is_careful=is_careful) if left else [])

    def _tasks(self, pieces: Sequence[Piece], *, many: bool) -> list[tuple[Piece, ...]]:
        rows = sum(piece.span[1] - piece.span[0] for piece in pieces)
        task_rows = task_rows_of(self.task_rows, rows, self.workers, many=many)
        if self.target.is_cheap:
            return list(dealt(pieces, lambda piece: piece.span[1] - piece.span[0], task_rows))
        return tasks_of(pieces, task_rows)

    def staging(self) -> AbstractContextManager[Staging]:
        """A folder for the files of a stage."""
        return staging_in(self.home or self.table.place)

    @property
    def store(self) -> CheckpointStore:
        """The checkpoints of the table."""
        return CheckpointStore(self.home or self.table.place)

    def body(self, tasks: Packed[tuple[Piece, ...]], *, is_careful: bool, seconds: float | None = None) -> BackfillBody:
        """The body of a stage with these tasks."""
        batching = replace(self.batching, flush_seconds=0) if is_careful else self.batching
        return BackfillBody(
            self.table, self.reader.version, self.target, batching, tasks, self.job, is_careful, self.home, seconds
        )

    def _is_there(self, file: WrittenFile, choice: SelectedFragment) -> bool:
        """Return whether a previously written file is complete."""
        try:
            is_whole = self.table.length_of(file.name) == choice.fragment.rows == file.rows
        except (OSError, RuntimeError):
            return False
        return is_whole and (self.target.keeps_others or file.computed >= choice.rows)

    def stage(
        self,
        staging: Staging,
        tasks: Sequence[tuple[Piece, ...]],
        *,
        is_careful: bool,
        run: RunOptions | None = None,
        seconds: float | None = None,
    ) -> list[dict[str, Any]]:
        """Run a stage, and return its tasks' reports on each piece. Raises the error of the first failed task.

        If ``is_careful``, each batch is announced first, and stored as soon as it is done. After ``seconds``, a task
        leaves its remaining rows to others.
        """
        body = self.body(Packed(tasks), is_careful=is_careful, seconds=seconds)
        numbered = [
            Task(number, body.label(number), sum(piece.rows for piece in pieces)) for number, pieces in enumerate(tasks)
        ]
        run = self.run if run is None else run
        if is_careful:  # the announcements are read when the stage is over
            ran = Stage(body, numbered, staging, destination=self.table.place).run(replace(run, progress=None))
        else:
            with staging.inner() as own:
                ran = Stage(body, numbered, own, destination=self.table.place).run(run)
        warn_of(ran.notes, set())
        wrong = [note for note in ran.notes if note.kind == "failed"]
        self.counts.errors += [note.data["errors"] for note in wrong]
        if wrong:
            raise failure_from_dict(min(wrong, key=lambda note: note.task).data["failure"])
        raise_failure(ran.notes)
        if any(note.kind == "ended" for note in ran.notes):
            raise SessionError("workers died in the stage, according to the retries of their tasks", transient=True)
        ran.outcomes()  # raises unless each has reported its end
        reports = [note.data for note in ran.notes if note.kind == "piece"]
        if isinstance(run.progress, RowProgress):
            all_ = (piece for pieces in tasks for piece in pieces)
            run.progress.passed(sum(piece.rows for piece in all_) - sum(piece.rows for piece in _left(tasks, reports)))
        return reports


@contextmanager
def staging_in(place: str) -> Iterator[Staging]:
    """A folder for the files of a stage, in the folder of the table at a place."""
    home = located(place) / COMPUTED
    with writing(place):
        Folder.at(home).make()
    with Staging.beside(home / "run") as staging:
        yield staging


def written_files(reports: Sequence[dict[str, Any]]) -> dict[int, WrittenFile]:
    """Return the files of whole fragments, from the tasks' reports."""
    return {report["fragment"]: WrittenFile(**report["file"]) for report in reports if "file" in report}


def _left(tasks: Sequence[tuple[Piece, ...]], reports: Sequence[dict[str, Any]]) -> list[Piece]:
    """Return the rows that tasks have left to others."""
    reached = {(report["fragment"], report["first"]): report["end"] for report in reports}
    left = []
    for piece in (piece for pieces in tasks for piece in pieces):
        first, end = piece.span
        begin = reached.get((piece.fragment.id, first), first)
        if begin < end:
            left.append(replace(piece, span=(begin, end), is_whole=piece.is_whole and begin == first))
    return left


class _LostWorkers:
    """The workers that a run loses, and the rows that killed them."""

    def __init__(self, work: FragmentWork, pieces: Iterable[Piece]) -> None:
        self._work = work
        self._target = work.target
        self._counts = work.counts
        self._pieces = {piece.fragment.id: piece for piece in pieces}
        self._skipped = Counter(work.counts.skipped)
        self._killers: list[tuple[int, int]] = []
        self._for_nothing = 0
        self.were_lost = False

    def follow(self, at_hand: Sequence[CalledRows]) -> None:
        """Find the rows that killed a worker among the announced ones, and apply the policies.

        Raises ``PipelineError`` for rows that must not be skipped, ``SessionError`` if workers die for unknown causes.
        """
        before = len(self._killers)
        for batch in at_hand:
            piece = self._pieces[batch.fragment]
            self._killers += [(batch.fragment, offset) for offset in rows_that_kill(self._alone, piece, batch)]
        new = self._killers[before:]
        self._for_nothing = 0 if new else self._for_nothing + self.were_lost
        self.were_lost = True
        if self._for_nothing >= _MOST_DEATHS:
            raise SessionError(
                f"workers keep dying, and no rows of {self._target.name!r} are known to cause it",
                hint="Check that the workers have enough memory. Computed values are kept.",
                transient=True,
            )
        if new:
            self._decide(new)

    def _decide(self, killers: Sequence[tuple[int, int]]) -> None:
        """Skip rows, which then stay null and have a failure, or raise for them."""
        error = SessionError("the function killed its worker process")
        refused: list[tuple[int, int]] = []
        body = self._work.body(Packed(()), is_careful=True)
        for fragment, offset in killers:
            failure, is_skipped = self._target.died(error, (fragment << 32) + offset)
            if not is_skipped or len(self._killers) > MOST_KILLERS:
                refused.append((fragment, offset))
                self._counts.errors.append(body.keep_errors(fragment, [failure.to_dict()]))
                continue
            nulls = [pa.nulls(1, field.type) for field in self._target.schema]
            values = pa.RecordBatch.from_arrays(nulls, schema=self._target.schema)
            row = Computed(np.array([offset], np.uint32), values, (failure.to_dict(),))
            self._work.store.of(self._pieces[fragment].key).write(row)
            self._skipped[str(failure.policy)] += 1
        if refused:
            raise killed_by(self._target.name, refused)
        self._target.check_skipped(self._skipped, self._counts.rows)

    def _alone(self, piece: Piece) -> list[CalledRows] | None:
        """Run a piece alone, and return the rows that the function had when its worker died, or None if it survived."""
        with self._work.staging() as staging:
            try:
                self._work.stage(staging, [(piece,)], is_careful=True)
            except SessionError as error:
                at_hand = batches_at_hand(staging)
                if not error.transient or not at_hand:
                    raise
                return at_hand
        return None


_MOST_ROUNDS: Final = 20
_FRAGMENTS_OF_A_COMMIT: Final = 64
_SHARE_OF_A_COMMIT: Final = 20
_SHOWN: Final = 10


@dataclass(frozen=True)
class BackfillRun:
    """A run of a backfill with its options. ``workers`` is the most tasks at once."""

    table: LanceTable
    job: str
    batching: Batching
    run: RunOptions
    workers: int
    task_rows: int | None = None
    granularity: int | None = 0
    """Fragments per commit. None: all in one commit; 0: 64, or a twentieth of all fragments if that is more."""
    where: str | None = None
    window: Window = WHOLE
    recompute_stale: bool = False
    check: Callable[[Mapping[int, WrittenFile]], None] = lambda _: None
    """A check before each commit that raises if the files must not be committed."""
    jobs: JobTable | None = None
    """The table's jobs: a file taken over from a running job counts as filled by that job."""

    def __call__(
        self,
        reader: FragmentReader,
        target: FilledColumns,
        selected: Sequence[SelectedFragment],
        target_of: Callable[[FragmentReader], FilledColumns],
        counts: RunCounts,
    ) -> None:
        """Compute the selected rows, and count them in ``counts`` as they are committed.

        Fragments that others changed meanwhile are planned again, if ``target_of`` still returns the same columns.
        Fragments that another job has filled keep that job's values, with a warning. Raises the function's error.
        """
        where = self.where
        counts.total, counts.rows = len(selected), sum(choice.rows for choice in selected)
        is_declared = bool(selected) and declare(self.table, target, selected)
        for _ in range(_MOST_ROUNDS):
            lost = self._round(reader, target, selected, counts)
            is_all = is_declared and where is None and self.window == WHOLE
            if not lost and not is_all:
                break
            before, reader = reader, self.table.at()
            self._check_columns(target, target_of(reader))
            selected = self._left(before, reader, target, lost, counts, is_all=is_all)
            if not selected:
                break
        else:
            if lost:
                raise WriteError(
                    f"other writers keep changing the rows of {target.name!r}: {len(lost)} fragments are not done",
                    path=self.table.place,
                    hint="Run it again; computed values are kept.",
                    transient=True,
                )
        if where is None and self.window == WHOLE:
            store_single_token(self.table, target)
        if counts.taken:
            warnings.warn(
                f"another job meanwhile filled {target.name!r} in {len(counts.taken)} fragments, whose values are "
                f"kept: {', '.join(map(str, sorted(counts.taken)[:_SHOWN]))}{', …' * (len(counts.taken) > _SHOWN)}",
                UserWarning,
                stacklevel=2,
            )

    def _left(
        self,
        before: FragmentReader,
        reader: FragmentReader,
        target: FilledColumns,
        lost: set[int],
        counts: RunCounts,
        *,
        is_all: bool,
    ) -> tuple[SelectedFragment, ...]:
        """Return the fragments to compute again in a newer version.

        These are the lost fragments, the successors of removed ones, and, if ``is_all``, fragments with values of
        another function that were moved meanwhile. Rows that were added meanwhile stay null.
        """
        then, now = before.by_id, reader.by_id
        columns, inputs = target.columns, target.inputs
        counts.taken |= {
            id_
            for id_ in lost & now.keys()
            if now[id_].rows == then[id_].rows
            and now[id_].files_of(columns) != then[id_].files_of(columns)
            and now[id_].files_of(inputs) == then[id_].files_of(inputs)
        }
        is_gone = bool(lost - now.keys())
        return tuple(
            choice
            for choice in selection_of(reader, target, self.where, recompute_stale=self.recompute_stale).fragments
            for id_ in [choice.fragment.id]
            if id_ not in counts.taken
            and (
                (id_ in lost if id_ in then else is_gone)
                or (is_all and target.state_of(choice.fragment) == OTHER_FUNCTION)
            )
        )

    def _round(
        self,
        reader: FragmentReader,
        target: FilledColumns,
        selected: Sequence[SelectedFragment],
        counts: RunCounts,
    ) -> set[int]:
        """Compute and commit fragments. Return those that others changed before the commit."""
        lost: set[int] = set()
        many = self.granularity
        if many == 0:
            many = max(_FRAGMENTS_OF_A_COMMIT, -(-len(selected) // _SHARE_OF_A_COMMIT))
        size = many or max(len(selected), 1)
        work = FragmentWork(
            self.table, self.job, self.batching, self.run, self.workers, self.task_rows, reader, target, counts
        )
        for group in (selected[at : at + size] for at in range(0, len(selected), size)):
            files = work.files_of(group)
            skipped = sum((Counter(file.skipped) for file in files.values()), counts.skipped)
            try:
                target.check_skipped(skipped, counts.rows)
            except SkipThresholdExceededError:
                counts.errors += [file.errors for file in files.values()]  # the rows that exceed the threshold
                raise
            self.check(files)
            committed = self._committed(reader, target, files)
            for fragment in committed:
                counts.processed += files[fragment].computed - sum(files[fragment].skipped.values())
                counts.skipped.update(files[fragment].skipped)
                counts.errors += [files[fragment].errors] if files[fragment].errors else []
            counts.fragments += len(committed)
            counts.commits += bool(committed)
            lost |= files.keys() - committed
            for choice in group:
                work.store.of(choice.key).remove()
        return lost

    def _committed(self, reader: FragmentReader, target: FilledColumns, files: Mapping[int, WrittenFile]) -> set[int]:
        """Commit files, except those of fragments that others changed; return the fragments with committed files."""
        if not files:
            return set()
        before = reader.by_id
        for fragment, file in files.items():
            rows = self.table.length_of(file.name)
            if rows != before[fragment].rows:
                raise WriteError(
                    f"a file of fragment {fragment} has {rows:,} rows, not {before[fragment].rows:,}",
                    path=self.table.file_address(file.name),
                    hint="Nothing was committed; run the backfill again.",
                )
        columns = (*target.columns, *target.inputs)

        def attempt() -> set[int] | None:
            newest = self.table.at()
            if newest.field_ids(columns) != reader.field_ids(columns):
                raise WriteError(
                    f"{target.name!r} or its inputs were replaced while they were computed",
                    path=self.table.place,
                    hint="None of these values were committed; run the backfill again.",
                )
            now = newest.by_id
            had = self._own(files, _having(newest, target, files))
            same = {
                id_
                for id_ in files.keys() & now.keys() - had
                if now[id_].rows == before[id_].rows and now[id_].files_of(columns) == before[id_].files_of(columns)
            }
            if not same:
                return had
            try:
                made = self.table.replace({id_: files[id_].name for id_ in same}, newest.version, f"job {self.job}")
            except WriteError:
                if same <= _having(self.table.at(), target, files):
                    return had | self._own(files, same)  # it was committed despite the error
                raise
            return None if made is None else had | self._own(files, same)

        reach("column.commit")
        hint = "Run it again; computed values are kept."
        return publish(attempt, f"the table of {target.name!r}", path=self.table.place, hint=hint)

    def _check_columns(self, before: FilledColumns, now: FilledColumns) -> None:
        """Raise ``UsageError`` if a column has changed since the job began."""
        if before.columns != now.columns or before.inputs != now.inputs:
            raise UsageError(f"{before.name!r} was changed while it was computed", path=self.table.place)

    def _own(self, files: Mapping[int, WrittenFile], fragments: set[int]) -> set[int]:
        """Return the fragments to count in this job. Another running or finished job counts its own files."""
        writers = {id_: job_of(files[id_].name) for id_ in fragments}
        if self.jobs is None or set(writers.values()) <= {job_digits(self.job)}:
            return fragments
        records = [record for record in self.jobs.all() if record.job_id != self.job]
        others = {job_digits(record.job_id) for record in records if record.status in (RUNNING, DONE)}
        return {id_ for id_, writer in writers.items() if writer not in others}


def _having(reader: FragmentReader, target: FilledColumns, files: Mapping[int, WrittenFile]) -> set[int]:
    """The fragments of a version that have these files."""
    return {
        id_
        for id_, file in files.items()
        if id_ in reader.by_id and set(reader.by_id[id_].files_of(target.columns)) == {file.name}
    }
