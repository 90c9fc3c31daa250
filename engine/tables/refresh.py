"""The run of a refresh: compute the missing rows of a view, and commit them with the removals.

One commit removes rows, adds rows, and records the view's source version. So an interrupted refresh has changed nothing
that a reader sees, and the next one continues with the computed values. If two run at once, the second one's commit
conflicts with the first one's, and it plans again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import NotFoundError, PinnedViewError, ReadError, UnsupportedCallError, UsageError, WriteError
from ..execution import (
    Body,
    Lease,
    Packed,
    RunOptions,
    Stage,
    Task,
    TaskRun,
    dealt,
    progress_shown,
    raise_failure,
    warn_of,
)
from ..faults import reach
from ..lance import IS_SET, SOURCE_ROW, Fragment, FragmentReader, LanceTable, by_fragment, change_rows
from ..locations import located
from ..storage import publish
from .checkpoints import COMPUTED, CheckpointStore, Computed, Offsets
from .computed_columns import PreparedJob, TableParts
from .computing import FLUSH_SECONDS, READ_BYTES, READ_ROWS, Batching
from .digests import inputs_token, token_of
from .fill import FragmentWork, staging_in
from .fill_task import BackfillBody, skipped_by
from .jobs import DONE, JobTable, RunCounts, announced, kept, rows_shown
from .planning import Piece, TaskNeeds, admit, checked_job_id, checked_task_size, task_rows_of, warn_ignored
from .targets import FunctionColumns, resolve
from .view import ViewChange, ViewDefinition, change_of, identity_of, tokens_of


def key_of(target: FunctionColumns, fragment: Fragment) -> str:
    """Return the checkpoint key of a view's column in a fragment, by the origin of the values."""
    files = inputs_token(fragment.files_of(target.inputs))
    return f"{fragment.id:08x}-{files}-{token_of(target.name, target.token, str(target.fields[0].type))}"


@dataclass(frozen=True)
class ViewBody(Body):
    """The stage that writes a view's rows, at most ``most`` per fragment. ``source`` is read at ``version``."""

    view: LanceTable
    schema: pa.Schema
    definition: ViewDefinition
    source: LanceTable
    version: int
    functions: tuple[FunctionColumns, ...]
    tasks: Packed[tuple[Piece, ...]]
    most: int | None
    job: str

    def label(self, index: int) -> str:
        """The fragments of the source whose rows a task writes."""
        first, *more = self.tasks[index]
        return f"rows of fragment {first.fragment.id}{f', and {len(more)} more' if more else ''}"

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Write the rows of a task's pieces, and report their fragments."""
        count = 0

        def rows() -> Iterator[pa.RecordBatch]:
            nonlocal count
            for piece in self.tasks[task.index]:
                for batch in self._rows(piece, failures_by_name):
                    count += batch.num_rows
                    yield batch

        failures_by_name: dict[str, dict[int, list[dict[str, Any]]]] = {target.name: {} for target in self.functions}
        written = self.view.written(pa.RecordBatchReader.from_batches(self.schema, rows()), "append", self.most)
        reach("view.write")
        failures = {
            name: [failure for failed in own.values() for failure in failed] for name, own in failures_by_name.items()
        }
        errors = [
            self._errors(target).keep_errors(fragment, failed)
            for target in self.functions
            for fragment, failed in failures_by_name[target.name].items()
        ]
        skipped = {name: skipped_by(failed) for name, failed in failures.items()}
        task.rows.note("written", {"fragments": written, "rows": count, "skipped": skipped, "errors": errors})
        yield from ()
        return {"chunks": 0, "rows": count, "bytes": 0}

    def _errors(self, target: FunctionColumns) -> BackfillBody:
        return BackfillBody(self.source, self.version, target, Batching(), Packed(()), self.job, home=self.view.place)

    def _rows(
        self, piece: Piece, failures_by_name: dict[str, dict[int, list[dict[str, Any]]]]
    ) -> Iterator[pa.RecordBatch]:
        store = CheckpointStore(self.view.place)
        values = {
            target.name: _KeptValues(
                store.of(key_of(target, piece.fragment), target.schema).in_order(piece.span), self.view.place
            )
            for target in self.functions
        }
        expressions = {SOURCE_ROW: "_rowid", **self.definition.expressions}
        for batch in self.source.pinned(self.version).selected(
            piece.fragment, expressions, piece.where, piece.span, rows=READ_ROWS, size=READ_BYTES
        ):
            offsets = batch.column(0).to_numpy()
            part = batch
            if piece.only is not None:
                mask = np.isin(offsets, piece.only, assume_unique=True)
                part, offsets = batch.filter(pa.array(mask)), offsets[mask]
            if not part.num_rows:
                continue
            columns = dict(zip(part.schema.names[1:], part.columns[1:], strict=True))
            columns[SOURCE_ROW] = columns[SOURCE_ROW].cast(pa.int64())
            columns[IS_SET] = pa.repeat(pa.scalar(value=True), len(offsets))
            for name, column in values.items():
                columns[name], failures = column.take(offsets)
                if failures:
                    failures_by_name[name].setdefault(piece.fragment.id, []).extend(failures)
            yield pa.RecordBatch.from_arrays(
                [_as(columns.get(field.name), field, len(offsets)) for field in self.schema], schema=self.schema
            )


