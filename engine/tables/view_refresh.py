"""Views: tables whose rows are made of those of another, and are brought to a version of it by a refresh."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from ..errors import NotFoundError, PinnedViewError, UnsupportedCallError, UsageError
from ..execution import Lease, RunOptions, executor_name, progress_shown
from ..lance import IS_SET, SOURCE_ROW, FragmentReader, by_fragment
from ..locations import located
from .admission import TaskNeeds, admit
from .batching import FLUSH_SECONDS, Batching
from .checkpoints import COMPUTED
from .column_loads import ColumnLoads
from .definitions import resolve
from .functions import UDF
from .jobs import DONE, Job, JobFuture, JobTable, announced, kept
from .options import checked_job_id, checked_task_size, warn_ignored
from .planning import task_rows_of
from .refresh import RefreshRun, ViewVersions, versions_of
from .targets import FunctionColumns
from .view_changes import change_of
from .view_definition import ViewDefinition

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
        The view, and the version of it that was looked at.
    has_work
        Whether any row would be computed or taken away.
    total_tasks, total_rows_pending
        The tasks, and the rows that would be computed.
    skipped_fragments, skipped_rows
        The fragments and the rows of the source of which nothing would be computed.
    total_fragments, total_rows
        Those of the source, in the version that the view would be brought to.
    job_type
        ``refresh``.
    new_source_fragments
        Fragments of the source of which rows would be computed.
    stale_rows
        Rows of the view that would go: theirs changed in the source, or are gone, or are no longer asked for.
    invalidated_fragments
        The fragments of the view that have such.
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
    """Result of a refresh: its counts and times. ``cluster_…`` and ``manifest_…`` are of other engines: None.

    ``rows_refreshed`` are the rows that were computed, ``new_source_fragments`` those of the source that had them.
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


