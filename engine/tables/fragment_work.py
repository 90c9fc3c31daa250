"""The work on fragments of a version: stages of tasks, what they have written, and the workers that they lose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..errors import SessionError, WriteError, writing
from ..execution import Packed, RunOptions, Stage, Staging, Task, dealt, failure_from_dict, raise_failure, warn_of
from ..folders import Folder
from ..lance import FragmentReader, LanceTable
from ..locations import located
from .backfill_task import BackfillBody
from .batching import Batching
from .checkpoints import COMPUTED, CheckpointStore, Computed, WrittenFile
from .counts import RunCounts
from .isolation import MOST_KILLERS, CalledRows, batches_at_hand, killed_by, rows_that_kill
from .planning import Piece, SelectedFragment, task_rows_of, tasks_of
from .row_progress import RowProgress
from .targets import FilledColumns

_QUICKLY_JOINED: Final = 64 << 20
_FIRST_SECONDS: Final = 5.0
"""The time after which the tasks of a first stage, one a worker, leave what they have not done to smaller ones, as rows
may not all take the same time. Another stage costs 2 % of that; with small tasks at once, brief functions cost more."""
_MOST_DEATHS: Final = 3
"""Times in a row that workers may be lost for nothing that can be found."""


@dataclass(frozen=True)
class FragmentWork:
    """Columns that are filled in fragments of a version, for a job; the others are as in ``BackfillRun``.

    ``home`` is the place of the table whose checkpoints they are; by default the one that is read.
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
        """Compute rows, and leave them as checkpoints; raises what :meth:`files_of` does."""
        deaths = _Deaths(self, pieces)
        while True:
            with self.staging() as staging:
                try:
                    self._computed(staging, pieces, is_careful=deaths.there_were)
                    return
                except SessionError as error:
                    if not error.transient:
                        raise
                    at_hand = batches_at_hand(staging)
            deaths.follow(at_hand)

    def files_of(self, group: Iterable[SelectedFragment]) -> dict[int, WrittenFile]:
        """The files of fragments, which tasks write, or that were written by a run that was cut.

        Where workers are lost, those rows are looked for that end them. Raises what the function raised, and
        ``PipelineError`` for such rows, unless they are skipped.
        """
        files: dict[int, WrittenFile] = {}
        todo = list(group)
        deaths = _Deaths(self, [Piece.whole(one) for one in todo])
        while True:
            for one in todo:
                found = (file for file in self.store.of(one.key).files() if self._is_there(file, one))
                if (file := next(found, None)) is not None:
                    files[one.fragment.id] = file
            todo = [one for one in todo if one.fragment.id not in files]
            if not todo:
                break
            with self.staging() as staging:
                try:
                    written = self._written(staging, todo, is_careful=deaths.there_were)
                except SessionError as error:
                    if not error.transient:
                        raise
                    at_hand = batches_at_hand(staging)
                else:
                    files |= written
                    break
            deaths.follow(at_hand)
        return files

    def _written(
        self, staging: Staging, todo: Sequence[SelectedFragment], *, is_careful: bool
    ) -> dict[int, WrittenFile]:
        """The files of fragments, once tasks have written them."""
        pieces = list(map(Piece.whole, todo))
        files = written_files(self._computed(staging, pieces, is_careful=is_careful))
        whole = [(piece,) for piece in pieces if piece.fragment.id not in files]
        if whole:
            # Another stage of Spark takes 0.2 s; putting 64 MiB together takes less than that.
            small = sum(self.store.of(piece.key).size() for (piece,) in whole) <= _QUICKLY_JOINED
            run = replace(self.run, progress=None)  # these rows were told of when they were computed
            if small and not is_careful:
                run = replace(run, executor="inline")
            files |= written_files(self.stage(staging, whole, is_careful=is_careful, run=run))
        for one in todo:
            if not self.target.keeps_others and files[one.fragment.id].computed < one.rows:
                raise WriteError(
                    f"checkpoints of fragment {one.fragment.id} went while they were put together",
                    path=self.table.place,
                    hint="Nothing of it was committed; run it again.",
                    transient=True,
                )
        return files

    def _computed(self, staging: Staging, pieces: Sequence[Piece], *, is_careful: bool) -> list[dict[str, Any]]:
        """Compute pieces, first in a task a worker, then in smaller ones what these leave; gives what tasks told."""
        tasks = self._tasks(pieces, many=is_careful)
        is_brief = self.task_rows is None and len(tasks) > 1 and not is_careful and not self.target.is_cheap
        told = self.stage(staging, tasks, is_careful=is_careful, seconds=_FIRST_SECONDS if is_brief else None)
        left = _left(tasks, told)
        return told + (self.stage(staging, self._tasks(left, many=True), is_careful=is_careful) if left else [])

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
        """The body of a stage of such tasks."""
        batching = replace(self.batching, flush_seconds=0) if is_careful else self.batching
        return BackfillBody(
            self.table, self.reader.version, self.target, batching, tasks, self.job, is_careful, self.home, seconds
        )

    def _is_there(self, file: WrittenFile, one: SelectedFragment) -> bool:
        """Whether a file that was written before is whole."""
        try:
            is_whole = self.table.length_of(file.name) == one.fragment.rows == file.rows
        except (OSError, RuntimeError):
            return False
        return is_whole and (self.target.keeps_others or file.computed >= one.rows)

    def stage(
        self,
        staging: Staging,
        tasks: Sequence[tuple[Piece, ...]],
        *,
        is_careful: bool,
        run: RunOptions | None = None,
        seconds: float | None = None,
    ) -> list[dict[str, Any]]:
        """Run a stage, and give what its tasks told of each piece. Raises what failed in the first that did.

        With care each batch is announced, and kept as soon as it is done. After so many ``seconds`` a task leaves the
        rest of its rows.
        """
        body = self.body(Packed(tasks), is_careful=is_careful, seconds=seconds)
        numbered = [
            Task(number, body.label(number), sum(piece.rows for piece in pieces)) for number, pieces in enumerate(tasks)
        ]
        run = self.run if run is None else run
        if is_careful:  # what was announced is looked for when the stage is over
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
            raise SessionError("workers ended in the stage, and tries at their tasks found that", transient=True)
        ran.outcomes()  # each has told how it ended
        told = [note.data for note in ran.notes if note.kind == "piece"]
        if isinstance(run.progress, RowProgress):
            all_ = (piece for pieces in tasks for piece in pieces)
            run.progress.passed(sum(piece.rows for piece in all_) - sum(piece.rows for piece in _left(tasks, told)))
        return told


