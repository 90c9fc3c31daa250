"""Loads of a table's columns from files and other tables."""

from __future__ import annotations

from typing import Any

from ..errors import UsageError
from .admission import TaskNeeds, admit
from .backfill import BackfillRun
from .computed_columns import PreparedJob, TableParts
from .jobs import kept
from .loading import ON_MISSING, load_target, run_load
from .options import checked_job_id, checked_task_size, load_batching
from .sources import source_of
from .view_definition import check_own


def load_job(
    parts: TableParts,
    /,
    source: str | list[str],
    pk: str,
    columns: list[str],
    *,
    source_format: str | None = None,
    on_missing: str = "carry",
    concurrency: int = 8,
    task_size: int | None = None,
    checkpoint_size: int | None = None,
    min_checkpoint_size: int | None = None,
    max_checkpoint_size: int | None = None,
    checkpoint_interval_seconds: float | None = None,
    _loader_cpus: float | None = None,
    _loader_memory: int | None = None,
    commit_granularity: int | None = None,
    refresh_status_secs: float = 2.0,  # noqa: ARG001 (progress is told as it comes)
    enable_job_tracker_saves: bool = True,
    job_id: str | None = None,
    **kwargs: Any,
) -> PreparedJob[str]:
    """The job of ``Table.load_columns`` and ``Table.load_columns_async``, its arguments checked."""
    if not columns:
        raise UsageError("columns must be non-empty")
    if on_missing not in ON_MISSING:
        raise UsageError(f"on_missing must be one of {{'carry', 'null', 'error'}}, got {on_missing!r}")
    check_own(parts.lance, columns)
    given = source_of(source, source_format)
    reader = parts.lance.checked()
    target, new = load_target(reader.schema, given, pk, columns, on_missing)
    run = parts.run_options(kwargs.get("executor"))
    wanted = TaskNeeds(_loader_cpus or 1, 0, _loader_memory)
    admit("load_columns", wanted, run, check=None, strict=None)
    batching = load_batching(checkpoint_size, min_checkpoint_size, max_checkpoint_size, checkpoint_interval_seconds)
    job = checked_job_id(job_id)
    backfill = BackfillRun(
        parts.lance,
        job,
        batching,
        run,
        parts.workers(concurrency, run),
        checked_task_size(task_size),
        None if on_missing == "error" else commit_granularity or 0,
        jobs=parts.jobs,
    )
    config = {"source": source, "pk": pk, "on_missing": on_missing, "executor": run.executor}

    def running() -> str:
        version = parts.lance.at().version
        with kept(parts.jobs, job, "LOAD", target.name, config, version, is_saved=enable_job_tracker_saves) as counts:
            parts.lance.check_version(version)
            run_load(backfill, given, target, new, counts)
        return job

    return PreparedJob(job, columns, running)