class _KeptValues:
    """The values of a column from a fragment's checkpoints, returned in row order."""

    def __init__(self, pieces: Iterator[Computed], place: str) -> None:
        self._pieces = pieces
        self._place = place
        self._held: list[Computed] = []

    def take(self, offsets: Offsets) -> tuple[pa.Array, list[dict[str, Any]]]:
        """Return the values of rows, and their failures. Each call's rows are after those of the last call."""
        last = int(offsets[-1])
        while not self._held or int(self._held[-1].offsets[-1]) < last:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._held.append(piece)
        if not self._held:
            raise self._lost()
        all_ = Computed.joined(self._held)
        at: npt.NDArray[np.int64] = np.minimum(np.searchsorted(all_.offsets, offsets), len(all_) - 1)
        if (all_.offsets[at] != offsets).any():
            raise self._lost()
        values = all_.values.column(0)
        is_run = len(at) == int(at[-1]) - int(at[0]) + 1
        taken = values.slice(int(at[0]), len(at)) if is_run else values.take(pa.array(at))
        self._held = [all_] if int(all_.offsets[-1]) > last else []
        wanted = set(offsets.tolist()) if all_.failures else set()
        return taken, [failure for failure in all_.failures if (failure["row_address"] & 0xFFFFFFFF) in wanted]

    def _lost(self) -> WriteError:
        return WriteError(
            "checkpoints of the view disappeared while they were joined",
            path=self._place,
            hint="Nothing was committed; refresh it again.",
            transient=True,
        )


def _as(column: pa.Array | None, field: pa.Field, rows: int) -> pa.Array:
    """Return a column in the view's type, or nulls if it is missing."""
    if column is None:
        return pa.nulls(rows, field.type)
    return column if column.type == field.type else column.cast(field.type)


_MOST_ROUNDS: Final = 20


@dataclass(frozen=True)
class ViewVersions:
    """A version of a view, its definition and its source; the source's versions before and after the refresh."""

    source: LanceTable
    reader: FragmentReader
    definition: ViewDefinition
    functions: tuple[FunctionColumns, ...]
    before: FragmentReader | None
    after: FragmentReader

    @property
    def oldest(self) -> int:
        """The oldest version of the source that a refresh reads."""
        return min(reader.version for reader in (self.before, self.after) if reader is not None)

    @property
    def is_current(self) -> bool:
        """Return whether the view already has the wanted version of its source."""
        return self.before is not None and self.before.version == self.after.version