@contextmanager
def staging_in(place: str) -> Iterator[Staging]:
    """A folder for the files of a stage, in that of the table at a place."""
    home = located(place) / COMPUTED
    with writing(place):
        Folder.at(home).make()
    with Staging.beside(home / "run") as staging:
        yield staging


def written_files(told: Sequence[dict[str, Any]]) -> dict[int, WrittenFile]:
    """The files of whole fragments that tasks told of."""
    return {piece["fragment"]: WrittenFile(**piece["file"]) for piece in told if "file" in piece}


def _left(tasks: Sequence[tuple[Piece, ...]], told: Sequence[dict[str, Any]]) -> list[Piece]:
    """The rows that tasks have left to others."""
    reached = {(one["fragment"], one["first"]): one["end"] for one in told}
    left = []
    for piece in (piece for pieces in tasks for piece in pieces):
        first, end = piece.span
        begin = reached.get((piece.fragment.id, first), first)
        if begin < end:
            left.append(replace(piece, span=(begin, end), is_whole=piece.is_whole and begin == first))
    return left


class _Deaths:
    """The workers that a run loses, and the rows for which they died."""

    def __init__(self, work: FragmentWork, pieces: Iterable[Piece]) -> None:
        self._work = work
        self._target = work.target
        self._counts = work.counts
        self._pieces = {piece.fragment.id: piece for piece in pieces}
        self._skipped = Counter(work.counts.skipped)
        self._killers: list[tuple[int, int]] = []
        self._for_nothing = 0
        self.there_were = False

    def follow(self, at_hand: Sequence[CalledRows]) -> None:
        """Find the rows that ended a worker, of those that functions had in a run with care, and let policies decide.

        Raises ``PipelineError`` for rows that must not be skipped, ``SessionError`` where workers are lost for others.
        """
        before = len(self._killers)
        for batch in at_hand:
            piece = self._pieces[batch.fragment]
            self._killers += [(batch.fragment, offset) for offset in rows_that_kill(self._alone, piece, batch)]
        new = self._killers[before:]
        self._for_nothing = 0 if new else self._for_nothing + self.there_were
        self.there_were = True
        if self._for_nothing >= _MOST_DEATHS:
            raise SessionError(
                f"workers end all the time, and not for rows of {self._target.name!r} that could be found",
                hint="See that they have the memory that they need. What was computed is kept.",
                transient=True,
            )
        if new:
            self._decide(new)

    def _decide(self, killers: Sequence[tuple[int, int]]) -> None:
        """Leave rows null, with a failure, or fail for them."""
        error = SessionError("the function ended the process of its worker")
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
            kept = Computed(np.array([offset], np.uint32), values, (failure.to_dict(),))
            self._work.store.of(self._pieces[fragment].key).write(kept)
            self._skipped[str(failure.policy)] += 1
        if refused:
            raise killed_by(self._target.name, refused)
        self._target.check_skipped(self._skipped, self._counts.rows)

    def _alone(self, piece: Piece) -> list[CalledRows] | None:
        """Run a piece alone; gives what the function had when its worker died, if it did."""
        with self._work.staging() as staging:
            try:
                self._work.stage(staging, [(piece,)], is_careful=True)
            except SessionError as error:
                at_hand = batches_at_hand(staging)
                if not error.transient or not at_hand:
                    raise
                return at_hand
        return None
