"""The run of a backfill: stages of tasks, and a commit for what each of them has written."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..errors import SkipThresholdExceededError, UsageError, WriteError
from ..execution import RunOptions
from ..faults import reach
from ..lance import FragmentReader, LanceTable
from ..storage import publish
from .batching import Batching
from .checkpoints import WrittenFile
from .counts import RunCounts
from .declared import declare, settle
from .fragment_work import FragmentWork
from .jobs import DONE, RUNNING, JobTable
from .planning import WHOLE, SelectedFragment, Window, selection_of
from .provenance import job_digits, job_of
from .targets import OTHER_FUNCTION, FilledColumns

_MOST_ROUNDS: Final = 20
_FRAGMENTS_OF_A_COMMIT: Final = 64
_SHARE_OF_A_COMMIT: Final = 20
_SHOWN: Final = 10


@dataclass(frozen=True)
class BackfillRun:
    """A run of a backfill, as it is asked for. ``workers`` is how many tasks there may be at once."""

    table: LanceTable
    job: str
    batching: Batching
    run: RunOptions
    workers: int
    task_rows: int | None = None
    granularity: int | None = 0
    """Fragments of a commit; None: all in one, 0: 64, or one in twenty where there are more."""
    where: str | None = None
    window: Window = WHOLE
    recompute_stale: bool = False
    check: Callable[[Mapping[int, WrittenFile]], None] = lambda _: None
    """What raises where files must not be committed."""
    jobs: JobTable | None = None
    """Those of the table: a file that was taken over from one that still runs counts as filled by that."""

    def __call__(
        self,
        reader: FragmentReader,
        target: FilledColumns,
        selected: Sequence[SelectedFragment],
        target_of: Callable[[FragmentReader], FilledColumns],
        counts: RunCounts,
    ) -> None:
        """Compute what was selected, and count it in ``counts`` as it is committed.

        Fragments that others changed meanwhile are planned again, with the columns that ``target_of`` gives then; those
        whose columns another job has filled are its own, which is warned of. Raises whatever the function raised.
        """
        where = self.where
        counts.total, counts.rows = len(selected), sum(one.rows for one in selected)
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
                    f"others change the rows of {target.name!r} all the time: {len(lost)} fragments are not done",
                    path=self.table.place,
                    hint="Run it again; what was computed is kept.",
                    transient=True,
                )
        if where is None and self.window == WHOLE:
            settle(self.table, target)
        if counts.taken:
            warnings.warn(
                f"{target.name!r} was filled by another job meanwhile in {len(counts.taken)} fragments, which keep its "
                f"values: {', '.join(map(str, sorted(counts.taken)[:_SHOWN]))}{', …' * (len(counts.taken) > _SHOWN)}",
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
        """The fragments that are to be done again in a newer version.

        That are the fragments that were lost, what others made of those that are gone, and, where ``is_all``, values of
        another function that were moved meanwhile. Rows that were added meanwhile stay null.
        """
        then, there = before.by_id, reader.by_id
        columns, inputs = target.columns, target.inputs
        counts.taken |= {
            id_
            for id_ in lost & there.keys()
            if there[id_].rows == then[id_].rows
            and there[id_].files_of(columns) != then[id_].files_of(columns)
            and there[id_].files_of(inputs) == then[id_].files_of(inputs)
        }
        is_gone = bool(lost - there.keys())
        return tuple(
            one
            for one in selection_of(reader, target, self.where, recompute_stale=self.recompute_stale).fragments
            for id_ in [one.fragment.id]
            if id_ not in counts.taken
            and (
                (id_ in lost if id_ in then else is_gone)
                or (is_all and target.state_of(one.fragment) == OTHER_FUNCTION)
            )
        )

    def _round(
        self,
        reader: FragmentReader,
        target: FilledColumns,
        selected: Sequence[SelectedFragment],
        counts: RunCounts,
    ) -> set[int]:
        """Compute fragments and commit them; gives those that others had changed by then."""
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
                counts.errors += [file.errors for file in files.values()]  # these rows are why
                raise
            self.check(files)
            kept = self._committed(reader, target, files)
            for fragment in kept:
                counts.processed += files[fragment].computed - sum(files[fragment].skipped.values())
                counts.skipped.update(files[fragment].skipped)
                counts.errors += [files[fragment].errors] if files[fragment].errors else []
            counts.fragments += len(kept)
            counts.commits += bool(kept)
            lost |= files.keys() - kept
            for one in group:
                work.store.of(one.key).remove()
        return lost

    def _committed(self, reader: FragmentReader, target: FilledColumns, files: Mapping[int, WrittenFile]) -> set[int]:
        """Bring files into the newest version, but those of fragments that others changed; gives which it has then."""
        if not files:
            return set()
        before = reader.by_id
        for fragment, file in files.items():
            rows = self.table.length_of(file.name)
            if rows != before[fragment].rows:
                raise WriteError(
                    f"a file of fragment {fragment} has {rows:,} rows, not {before[fragment].rows:,}",
                    path=self.table.file_address(file.name),
                    hint="Nothing of it was committed; run the backfill again.",
                )
        columns = (*target.columns, *target.inputs)

        def attempt() -> set[int] | None:
            newest = self.table.at()
            if newest.field_ids(columns) != reader.field_ids(columns):
                raise WriteError(
                    f"{target.name!r} or its inputs were replaced while they were computed",
                    path=self.table.place,
                    hint="Nothing of that was committed. Run the backfill again.",
                )
            there = newest.by_id
            had = self._own(files, _having(newest, target, files))
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
                if same <= _having(self.table.at(), target, files):
                    return had | self._own(files, same)  # it was committed, though nobody could say so
                raise
            return None if made is None else had | self._own(files, same)

        reach("column.commit")
        hint = "Run it again; what was computed is kept."
        return publish(attempt, f"the table of {target.name!r}", path=self.table.place, hint=hint)

    def _check_columns(self, before: FilledColumns, now: FilledColumns) -> None:
        """Raise ``UsageError`` where a column is not what it was when the job began."""
        if before.columns != now.columns or before.inputs != now.inputs:
            raise UsageError(f"{before.name!r} was changed while it was computed", path=self.table.place)

    def _own(self, files: Mapping[int, WrittenFile], fragments: set[int]) -> set[int]:
        """Those of some fragments whose files are not of another job that runs or is done, which counts them itself."""
        writers = {id_: job_of(files[id_].name) for id_ in fragments}
        if self.jobs is None or set(writers.values()) <= {job_digits(self.job)}:
            return fragments
        known = [one for one in self.jobs.all() if one.job_id != self.job]
        others = {job_digits(one.job_id) for one in known if one.status in (RUNNING, DONE)}
        return {id_ for id_, writer in writers.items() if writer not in others}


def _having(reader: FragmentReader, target: FilledColumns, files: Mapping[int, WrittenFile]) -> set[int]:
    """The fragments of a version that have these files."""
    return {
        id_
        for id_, file in files.items()
        if id_ in reader.by_id and set(reader.by_id[id_].files_of(target.columns)) == {file.name}
    }
