"""The run of a refresh: what a view lacks is computed, kept, written, and committed at once with what goes.

One commit takes rows away, brings rows in, and says of which version of the source the view is now. So a refresh that
is cut has done nothing yet that a reader sees, and the next one goes on with what was computed; and of two that run at
once, the second finds that its commit does not go on top of the first one's, and looks again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Literal

from ..errors import NotFoundError, ReadError, WriteError
from ..execution import Packed, RunOptions, Stage, Task, dealt, raise_failure, warn_of
from ..faults import reach
from ..lance import FragmentReader, LanceTable, change_rows
from ..storage import publish
from .batching import Batching
from .checkpoints import CheckpointStore
from .counts import RunCounts
from .fragment_work import FragmentWork, staging_in
from .planning import Piece, task_rows_of
from .row_progress import rows_shown
from .targets import FunctionColumns
from .view_changes import ViewChange, change_of, identity_of, tokens_of
from .view_definition import ViewDefinition
from .view_task import ViewBody, key_of

_MOST_ROUNDS: Final = 20


@dataclass(frozen=True)
class ViewVersions:
    """A version of a view and its definition; its source, the version of that which is wanted, and the view's own."""

    source: LanceTable
    reader: FragmentReader
    definition: ViewDefinition
    functions: tuple[FunctionColumns, ...]
    before: FragmentReader | None
    after: FragmentReader

    @property
    def oldest(self) -> int:
        """The oldest version of the source that a refresh reads."""
        return min(one.version for one in (self.before, self.after) if one is not None)

    @property
    def is_current(self) -> bool:
        """Whether the view is of that version."""
        return self.before is not None and self.before.version == self.after.version