class ViewRefresh(ColumnLoads):
    """The refreshes of a table that is a view of another: see :class:`~.table.Table`."""

    def plan_refresh(self, *, src_version: int | None = None) -> RefreshPlan:
        """The plan of what :meth:`refresh` would do, to the row, found without Spark."""
        versions = self._versions(src_version)
        fragments = versions.after.fragments
        total = sum(one.rows - one.deleted for one in fragments)
        change = None
        if not versions.is_current:
            change = change_of(
                versions.reader, versions.definition, versions.functions, versions.before, versions.after
            )
        coming, rows = (0, 0) if change is None else (len(change.coming), change.rows)
        going = {} if change is None else by_fragment(change.going)
        stale = sum(map(len, going.values()))
        task_rows = max(task_rows_of(None, rows, os.cpu_count() or 1), 1)
        return RefreshPlan(
            table_name=self.name,
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

    def refresh(
        self,
        *,
        where: str | None = None,
        src_version: int | None = None,
        max_rows_per_fragment: int | None = None,
        concurrency: int = 8,
        intra_applier_concurrency: int = 1,
        _admission_check: bool | None = None,
        _admission_strict: bool | None = None,
        **kwargs: Any,
    ) -> RefreshJobResult:
        """Bring the view to a version of its source, and wait for it.

        Rows whose row of the source is gone, or is no longer asked for, go; those whose row changed are computed anew;
        those of new rows are added. A change of a function of the view has all rows computed anew.

        Guarantee: all of that is one commit: a reader sees the view as it was before, or as it is then. A refresh that
        is cut has done nothing, and the next one goes on with what was computed. Of two at once, also on two hosts,
        the second waits for the first, and then does what is left. One of which nothing is heard for half a minute, as
        it is on another host or is stopped, is taken for dead, which is logged; should it live, its commit does not go
        on top of this one's.

        Parameters
        ----------
        where
            Nothing: a refresh of some rows is not offered.
        src_version
            The version of the source; by default the newest. It may be older than that of which the view is.
        max_rows_per_fragment
            Rows of a new fragment of the view; by default a million.
        concurrency
            The most tasks for which the work is cut; as many run at once as the session has cores.
        intra_applier_concurrency
            Ignored with a warning: it has no meaning on Spark.
        _admission_check, _admission_strict
            As in :meth:`~.table.Table.backfill`.
        **kwargs
            ``min_checkpoint_size``, ``max_checkpoint_size``, ``checkpoint_size``, ``task_size``,
            ``batch_checkpoint_flush_interval_seconds``, ``job_id``, ``executor`` and ``progress``, as in
            :meth:`~.table.Table.backfill`. ``task_shuffle_diversity`` is ignored with a warning.

        Raises
        ------
        ValueError
            The table is no view.
        RuntimeError
            The rows of the source have no ids that last, and the version is not that of which the view was made.
        JobFailedError
            A function failed, and its policy does not let that pass. A ``RuntimeError``, caused by what it raised.
        """
        _, run = self._prepared_refresh(
            where,
            src_version,
            max_rows_per_fragment,
            concurrency,
            intra_applier_concurrency,
            _admission_check,
            _admission_strict,
            kwargs,
        )
        return run()  # in this thread, where Ctrl-C reaches the function

    def refresh_async(
        self,
        *,
        where: str | None = None,
        src_version: int | None = None,
        max_rows_per_fragment: int | None = None,
        concurrency: int = 8,
        intra_applier_concurrency: int = 1,
        _admission_check: bool | None = None,
        _admission_strict: bool | None = None,
        **kwargs: Any,
    ) -> Job[RefreshJobResult]:
        """Refresh the view in the background; takes and raises what :meth:`refresh` does, the latter by its result.

        The process does not end before the job does.
        """
        job, run = self._prepared_refresh(
            where,
            src_version,
            max_rows_per_fragment,
            concurrency,
            intra_applier_concurrency,
            _admission_check,
            _admission_strict,
            kwargs,
        )
        return Job(self.name, [], JobFuture(job, run))

    def _prepared_refresh(
        self,
        where: str | None,
        src_version: int | None,
        max_rows_per_fragment: int | None,
        concurrency: int,
        intra_applier_concurrency: int,
        check: bool | None,
        strict: bool | None,
        kwargs: Mapping[str, Any],
    ) -> tuple[str, Callable[[], RefreshJobResult]]:
        """The id of a refresh whose arguments are checked, and what runs it."""
        if where is not None:
            raise UnsupportedCallError("where clauses on materialized view refresh not implemented yet.")
        if kwargs.get("output_limit") is not None:
            definition = ViewDefinition.of(self._lance.at().schema)
            kind = 2 if definition is None or definition.is_stable else 1
            raise UsageError(
                f"output_limit is only valid for chunker-backed materialized views; this view's kind is '{kind}'."
            )
        _check_options(concurrency, max_rows_per_fragment, intra_applier_concurrency, kwargs)
        versions = self._versions(src_version)
        self._lance.checked(versions.reader.version)
        versions.source.checked(versions.after.version)
        wanted = src_version if versions.definition.is_stable else versions.after.version
        run = RunOptions(executor=executor_name(kwargs.get("executor") or self._executor))
        for target in versions.functions:
            admit(target.udf.name, TaskNeeds.of(target.udf), run, check=check, strict=strict)
        job = checked_job_id(kwargs.get("job_id"))
        flush = kwargs.get("batch_checkpoint_flush_interval_seconds")
        refreshing = RefreshRun(
            self._lance,
            versions.source,
            job,
            Batching(
                kwargs.get("checkpoint_size"),
                kwargs.get("min_checkpoint_size") or 1,
                kwargs.get("max_checkpoint_size"),
                flush_seconds=FLUSH_SECONDS if flush is None else flush,
            ),
            run,
            self._workers(concurrency, run),
            checked_task_size(kwargs.get("task_size")),
            max_rows_per_fragment,
            lambda: self._versions(wanted),  # a view that another refreshed meanwhile does not go back
        )
        config = {"src_version": versions.after.version, "executor": run.executor}

        def running() -> RefreshJobResult:
            launched = datetime.now(UTC)
            with (
                progress_shown(kwargs.get("progress"), self.name, of_rows=True) as listener,
                kept(self._jobs, job, "REFRESH", self.name, config) as counts,
                announced(JobTable(versions.source.place, self.name), job, self.name, config, versions.oldest),
                Lease.take(located(self.uri) / COMPUTED, f"refresh of {self.name}", name=_LEASE, queue=True),
            ):
                versions.source.check_version(versions.oldest)
                change = replace(refreshing, run=replace(run, progress=listener))(counts)
            fragments, rows = (0, 0) if change is None else (len(change.coming), change.rows)
            ended = datetime.now(UTC)
            return RefreshJobResult(
                job, DONE, self.name, launched, ended, new_source_fragments=fragments, rows_refreshed=rows
            )

        return job, running

    def sources(self) -> dict[str, pa.Schema]:
        """The schema of the source of a view, for each column that a function makes of it; none for another table."""
        schema = self._lance.at().schema
        definition = ViewDefinition.of(schema)
        if definition is None:
            return {}
        source = definition.source_table(self._lance).at().schema
        return dict.fromkeys(definition.functions(schema), source)

    def check_own(self, columns: Sequence[str]) -> None:
        """Raise ``UsageError`` for columns that the query of a view asks for, or that every view has."""
        definition = ViewDefinition.of(self._lance.at().schema)
        all_ = () if definition is None else (SOURCE_ROW, IS_SET, *definition.columns)
        if held := [one for one in columns if one in all_]:
            raise UsageError(
                f"{held} are columns of the view {self.name!r}, and made by its refreshes alone",
                hint="Make another view, of another query.",
            )

    def check_rows(self) -> None:
        """Raise ``UsageError`` for a view, whose rows come and go by its refreshes alone."""
        if ViewDefinition.of(self._lance.at().schema) is not None:
            raise UsageError(
                f"the rows of the view {self.name!r} are made by its refreshes alone",
                hint="Change those of its source, and refresh it.",
            )

    def _target(self, reader: FragmentReader, column: str, udf: UDF | None) -> FunctionColumns:
        self.check_own([column])
        return super()._target(reader, column, udf)

    def _versions(self, src_version: int | None) -> ViewVersions:
        """The view as it is, and the version of its source that is asked for."""
        reader = self._lance.at()
        definition = ViewDefinition.of(reader.schema)
        if definition is None:
            raise UsageError("Destination dataset must have view metadata.", hint=f"{self.name!r} is no view.")
        source = definition.source_table(self._lance)
        if not source.versions():
            raise NotFoundError(
                f"the table of which {self.name!r} is a view is gone",
                path=source.place,
                hint="Bring it back to refresh the view; the view's rows stay as they are.",
            )
        after = source.at(src_version)
        if not definition.is_stable and after.version != definition.version:
            raise PinnedViewError(
                f"Cannot refresh this materialized view to source version {after.version}: it is pinned to source "
                f"version {definition.version}.\n\nUse refresh(src_version={definition.version}). Note that the view "
                f"will not pick up rows written to the source after version {definition.version}.",
                hint="Rows of a table without stable row ids are not known again once it was compacted.",
            )
        functions = [
            _target(name, reader.schema.field(name), resolve(one, self._modules), one.inputs_of(after.schema))
            for name, one in definition.functions(reader.schema).items()
        ]
        return versions_of(definition, reader, functions, source, after)


def _target(name: str, field: Any, udf: Any, inputs: Collection[str]) -> FunctionColumns:
    return FunctionColumns(name, (field.remove_metadata(),), tuple(inputs), udf)


def _check_options(
    concurrency: int, max_rows: int | None, intra_applier_concurrency: int, more: Mapping[str, Any]
) -> None:
    """Raise for options that no refresh could follow, and warn of those that do nothing."""
    if unknown := more.keys() - _KNOWN - {"output_limit"}:
        raise TypeError(f"refresh() got an unexpected keyword argument {min(unknown)!r}")
    for name, value in (("concurrency", concurrency), ("max_rows_per_fragment", max_rows)):
        if value is not None and value < 1:
            raise UsageError(f"{name} must be at least 1, got {value}")
    if intra_applier_concurrency != 1:
        warn_ignored("intra_applier_concurrency")
    if more.get("task_shuffle_diversity") is not None:
        warn_ignored("task_shuffle_diversity")
