"""Loads of a table's columns from files and other tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import UsageError
from ..execution import RunOptions, executor_name
from .admission import TaskNeeds, admit
from .backfill import BackfillRun
from .computed_columns import ComputedColumns
from .jobs import JobFuture, kept
from .loading import ON_MISSING, load_target, run_load
from .options import checked_job_id, checked_task_size, load_batching
from .sources import source_of


class ColumnLoads(ComputedColumns):
    """A Lance table's columns that are loaded, beside those that are computed: see :class:`~.table.Table`."""

    def check_own(self, columns: Sequence[str]) -> None:
        """Raise ``UsageError`` for columns that are made by other means alone: those of a view."""

    def load_columns(
        self,
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
        refresh_status_secs: float = 2.0,  # noqa: ARG002 (progress is told as it comes)
        enable_job_tracker_saves: bool = True,
        job_id: str | None = None,
        **kwargs: Any,
    ) -> str:
        """Fill columns from files or another table, by a primary key, and wait for it; gives the job's id.

        Columns that the table lacks are added. A row whose key the source has gets the source's value, also where that
        is null; several rows with one key each get it.

        Parameters
        ----------
        source
            A file, a folder of files, a Lance table, or a list of files.
        pk
            The key, in both, of one type.
        columns
            The columns of the source to load.
        source_format
            ``parquet``, ``lance`` or ``ipc``; by default what names end with.
        on_missing
            What becomes of rows that the source lacks: ``carry``, they stay as they are; ``null``; or ``error``: then
            nothing is loaded.
        checkpoint_interval_seconds
            Seconds that a batch is to take, 60 by default.
        _loader_cpus, _loader_memory
            What a task wants, compared with the session as for functions.
        concurrency, task_size, checkpoint_size, min_checkpoint_size, max_checkpoint_size, commit_granularity
            As :meth:`backfill` takes them.
        refresh_status_secs, enable_job_tracker_saves, job_id
            Likewise.

        Raises
        ------
        ValueError
            Columns or the key are not there, or of other types than the table's; keys are there twice; the source lacks
            a row, with ``on_missing="error"``.
        ReadError
            The source cannot be read.
        """
        future = self.load_columns_async(
            source,
            pk,
            columns,
            source_format=source_format,
            on_missing=on_missing,
            concurrency=concurrency,
            task_size=task_size,
            checkpoint_size=checkpoint_size,
            min_checkpoint_size=min_checkpoint_size,
            max_checkpoint_size=max_checkpoint_size,
            checkpoint_interval_seconds=checkpoint_interval_seconds,
            _loader_cpus=_loader_cpus,
            _loader_memory=_loader_memory,
            commit_granularity=commit_granularity,
            enable_job_tracker_saves=enable_job_tracker_saves,
            job_id=job_id,
            **kwargs,
        )
        return future.waited(None, f"load_columns({', '.join(columns)})")

    def load_columns_async(
        self,
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
        enable_job_tracker_saves: bool = True,
        job_id: str | None = None,
        **kwargs: Any,
    ) -> JobFuture[str]:
        """Fill columns in the background; takes and raises what :meth:`load_columns` does, the latter by its result.

        What is wrong with the arguments is raised at once.
        """
        if not columns:
            raise UsageError("columns must be non-empty")
        if on_missing not in ON_MISSING:
            raise UsageError(f"on_missing must be one of {{'carry', 'null', 'error'}}, got {on_missing!r}")
        self.check_own(columns)
        given = source_of(source, source_format)
        reader = self._lance.checked()
        target, new = load_target(reader.schema, given, pk, columns, on_missing)
        run = RunOptions(executor=executor_name(kwargs.get("executor") or self._executor))
        wanted = TaskNeeds(_loader_cpus or 1, 0, _loader_memory)
        admit("load_columns", wanted, run, check=None, strict=None)
        batching = load_batching(checkpoint_size, min_checkpoint_size, max_checkpoint_size, checkpoint_interval_seconds)
        job = checked_job_id(job_id)
        backfill = BackfillRun(
            self._lance,
            job,
            batching,
            run,
            self._workers(concurrency, run),
            checked_task_size(task_size),
            None if on_missing == "error" else commit_granularity or 0,
            jobs=self._jobs,
        )
        config = {"source": source, "pk": pk, "on_missing": on_missing, "executor": run.executor}

        def running() -> str:
            version = self._lance.at().version
            with kept(
                self._jobs, job, "LOAD", target.name, config, version, is_saved=enable_job_tracker_saves
            ) as counts:
                self._lance.check_version(version)
                run_load(backfill, given, target, new, counts)
            return job

        return JobFuture(job, running)