@dataclass(frozen=True)
class RefreshRun:
    """A run of a refresh, as it is asked for. ``versions_of`` gives what there is of the view now."""

    view: LanceTable
    source: LanceTable
    job: str
    batching: Batching
    run: RunOptions
    workers: int
    task_rows: int | None
    most: int | None
    versions_of: Callable[[], ViewVersions]

    def __call__(self, counts: RunCounts) -> ViewChange | None:
        """Bring the view to the version of the source, and count its rows as they are committed.

        Gives what was changed; None where nothing was to be done. Raises whatever a function raised.
        """
        written: list[str] | None = None
        made_of: Any = None

        def attempt() -> ViewChange | Literal[False] | None:
            nonlocal written, made_of
            versions = self.versions_of()
            if versions.is_current:
                return False
            change = change_of(
                versions.reader,
                versions.definition,
                versions.functions,
                versions.before,
                versions.after,
            )
            asked = (versions.definition, change.state, [(one.fragment.id, one.rows) for one in change.coming])
            if written is None or made_of != asked:
                written, made_of = self._written(versions, change, counts), asked
            reach("view.commit")
            made = change_rows(
                self.view,
                versions.reader.version,
                change.going,
                change.live,
                written,
                versions.definition.state_metadata(change.state),
                f"job {self.job}",
            )
            if made is None:
                return None
            counts.processed += change.rows - sum(counts.skipped.values())
            counts.fragments, counts.commits = len(change.coming), counts.commits + 1
            self._forget(versions, change)
            return change

        hint = "Refresh it again; what was computed is kept."
        published: ViewChange | Literal[False] = publish(
            attempt, repr(self.view.label), path=self.view.place, hint=hint, most=_MOST_ROUNDS
        )
        return published or None

    def _written(self, versions: ViewVersions, change: ViewChange, counts: RunCounts) -> list[str]:
        """The fragments with the rows that come, once tasks have computed and written them."""
        counts.rows, counts.total = change.rows, len(change.coming)
        counts.skipped.clear()
        if not change.coming:
            return []
        steps = sum(piece.rows for piece in self._pieces(versions, change, None)) * max(1, len(versions.functions))
        run = rows_shown(self.run, change.rows, steps)
        for target in versions.functions:
            work = FragmentWork(
                self.source,
                self.job,
                self.batching_of(target),
                run,
                self.workers,
                self.task_rows or target.udf.task_size,
                versions.after,
                target,
                counts,
                self.view.place,
            )
            pieces = self._pieces(versions, change, target)
            work.checkpointed(pieces)
        told = self._assembled(versions, change, replace(run, progress=None) if versions.functions else run)
        counts.errors += [name for one in told for name in one["errors"]]
        for target in versions.functions:
            skipped = sum((Counter(one["skipped"][target.name]) for one in told), Counter[str]())
            target.check_skipped(skipped, change.rows)
            counts.skipped += skipped
        rows = sum(one["rows"] for one in told)
        if rows != change.rows:
            raise WriteError(
                f"the condition was true in {change.rows:,} rows, and then in {rows:,}",
                path=self.view.place,
                hint="Nothing was committed. A view's condition has to say the same each time, as random() does not.",
            )
        return [fragment for one in told for fragment in one["fragments"]]

    def batching_of(self, target: FunctionColumns) -> Batching:
        """The limits of batches of a function: those that were asked for, or its own."""
        udf, asked = target.udf, self.batching
        least = asked.least if asked.least > 1 else udf.min_checkpoint_size
        first, most = asked.first or udf.checkpoint_size, asked.most or udf.max_checkpoint_size
        return replace(asked, first=first, least=least, most=most)

    def _pieces(self, versions: ViewVersions, change: ViewChange, target: FunctionColumns | None) -> list[Piece]:
        """The rows that come, large fragments cut for several tasks."""
        task_rows = self._task_rows(change)
        pieces: list[Piece] = []
        for one in change.coming:
            key = "" if target is None else key_of(target, one.fragment)
            first, end = (0, one.fragment.rows) if one.only is None else (int(one.only[0]), int(one.only[-1]) + 1)
            count = max(1, -(-one.rows // task_rows))
            bounds = [first + (end - first) * number // count for number in range(count + 1)]
            pieces += [
                Piece(one.fragment, versions.definition.condition, key, span, is_whole=False, only=one.only)
                for span in pairwise(bounds)
            ]
        return pieces

    def _task_rows(self, change: ViewChange) -> int:
        return task_rows_of(self.task_rows, change.rows, self.workers)

    def _assembled(self, versions: ViewVersions, change: ViewChange, run: RunOptions) -> list[dict[str, Any]]:
        """The tidings of the tasks that have written the rows."""
        pieces = self._pieces(versions, change, None)
        tasks = list(dealt(pieces, lambda piece: max(piece.rows, 1), self._task_rows(change)))
        body = ViewBody(
            self.view,
            versions.reader.schema,
            versions.definition,
            self.source,
            versions.after.version,
            versions.functions,
            Packed(tasks),
            self.most,
            self.job,
        )
        numbered = [
            Task(number, body.label(number), sum(piece.rows for piece in own)) for number, own in enumerate(tasks)
        ]
        with nullcontext() if run.progress is None else staging_in(self.view.place) as staging:
            ran = Stage(body, numbered, staging, destination=self.view.place).run(run)
        warn_of(ran.notes, set())
        raise_failure(ran.notes)
        ran.outcomes()
        return [note.data for note in sorted(ran.notes, key=lambda note: note.task) if note.kind == "written"]

    def _forget(self, versions: ViewVersions, change: ViewChange) -> None:
        """Remove checkpoints of what the view has now."""
        store = CheckpointStore(self.view.place)
        for target in versions.functions:
            for one in change.coming:
                store.of(key_of(target, one.fragment)).remove()


def versions_of(
    definition: ViewDefinition,
    reader: FragmentReader,
    functions: Sequence[FunctionColumns],
    source: LanceTable,
    after: FragmentReader,
) -> ViewVersions:
    """A view as it is, and the version of its source that is wanted.

    Where the version of the source of which it is cannot be read any more, or is of another table, it is made anew; and
    where it has another number of rows than then.
    """
    state = definition.state
    before = None
    rows = sum(one.rows - one.deleted for one in reader.fragments)
    if state is not None and dict(state.functions) == tokens_of(functions) and state.rows in (None, rows):
        before = after if state.version == after.version else _opened(source, state.version)
        if before is not None and identity_of(before) != state.identity:
            before = None
    return ViewVersions(source, reader, definition, tuple(functions), before, after)


def _opened(source: LanceTable, version: int) -> FragmentReader | None:
    try:
        return source.at(version)
    except (NotFoundError, ReadError):
        return None
