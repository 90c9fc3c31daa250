"""Views: tables whose rows are made of those of another, and are brought to a version of it by a refresh."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from ..errors import NotFoundError, PinnedViewError, UnsupportedCallError, UsageError
from ..execution import Lease, progress_shown
from ..lance import by_fragment
from ..locations import located
from .admission import TaskNeeds, admit
from .batching import FLUSH_SECONDS, Batching
from .checkpoints import COMPUTED
from .computed_columns import PreparedJob, TableParts
from .definitions import resolve
from .jobs import DONE, JobTable, announced, kept
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


def refresh_plan(parts: TableParts, /, *, src_version: int | None = None) -> RefreshPlan:
    """The plan of ``Table.plan_refresh``."""
    versions = _versions(parts, src_version)
    fragments = versions.after.fragments
    total = sum(one.rows - one.deleted for one in fragments)
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
        lambda: _versions(parts, wanted),  # a view that another refreshed meanwhile does not go back
    )
    config = {"src_version": versions.after.version, "executor": run.executor}

    def running() -> RefreshJobResult:
        launched = datetime.now(UTC)
        with (
            progress_shown(kwargs.get("progress"), parts.name, of_rows=True) as listener,
            kept(parts.jobs, job, "REFRESH", parts.name, config) as counts,
            announced(JobTable(versions.source.place, parts.name), job, parts.name, config, versions.oldest),
            Lease.take(located(parts.lance.place) / COMPUTED, f"refresh of {parts.name}", name=_LEASE, queue=True),
        ):
            versions.source.check_version(versions.oldest)
            change = replace(refreshing, run=replace(run, progress=listener))(counts)
        fragments, rows = (0, 0) if change is None else (len(change.coming), change.rows)
        ended = datetime.now(UTC)
        return RefreshJobResult(
            job, DONE, parts.name, launched, ended, new_source_fragments=fragments, rows_refreshed=rows
        )

    return PreparedJob(job, [], running)


def _versions(parts: TableParts, src_version: int | None) -> ViewVersions:
    """The view as it is, and the version of its source that is asked for."""
    reader = parts.lance.at()
    definition = ViewDefinition.of(reader.schema)
    if definition is None:
        raise UsageError("Destination dataset must have view metadata.", hint=f"{parts.name!r} is no view.")
    source = definition.source_table(parts.lance)
    if not source.versions():
        raise NotFoundError(
            f"the table of which {parts.name!r} is a view is gone",
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
        _target(name, reader.schema.field(name), resolve(one, parts.modules), one.inputs_of(after.schema))
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
