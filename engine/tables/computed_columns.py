"""The jobs of a table's computed columns: backfills and loads, planned, run and told of."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from ..errors import UnsupportedCallError, UsageError, check_argument
from ..execution import RunOptions, executor_name, progress_shown
from ..lance import FragmentReader, Gate, LanceTable
from ..locations import located
from ..spark import resources_of
from .adding import target_of
from .admission import TaskNeeds, admit
from .backfill import BackfillRun
from .checkpoints import CheckpointStore
from .definitions import Definition, resolve
from .functions import UDF
from .jobs import (
    DONE,
    BackfillJobResult,
    ErrorRecord,
    Job,
    JobFuture,
    JobRecord,
    JobTable,
    UdfResult,
    kept,
)
from .options import BackfillOptions, backfill_options, checked_job_id, checked_task_size, window_of
from .planning import (
    BackfillPlan,
    Piece,
    SelectedFragment,
    selection_of,
    task_rows_of,
    tasks_of,
    warn_of_mismatch,
)
from .row_progress import rows_shown
from .staleness import stale_rows
from .targets import FunctionColumns


class ComputedColumns:
    """The columns of a Lance table that functions compute, and those that are loaded: see :class:`~.table.Table`."""

    def __init__(
        self,
        place: str,
        name: str | None = None,
        *,
        udf_modules: Collection[str] = (),
        executor: str | None = None,
        allow: Collection[str] | Gate = (),
        version: int | None = None,
    ) -> None:
        location = located(place)
        self.name = name or location.name.removesuffix(".lance")
        self.uri = str(location)
        self._gate = Gate.of(allow)
        self._lance = LanceTable(location, self.name, self._gate, version)
        self._modules = udf_modules
        self._executor = executor
        self._jobs = JobTable(self.uri, self.name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, {self.uri})"

    # --- backfills

    def plan_backfill(
        self,
        col_name: str,
        *,
        udf: UDF | None = None,
        where: str | None = None,
        read_version: int | None = None,
        num_frags: int | None = None,
        skip_frags: int = 0,
        task_size: int | None = None,
        recompute_stale: bool = False,
    ) -> BackfillPlan:
        """The plan of what :meth:`backfill` would do, found without Spark; the arguments are its own.

        Counting the rows of a selective ``where`` reads its columns, in this process.
        """
        window = window_of(num_frags, skip_frags)
        reader = self._lance.at(read_version)
        target = self._target(reader, col_name, udf)
        selection = selection_of(reader, target, where, window, recompute_stale=recompute_stale)
        store = CheckpointStore(self.uri)
        written = [one for one in selection.fragments if any(True for _ in store.of(one.key).files())]
        todo = [one for one in selection.fragments if one not in written]
        rows = task_rows_of(
            checked_task_size(task_size) or target.udf.task_size,
            sum(one.fragment.rows for one in todo),
            os.cpu_count() or 1,
        )
        fragments = reader.fragments
        return BackfillPlan(
            table_name=self.name,
            version=reader.version,
            has_work=bool(selection.fragments),
            total_tasks=sum(map(len, tasks_of(list(map(Piece.whole, todo)), rows))),
            total_rows_pending=sum(one.fragment.rows - one.fragment.deleted for one in todo),
            skipped_fragments=len(written),
            skipped_rows=sum(one.fragment.rows - one.fragment.deleted for one in written),
            total_fragments=len(fragments),
            total_rows=sum(one.rows - one.deleted for one in fragments),
            column_name=col_name,
            where=selection.where,
            udf_mismatch=selection.udf_mismatch,
            srcfiles_mismatch=selection.srcfiles_mismatch,
            stale_rows=sum(stale_rows(reader, target.columns, fragments[slice(*window)])),
        )

    def backfill(
        self,
        columns: str | list[str],
        *,
        udf: UDF | None = None,
        where: str | None = None,
        concurrency: int = 8,
        intra_applier_concurrency: int = 1,
        _admission_check: bool | None = None,
        _admission_strict: bool | None = None,
        refresh_status_secs: float = 2.0,  # noqa: ARG002 (progress is told as it comes)
        timeout: timedelta | None = None,
        min_checkpoint_size: int | None = None,
        max_checkpoint_size: int | None = None,
        batch_checkpoint_flush_interval_seconds: float | None = None,
        blob_read_strategy: Literal["auto", "legacy", "range"] = "auto",
        blob_read_buffer_size: int | None = None,
        _enable_job_tracker_saves: bool = True,
        job_id: str | None = None,
        **kwargs: Any,
    ) -> BackfillJobResult:
        """Compute a column where it has no value, and wait for it.

        Guarantee: a row's value is the function's, or it is as it was; what a commit has brought is there for good, and
        what was computed and not committed is kept as checkpoints, for the next run. Rows that are written meanwhile
        stay null.

        Parameters
        ----------
        columns
            The column, or a list of one. Of those that one function gives, any stands for all.
        udf
            A function in the place of the one that the column's definition names. Where its parameters are not called
            as columns are, it is called with the inputs of the column.
        where
            An SQL condition on the rows. By default those without a value; and all rows of a fragment whose values are
            of another version of the function, or of inputs that were computed anew since. ``"1=1"`` is all.
        concurrency
            The most tasks for which the work is cut; as many run at once as the session has cores.
        intra_applier_concurrency, task_shuffle_diversity
            Mean nothing on Spark, and are ignored with a warning.
        _admission_check, _admission_strict
            Whether what the function wants, of cores, GPUs and memory, is compared with the session before the start
            (by default, or as ``CHUNKMILL_ADMISSION_CHECK`` says), and whether too little is an error
            (``CHUNKMILL_ADMISSION_STRICT``), not a warning.
        refresh_status_secs
            Nothing: progress is drawn as it comes.
        timeout
            How long to wait.
        min_checkpoint_size, max_checkpoint_size, checkpoint_size, batch_size
            Rows that the function gets at once: the fewest, the most, and the first time; then as many as take 10 s.
            ``checkpoint_size`` without ``max_checkpoint_size`` is the most, too. ``batch_size`` is its older name; 0
            means all rows that are read at once.
        batch_checkpoint_flush_interval_seconds
            Seconds of work that a kill may cost, 5 by default; 0 keeps every batch as soon as it is done.
        blob_read_strategy
            ``auto`` and ``range`` read blobs in ranges, with the other columns; ``legacy`` does the same.
        blob_read_buffer_size
            Bytes that are read at once, of blobs and of everything else: 4 MiB by default, 32 MiB with a
            ``checkpoint_size``.
        _enable_job_tracker_saves
            Whether the job is kept in the table's folder.
        job_id
            The id of the job; by default a new one.
        commit_granularity
            Fragments of a commit: by default 64, or one in twenty where there are more; None: one commit.
        read_version
            The version that is read.
        task_size
            Rows of a task.
        num_frags, skip_frags
            How many fragments are looked at, and how many before them are not.
        recompute_stale
            Compute rows again, too, that were updated after they were computed; by default they keep their values.
        executor, progress
            As pipelines take them.

        Raises
        ------
        ValueError
            There is no such column, or it is not a function's; ``where`` is no condition.
        JobFailedError
            The function failed, and its policy does not let that pass. A ``RuntimeError``, caused by what it raised.
        TimeoutError
            It is not done in time. It goes on.
        """
        check_argument("timeout", timeout, timedelta, type(None))
        prepared = self._prepared(
            columns,
            udf=udf,
            where=where,
            concurrency=concurrency,
            intra_applier_concurrency=intra_applier_concurrency,
            _admission_check=_admission_check,
            _admission_strict=_admission_strict,
            min_checkpoint_size=min_checkpoint_size,
            max_checkpoint_size=max_checkpoint_size,
            batch_checkpoint_flush_interval_seconds=batch_checkpoint_flush_interval_seconds,
            blob_read_strategy=blob_read_strategy,
            blob_read_buffer_size=blob_read_buffer_size,
            _enable_job_tracker_saves=_enable_job_tracker_saves,
            job_id=job_id,
            more=kwargs,
        )
        if timeout is None:
            return prepared.run()  # in this thread, where Ctrl-C reaches the function
        return JobFuture(prepared.job, prepared.run).waited(timeout.total_seconds(), f"backfill({prepared.column})")

    def backfill_async(
        self,
        columns: str | list[str],
        *,
        udf: UDF | None = None,
        where: str | None = None,
        concurrency: int = 8,
        intra_applier_concurrency: int = 1,
        _admission_check: bool | None = None,
        _admission_strict: bool | None = None,
        min_checkpoint_size: int | None = None,
        max_checkpoint_size: int | None = None,
        batch_checkpoint_flush_interval_seconds: float | None = None,
        blob_read_strategy: Literal["auto", "legacy", "range"] = "auto",
        blob_read_buffer_size: int | None = None,
        _enable_job_tracker_saves: bool = True,
        job_id: str | None = None,
        _return_future: bool = False,
        **kwargs: Any,
    ) -> JobFuture[BackfillJobResult] | Job[BackfillJobResult]:
        """Compute a column in the background; takes and raises what :meth:`backfill` does, the latter by its result.

        The process does not end before the job does. ``_return_future`` gives the future alone.
        """
        prepared = self._prepared(
            columns,
            udf=udf,
            where=where,
            concurrency=concurrency,
            intra_applier_concurrency=intra_applier_concurrency,
            _admission_check=_admission_check,
            _admission_strict=_admission_strict,
            min_checkpoint_size=min_checkpoint_size,
            max_checkpoint_size=max_checkpoint_size,
            batch_checkpoint_flush_interval_seconds=batch_checkpoint_flush_interval_seconds,
            blob_read_strategy=blob_read_strategy,
            blob_read_buffer_size=blob_read_buffer_size,
            _enable_job_tracker_saves=_enable_job_tracker_saves,
            job_id=job_id,
            more=kwargs,
        )
        future = JobFuture(prepared.job, prepared.run)
        return future if _return_future else Job(self.name, [prepared.column], future)

    def jobs(self) -> list[JobRecord]:
        """The jobs that ran on the table, or run, the oldest first."""
        return self._jobs.all()

    def get_errors(
        self, job_id: str | None = None, column_name: str | None = None, error_type: str | None = None
    ) -> list[ErrorRecord]:
        """The rows and batches for which a function failed: in a job, of a column, with an exception of this name."""
        return self._jobs.errors(job_id, column_name, error_type)

    def get_failed_row_addresses(self, job_id: str, column_name: str) -> list[int]:
        """The addresses of the rows of a column that failed in a job.

        ``backfill(column, where=f"_rowaddr IN ({addresses})")`` tries them again, until the table is compacted.
        """
        found = {record.row_address for record in self.get_errors(job_id, column_name)}
        return sorted(address for address in found if address is not None)

    # --- inside

    def _prepared(
        self,
        columns: str | list[str],
        *,
        udf: UDF | None,
        where: str | None,
        concurrency: int,
        intra_applier_concurrency: int,
        _admission_check: bool | None,
        _admission_strict: bool | None,
        min_checkpoint_size: int | None,
        max_checkpoint_size: int | None,
        batch_checkpoint_flush_interval_seconds: float | None,
        blob_read_strategy: str,
        blob_read_buffer_size: int | None,
        _enable_job_tracker_saves: bool,
        job_id: str | None,
        more: dict[str, Any],
    ) -> _Prepared:
        """A backfill with the arguments of :meth:`backfill`, checked; ``more`` are its others."""
        column = _column_of(columns)
        if blob_read_strategy not in ("auto", "legacy", "range"):
            raise UsageError(f"blob_read_strategy is auto, legacy or range, not {blob_read_strategy!r}")
        job = checked_job_id(job_id)
        reader = self._lance.checked(more.get("read_version"))
        target = self._target(reader, column, udf)
        run = RunOptions(executor=executor_name(more.get("executor") or self._executor))
        options = backfill_options(
            target.udf,
            concurrency=concurrency,
            intra_applier_concurrency=intra_applier_concurrency,
            min_checkpoint_size=min_checkpoint_size,
            max_checkpoint_size=max_checkpoint_size,
            flush_seconds=batch_checkpoint_flush_interval_seconds,
            read_bytes=blob_read_buffer_size,
            run=run,
            more=more,
        )
        selection = selection_of(reader, target, where, options.window, recompute_stale=options.recompute_stale)
        warn_of_mismatch(selection, target, where)
        if selection.fragments:
            admit(target.udf.name, TaskNeeds.of(target.udf), run, check=_admission_check, strict=_admission_strict)
        config = {"where": selection.where, "udf": repr(target.udf), "executor": run.executor, **more}
        planned = _Planned(column, udf, where, reader, target, selection.fragments)

        def running() -> BackfillJobResult:
            with progress_shown(more.get("progress"), f"{self.name}.{column}", of_rows=True) as listener:
                rows = sum(one.rows for one in selection.fragments)
                steps = sum(one.fragment.rows for one in selection.fragments)
                shown = replace(options, run=rows_shown(replace(run, progress=listener), rows, steps))
                return self._run(job, planned, shown, config, is_saved=_enable_job_tracker_saves)

        return _Prepared(job, column, running)

    def _run(
        self, job: str, planned: _Planned, options: BackfillOptions, config: Mapping[str, Any], *, is_saved: bool
    ) -> BackfillJobResult:
        """Run a backfill, and keep a record of it."""
        run = BackfillRun(
            self._lance,
            job,
            options.batching,
            options.run,
            self._workers(options.concurrency, options.run),
            options.task_size,
            options.granularity,
            planned.where,
            options.window,
            options.recompute_stale,
            jobs=self._jobs,
        )
        launched, target = datetime.now(UTC), planned.target
        version = planned.reader.version
        with kept(self._jobs, job, "BACKFILL", planned.column, config, version, is_saved=is_saved) as counts:
            self._lance.check_version(version)
            run(
                planned.reader,
                target,
                planned.selected,
                lambda now: self._target(now, planned.column, planned.udf),
                counts,
            )
        result = UdfResult(
            target.udf.name, target.udf.version, counts.processed, sum(counts.skipped.values()), list(target.inputs)
        )
        columns = dict.fromkeys(target.columns, result)
        return BackfillJobResult(job, DONE, self.name, launched, datetime.now(UTC), columns=columns)

    def _target(self, reader: FragmentReader, column: str, udf: UDF | None) -> FunctionColumns:
        """The columns to be filled, and their function."""
        schema = reader.schema
        if column not in schema.names:
            raise UsageError(f"Column {column} is not defined this table.  Use add_columns to register it first")
        definition = Definition.of(schema.field(column))
        if definition is None:
            raise UsageError(
                "Metadata is None, cannot find key virtual_column.udf", hint=f"{column!r} is not a function's."
            )
        if udf is None:
            udf = resolve(definition, self._modules)
        return target_of(schema, column, definition, udf)

    def _workers(self, concurrency: int, run: RunOptions) -> int:
        """The number of tasks at once: as many as the session has cores, and no more than are asked for."""
        if run.executor != "spark":
            return 1
        slots = resources_of(is_spark=True, master=run.master, conf=run.conf).slots
        return min(concurrency, slots)


class _Prepared(NamedTuple):
    """A backfill that is ready to run, as a job for a column."""

    job: str
    column: str
    run: Callable[[], BackfillJobResult]


class _Planned(NamedTuple):
    """A backfill that was asked for, and what it is to compute."""

    column: str
    udf: UDF | None
    where: str | None
    reader: FragmentReader
    target: FunctionColumns
    selected: tuple[SelectedFragment, ...]


def _column_of(columns: str | list[str]) -> str:
    check_argument("columns", columns, str, list, tuple)
    if isinstance(columns, str):
        return columns
    if not columns:
        raise UsageError("columns list cannot be empty; pass a column name string or a non-empty list.")
    if len(columns) > 1:
        raise UnsupportedCallError(
            "Multi-column backfill is not yet supported. Pass a single column name string.",
            hint="Columns that one function gives are computed together: name one of them.",
        )
    return columns[0]
