"""The run of a backfill: stages of tasks, and a commit for what each of them has written."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from ..errors import UsageError, WriteError
from ..execution import Packed, RunOptions, Stage, Staging, Task, failure_from_dict, raise_failure, warn_of
from ..faults import reach
from ..folders import Folder
from ..lance import ComputedTable, FragmentReader
from ..locations import located
from .backfill_task import BackfillBody
from .batching import Batching
from .checkpoints import COMPUTED, CheckpointStore, WrittenFile
from .counts import RunCounts
from .planning import (
    WHOLE,
    Piece,
    RowSelection,
    SelectedFragment,
    Window,
    pieces_of,
    selection_of,
    task_rows_of,
    tasks_of,
)
from .targets import FilledColumns

F = TypeVar("F", bound=FilledColumns)

_QUICKLY_JOINED: Final = 64 << 20
_MOST_ROUNDS: Final = 20
_MOST_COMMITS: Final = 100
_LONGEST_WAIT: Final = 0.2
_FRAGMENTS_OF_A_COMMIT: Final = 64
_SHARE_OF_A_COMMIT: Final = 20


@dataclass(frozen=True)
class BackfillRun:
    """A run of a backfill, as it is asked for. ``workers`` is how many tasks there may be at once."""

    table: ComputedTable
    job: str
    batching: Batching
    run: RunOptions
    workers: int
    task_rows: int | None = None
    granularity: int | None = 0
    """Fragments of a commit; None: all in one, 0: 64, or one in twenty where there are more."""
    read_version: int | None = None
    window: Window = WHOLE
    check: Callable[[Mapping[int, WrittenFile]], None] = lambda _: None
    """What raises where files must not be committed."""

    def __call__(self, target_of: Callable[[FragmentReader], F], where: str | None, counts: RunCounts) -> F:
        """Compute what there is to be computed, and count it in ``counts`` as it is committed.

        Fragments that others changed meanwhile are planned again. Raises whatever the function raised.
        """
        reader = self.table.at(self.read_version)
        target = target_of(reader)
        selection = selection_of(reader, target, where, self.window)
        counts.total, counts.rows = len(selection.fragments), sum(one.rows for one in selection.fragments)
        done: dict[int, str] = {}
        for _ in range(_MOST_ROUNDS):
            lost = self._round(reader, target, selection.fragments, counts, done)
            if not lost:
                return target
            reader = self.table.at()
            self._check_columns(target, target_of(reader))
            selection = selection_of(reader, target, where, self.window)
            remaining = tuple(
                one
                for one in selection.fragments
                if one.fragment.files_of(target.columns)[0] != done.get(one.fragment.id)
            )
            selection = RowSelection(selection.where, remaining)
        raise WriteError(
            f"others change the rows of {target.name!r} all the time: {len(lost)} fragments are not done",
            path=self.table.place,
            hint="Run it again; what was computed is kept.",
            transient=True,
        )

    def _round(
        self,
        reader: FragmentReader,
        target: FilledColumns,
        selected: Sequence[SelectedFragment],
        counts: RunCounts,
        done: dict[int, str],
    ) -> set[int]:
        """Compute fragments and commit them; gives those that others had changed by then."""
        lost: set[int] = set()
        many = self.granularity
        if many == 0:
            many = max(_FRAGMENTS_OF_A_COMMIT, -(-len(selected) // _SHARE_OF_A_COMMIT))
        size = many or max(len(selected), 1)
        for group in (selected[at : at + size] for at in range(0, len(selected), size)):
            files = self._computed(reader, target, group, counts)
            kept = self._committed(reader, target, files)
            for fragment in kept:
                counts.processed += files[fragment].computed - sum(files[fragment].skipped.values())
                counts.skipped.update(files[fragment].skipped)
                counts.errors += [files[fragment].errors] if files[fragment].errors else []
                done[fragment] = files[fragment].name
            counts.fragments += len(kept)
            counts.commits += bool(kept)
            lost |= files.keys() - kept
            store = CheckpointStore(self.table.place)
            for one in group:
                store.of(one.key).remove()
        return lost

    def _computed(
        self, reader: FragmentReader, target: FilledColumns, group: Iterable[SelectedFragment], counts: RunCounts
    ) -> dict[int, WrittenFile]:
        """The files of fragments, which tasks write, or that were written by a run that was cut."""
        store = CheckpointStore(self.table.place)
        files: dict[int, WrittenFile] = {}
        todo: list[SelectedFragment] = []
        for one in group:
            file = store.of(one.key).file()
            if file is not None and self._is_there(file, one):
                files[one.fragment.id] = file
            else:
                todo.append(one)
        if todo:
            rows = sum(one.fragment.rows for one in todo)
            task_rows = task_rows_of(self.task_rows, rows, self.workers)
            pieces = list(pieces_of(todo, task_rows))
            home = located(self.table.place) / COMPUTED
            Folder.at(home).make()
            with Staging.beside(home / "run") as staging:
                done = self._stage(staging, reader, target, tasks_of(pieces, task_rows), counts, self.run)
                files |= written_files(done)
                cut = {piece.fragment.id: piece for piece in pieces if not piece.is_whole}
                if cut:
                    whole = [
                        (Piece(one.fragment, one.where, one.key, (0, one.fragment.rows), is_whole=True),)
                        for one in cut.values()
                    ]
                    # Another stage of Spark takes 0.2 s; putting 64 MiB together, less than that.
                    small = sum(note.get("bytes", 0) for note in done) <= _QUICKLY_JOINED
                    run = replace(self.run, executor="inline") if small else self.run
                    files |= written_files(self._stage(staging, reader, target, whole, counts, run))
        target.check_skipped(sum((Counter(file.skipped) for file in files.values()), counts.skipped), counts.rows)
        self.check(files)
        return files

    def _is_there(self, file: WrittenFile, one: SelectedFragment) -> bool:
        """Whether a file that was written before is whole."""
        try:
            return self.table.length_of(file.name) == one.fragment.rows == file.rows
        except (OSError, RuntimeError):
            return False

    def _stage(
        self,
        staging: Staging,
        reader: FragmentReader,
        target: FilledColumns,
        tasks: Sequence[tuple[Piece, ...]],
        counts: RunCounts,
        run: RunOptions,
    ) -> list[dict[str, Any]]:
        """Run a stage, and give what its tasks told of each piece. Raises what failed in the first that did."""
        body = BackfillBody(self.table, reader.version, target, self.batching, Packed(tasks), self.job)
        numbered = [
            Task(number, body.label(number), sum(piece.span[1] - piece.span[0] for piece in pieces))
            for number, pieces in enumerate(tasks)
        ]
        with staging.inner() as own:
            ran = Stage(body, numbered, own, destination=self.table.place).run(run)
        warn_of(ran.notes, set())
        wrong = [note for note in ran.notes if note.kind == "failed"]
        counts.errors += [note.data["errors"] for note in wrong]
        if wrong:
            raise failure_from_dict(min(wrong, key=lambda note: note.task).data["failure"])
        raise_failure(ran.notes)
        ran.outcomes()  # each has told how it ended
        return [note.data for note in ran.notes if note.kind == "piece"]

    def _committed(self, reader: FragmentReader, target: FilledColumns, files: Mapping[int, WrittenFile]) -> set[int]:
        """Bring files into the newest version, but those of fragments that others changed; gives which it has then."""
        if not files:
            return set()
        before = {fragment.id: fragment for fragment in reader.fragments}
        for fragment, file in files.items():
            rows = self.table.length_of(file.name)
            if rows != before[fragment].rows:
                raise WriteError(
                    f"a file of fragment {fragment} has {rows:,} rows, not {before[fragment].rows:,}",
                    path=self.table.file_address(file.name),
                    hint="Nothing of it was committed; run the backfill again.",
                )
        columns = (*target.columns, *target.inputs)
        reach("column.commit")
        for number in range(_MOST_COMMITS):
            newest = self.table.at()
            if newest.field_ids(columns) != reader.field_ids(columns):
                raise WriteError(
                    f"{target.name!r} or its inputs were replaced while they were computed",
                    path=self.table.place,
                    hint="Nothing of that was committed. Run the backfill again.",
                )
            there = {fragment.id: fragment for fragment in newest.fragments}
            had = {id_ for id_, file in files.items() if id_ in there and _has(there[id_], target, file)}
            same = {
                id_
                for id_ in files.keys() & there.keys() - had
                if there[id_].rows == before[id_].rows and there[id_].files_of(columns) == before[id_].files_of(columns)
            }
            if not same:
                return had
            try:
                made = self.table.replace({id_: files[id_].name for id_ in same}, newest.version, f"job {self.job}")
            except WriteError:
                newest = self.table.at()
                there = {fragment.id: fragment for fragment in newest.fragments}
                if all(id_ in there and _has(there[id_], target, files[id_]) for id_ in same):
                    return had | same  # it was committed, though nobody could say so
                raise
            if made is not None:
                return had | same
            time.sleep(random.uniform(0, min(_LONGEST_WAIT, 0.005 * 2 ** min(number, 6))))  # noqa: S311 (it is a wait)
        raise WriteError(
            f"others write to {self.table.place} all the time, and {target.name!r} could not be committed",
            path=self.table.place,
            hint="Run it again; what was computed is kept.",
            transient=True,
        )

    def _check_columns(self, before: FilledColumns, now: FilledColumns) -> None:
        """Raise ``UsageError`` where a column is not what it was when the job began."""
        if before.columns != now.columns or before.inputs != now.inputs:
            raise UsageError(f"{before.name!r} was changed while it was computed", path=self.table.place)


def written_files(told: Iterable[Mapping[str, Any]]) -> dict[int, WrittenFile]:
    """The files of whole fragments that tasks told of."""
    return {piece["fragment"]: WrittenFile(**piece["file"]) for piece in told if "file" in piece}


def _has(fragment: Any, target: FilledColumns, file: WrittenFile) -> bool:
    return set(fragment.files_of(target.columns)) == {file.name}