@dataclass(frozen=True)
class RefreshRun:
    """A run of a refresh with its options. ``versions_of`` returns the view's present state."""

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
        """Update the view to the version of its source, and count committed rows.

        Return the change, or None if the view was current. Raises a function's error.
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
            asked = (versions.definition, change.state, [(entry.fragment.id, entry.rows) for entry in change.coming])
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

        hint = "Refresh it again; computed values are kept."
        published: ViewChange | Literal[False] = publish(
            attempt, repr(self.view.label), path=self.view.place, hint=hint, most=_MOST_ROUNDS
        )
        return published or None

    def _written(self, versions: ViewVersions, change: ViewChange, counts: RunCounts) -> list[str]:
        """Compute and write the new rows by tasks, and return their fragments."""
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
        reports = self._assembled(versions, change, replace(run, progress=None) if versions.functions else run)
        counts.errors += [name for report in reports for name in report["errors"]]
        for target in versions.functions:
            skipped = sum((Counter(report["skipped"][target.name]) for report in reports), Counter[str]())
            target.check_skipped(skipped, change.rows)
            counts.skipped += skipped
        rows = sum(report["rows"] for report in reports)
        if rows != change.rows:
            raise WriteError(
                f"the condition was true in {change.rows:,} rows, but in {rows:,} when evaluated again",
                path=self.view.place,
                hint="Nothing was committed. A view's condition must be deterministic, unlike random().",
            )
        return [fragment for report in reports for fragment in report["fragments"]]

    def batching_of(self, target: FunctionColumns) -> Batching:
        """Return the limits of a function's batches: the requested ones, or its own."""
        udf, asked = target.udf, self.batching
        least = asked.least if asked.least > 1 else udf.min_checkpoint_size
        first, most = asked.first or udf.checkpoint_size, asked.most or udf.max_checkpoint_size
        return replace(asked, first=first, least=least, most=most)

    def _pieces(self, versions: ViewVersions, change: ViewChange, target: FunctionColumns | None) -> list[Piece]:
        """Return the pieces of the new rows, with large fragments cut for several tasks."""
        task_rows = self._task_rows(change)
        pieces: list[Piece] = []
        for entry in change.coming:
            key = "" if target is None else key_of(target, entry.fragment)
            first, end = (
                (0, entry.fragment.rows) if entry.only is None else (int(entry.only[0]), int(entry.only[-1]) + 1)
            )
            count = max(1, -(-entry.rows // task_rows))
            bounds = [first + (end - first) * number // count for number in range(count + 1)]
            pieces += [
                Piece(entry.fragment, versions.definition.condition, key, span, is_whole=False, only=entry.only)
                for span in pairwise(bounds)
            ]
        return pieces

    def _task_rows(self, change: ViewChange) -> int:
        return task_rows_of(self.task_rows, change.rows, self.workers)

    def _assembled(self, versions: ViewVersions, change: ViewChange, run: RunOptions) -> list[dict[str, Any]]:
        """Write the rows by tasks, and return their reports."""
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
        """Remove checkpoints of committed rows."""
        store = CheckpointStore(self.view.place)
        for target in versions.functions:
            for entry in change.coming:
                store.of(key_of(target, entry.fragment)).remove()


def versions_of(
    definition: ViewDefinition,
    reader: FragmentReader,
    functions: Sequence[FunctionColumns],
    source: LanceTable,
    after: FragmentReader,
) -> ViewVersions:
    """Return the view's present state, and the wanted version of its source.

    All rows are recomputed if the view's source version is unreadable or of another table, if a function has changed,
    or if others changed the view's number of rows.
    """
    state = definition.state
    before = None
    rows = sum(fragment.rows - fragment.deleted for fragment in reader.fragments)
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


_KNOWN: Final = frozenset(
    {
        "batch_checkpoint_flush_interval_seconds",
        "checkpoint_size",
        "executor",
        "job_id",
        "max_checkpoint_size",
        "min_checkpoint_size",
        "progress",
        "task_shuffle_diversity",
        "task_size",
    }
)
_LEASE: Final = "refresh"


@dataclass(frozen=True)
class RefreshPlan:
    """The work that ``refresh`` would do.

    Parameters
    ----------
    table_name, version
        The view, and its version in this plan.
    has_work
        Whether any row would be computed or removed.
    total_tasks, total_rows_pending
        The numbers of tasks, and of rows that would be computed.
    skipped_fragments, skipped_rows
        The fragments and the rows of the source that need no computation.
    total_fragments, total_rows
        All fragments and rows of the source, in the version of the refresh.
    job_type
        ``refresh``.
    new_source_fragments
        Fragments of the source with rows that would be computed.
    stale_rows
        Rows of the view that would be removed, because their source rows changed, are gone, or no longer match.
    invalidated_fragments
        The fragments of the view with such rows.
    """

    table_name: str
    version: int
    has_work: bool
    total_tasks: int
    total_rows_pending: int
    skipped_fragments: int
    skipped_rows: int
    total_fragments: int
    total_rows: int
    job_type: str = "refresh"
    new_source_fragments: int = 0
    stale_rows: int = 0
    invalidated_fragments: int = 0


@dataclass(frozen=True)
class RefreshJobResult:
    """Result of a refresh: its counts and times. ``cluster_…`` and ``manifest_…`` are always None.

    ``rows_refreshed`` is the number of computed rows, ``new_source_fragments`` the number of source fragments with such
    rows.
    """

    job_id: str
    status: str
    table_name: str
    launched_at: datetime | None = None
    completed_at: datetime | None = None
    cluster_name: str | None = None
    cluster_source: str | None = None
    manifest_id: str | None = None
    manifest_source: str | None = None
    new_source_fragments: int = 0
    rows_refreshed: int = 0


def refresh_plan(parts: TableParts, /, *, src_version: int | None = None) -> RefreshPlan:
    """The plan of ``Table.plan_refresh``."""
    versions = _versions(parts, src_version)
    fragments = versions.after.fragments
    total = sum(fragment.rows - fragment.deleted for fragment in fragments)
    change = None
    if not versions.is_current:
        change = change_of(versions.reader, versions.definition, versions.functions, versions.before, versions.after)
    coming, rows = (0, 0) if change is None else (len(change.coming), change.rows)
    going = {} if change is None else by_fragment(change.going)
    stale = sum(map(len, going.values()))
    task_rows = max(task_rows_of(None, rows, os.cpu_count() or 1), 1)
    return RefreshPlan(
        table_name=parts.name,
        version=versions.reader.version,
        has_work=rows + stale > 0,
        total_tasks=-(-rows // task_rows),
        total_rows_pending=rows,
        skipped_fragments=len(fragments) - coming,
        skipped_rows=total - rows,
        total_fragments=len(fragments),
        total_rows=total,
        new_source_fragments=coming,
        stale_rows=stale,
        invalidated_fragments=len(going),
    )


def refresh_job(
    parts: TableParts,
    /,
    *,
    where: str | None = None,
    src_version: int | None = None,
    max_rows_per_fragment: int | None = None,
    concurrency: int = 8,
    intra_applier_concurrency: int = 1,
    _admission_check: bool | None = None,
    _admission_strict: bool | None = None,
    **kwargs: Any,
) -> PreparedJob[RefreshJobResult]:
    """The job of ``Table.refresh`` and ``Table.refresh_async``, its arguments checked."""
    if where is not None:
        raise UnsupportedCallError("where clauses on materialized view refresh not implemented yet.")
    if kwargs.get("output_limit") is not None:
        definition = ViewDefinition.of(parts.lance.at().schema)
        kind = 2 if definition is None or definition.is_stable else 1
        raise UsageError(
            f"output_limit is only valid for chunker-backed materialized views; this view's kind is '{kind}'."
        )
    _check_options(concurrency, max_rows_per_fragment, intra_applier_concurrency, kwargs)
    versions = _versions(parts, src_version)
    parts.lance.checked(versions.reader.version)
    versions.source.checked(versions.after.version)
    wanted = src_version if versions.definition.is_stable else versions.after.version
    run = parts.run_options(kwargs.get("executor"))
    for target in versions.functions:
        admit(target.udf.name, TaskNeeds.of(target.udf), run, check=_admission_check, strict=_admission_strict)
    job = checked_job_id(kwargs.get("job_id"))
    flush = kwargs.get("batch_checkpoint_flush_interval_seconds")
    refreshing = RefreshRun(
        parts.lance,
        versions.source,
        job,
        Batching(
            kwargs.get("checkpoint_size"),
            kwargs.get("min_checkpoint_size") or 1,
            kwargs.get("max_checkpoint_size"),
            flush_seconds=FLUSH_SECONDS if flush is None else flush,
        ),
        run,
        parts.workers(concurrency, run),
        checked_task_size(kwargs.get("task_size")),
        max_rows_per_fragment,
        lambda: _versions(parts, wanted),  # if another refresh updated the view meanwhile, it does not go back
    )
    config = {"src_version": versions.after.version, "executor": run.executor}

    def running() -> RefreshJobResult:
        launched = datetime.now(UTC)
        with (
            progress_shown(kwargs.get("progress"), parts.name, of_rows=True) as listener,
            kept(parts.jobs, job, "REFRESH", parts.name, config) as counts,
            announced(JobTable(versions.source.place, parts.name), job, parts.name, config, versions.oldest),
            Lease.take(located(parts.lance.place) / COMPUTED, f"refresh of {parts.name}", name=_LEASE, queue=True),
            versions.source.needing(versions.oldest),
        ):
            change = replace(refreshing, run=replace(run, progress=listener))(counts)
        fragments, rows = (0, 0) if change is None else (len(change.coming), change.rows)
        ended = datetime.now(UTC)
        return RefreshJobResult(
            job, DONE, parts.name, launched, ended, new_source_fragments=fragments, rows_refreshed=rows
        )

    return PreparedJob(job, [], running)


def _versions(parts: TableParts, src_version: int | None) -> ViewVersions:
    """Return the view's present state, and the requested version of its source."""
    reader = parts.lance.at()
    definition = ViewDefinition.of(reader.schema)
    if definition is None:
        raise UsageError("Destination dataset must have view metadata.", hint=f"{parts.name!r} is not a view.")
    source = definition.source_table(parts.lance)
    if not source.versions():
        raise NotFoundError(
            f"the source table of the view {parts.name!r} is gone",
            path=source.place,
            hint="Restore the source to refresh the view; the view's rows stay.",
        )
    after = source.at(src_version)
    if not definition.is_stable and after.version != definition.version:
        raise PinnedViewError(
            f"Cannot refresh this materialized view to source version {after.version}: it is pinned to source "
            f"version {definition.version}.\n\nUse refresh(src_version={definition.version}). Note that the view "
            f"will not pick up rows written to the source after version {definition.version}.",
            hint="Without stable row ids, rows cannot be identified after a compaction.",
        )
    functions = [
        _target(name, reader.schema.field(name), resolve(function, parts.modules), function.inputs_of(after.schema))
        for name, function in definition.functions(reader.schema).items()
    ]
    return versions_of(definition, reader, functions, source, after)


def _target(name: str, field: Any, udf: Any, inputs: Collection[str]) -> FunctionColumns:
    return FunctionColumns(name, (field.remove_metadata(),), tuple(inputs), udf)


def _check_options(
    concurrency: int, max_rows: int | None, intra_applier_concurrency: int, more: Mapping[str, Any]
) -> None:
    """Raise for invalid options, and warn of ignored ones."""
    if unknown := more.keys() - _KNOWN - {"output_limit"}:
        raise TypeError(f"refresh() got an unexpected keyword argument {min(unknown)!r}")
    for name, value in (("concurrency", concurrency), ("max_rows_per_fragment", max_rows)):
        if value is not None and value < 1:
            raise UsageError(f"{name} must be at least 1, got {value}")
    if intra_applier_concurrency != 1:
        warn_ignored("intra_applier_concurrency")
    if more.get("task_shuffle_diversity") is not None:
        warn_ignored("task_shuffle_diversity")
