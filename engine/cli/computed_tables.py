"""``chunkmill tables``: plan and fill computed columns, refresh views, list failures; ``chunkmill label``: add labels.

As in ``commands``, click alone is imported. A JVM is started only if ``backfill`` or ``refresh`` runs on Spark.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from ..units import counted, seconds_of, size, utc_time
from .catalogs import one_dataset_at, opened_catalog
from .complaints import reported, warnings_as_lines
from .history import add_version_commands
from .options import DEBUG, EXECUTORS, QUIET, CommandGroup, check_place, parse_tick, together
from .start import leave_out_what_nothing_needs

if TYPE_CHECKING:
    from ..tables import UDF, BackfillPlan, JobRecord, Table

_TABLE = click.argument("table", callback=check_place)
_CATALOG = click.option("--catalog", metavar="LAKE", callback=check_place, help="The catalog of the table named TABLE.")
_WHERE = click.option("--where", metavar="SQL", help="Rows to compute. Default: rows with a missing or outdated value.")
_FUNCTION = click.option("--udf", metavar="MODULE:NAME", help="Use this function instead of the column's own.")
_MODULES = click.option(
    "--module",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="A module or package whose functions the table may use.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_TASK_SIZE = click.option("--task-size", type=click.IntRange(1), metavar="ROWS", help="Number of rows per task.")
_STALE = click.option(
    "--recompute-stale", is_flag=True, help="Also recompute rows that were updated since their computation."
)
_WORK = together(_TABLE, click.argument("column"), _CATALOG, _WHERE, _FUNCTION, _MODULES, _TASK_SIZE, _STALE)


@click.command()
@click.argument("lake", callback=check_place)
@click.argument("table")
@click.argument("segments", nargs=-1, required=True, metavar="SEGMENT...")
@click.option("--verdict", required=True, metavar="WORD", help="accept, reject, or any other word.")
@click.option("--note", metavar="TEXT", help="A comment.")
@click.option(
    "--start", callback=parse_tick, metavar="TIME", help="Start of the labelled part, as for `chunkmill query`."
)
@click.option(
    "--end", callback=parse_tick, metavar="TIME", help="End of the labelled part. Default: the end of the segment."
)
@click.option(
    "--index", metavar="NAME", help="The timeline of --start and --end; optional if all timelines have one type."
)
@click.option("--who", metavar="NAME", help="The name of the labeller. Default: the user of this process.")
@click.option("--dataset", metavar="NAME", help="The dataset of the segments. Default: the only one.")
@DEBUG
@QUIET
def label(
    lake: str,
    table: str,
    segments: tuple[str, ...],
    verdict: str,
    dataset: str | None,
    debug: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Append a label for each SEGMENT to TABLE of LAKE; create TABLE if missing.

    If one person labels the same part again, the last label counts. Concurrent writers lose no labels.
    """
    with reported(debug=debug):
        leave_out_what_nothing_needs()
        count = one_dataset_at(lake, dataset).label(table, segments, verdict, **options)
        if not quiet:
            click.echo(f"{table}: {counted(count, 'label')} appended", err=True)


@click.group(cls=CommandGroup)
def tables() -> None:
    """Fill computed columns of Lance tables, and refresh views.

    TABLE is the folder or URL of a table, or with --catalog its name in that catalog.
    """


@tables.command("plan")
@_WORK
@_JSON
@DEBUG
def plan(
    table: str,
    column: str,
    catalog: str | None,
    where: str | None,
    udf: str | None,
    modules: Sequence[str],
    task_size: int | None,
    recompute_stale: bool,
    as_json: bool,
    debug: bool,
) -> None:
    """Show what a backfill of COLUMN would compute, without computing it."""
    with reported(debug=debug), warnings_as_lines(table):
        leave_out_what_nothing_needs()
        opened = _opened(table, catalog, modules)
        backfill = opened.plan_backfill(
            column, udf=_function(udf), where=where, task_size=task_size, recompute_stale=recompute_stale
        )
        if as_json:
            click.echo(json.dumps(asdict(backfill), ensure_ascii=False))
            return
        if not backfill.has_work:
            click.echo(
                f"{opened.name}.{column}: nothing to do, of {counted(backfill.total_rows, 'row')}{_stale(backfill)}"
            )
            return
        why = (
            "another function"
            if backfill.udf_mismatch
            else "other inputs"
            if backfill.srcfiles_mismatch
            else backfill.where
        )
        click.echo(
            f"{opened.name}.{column}: {counted(backfill.total_tasks, 'task')}, for fragments with "
            f"{counted(backfill.total_rows_pending, 'row')} of {backfill.total_rows:,} ({why}){_stale(backfill)}"
        )
        if backfill.skipped_fragments:
            click.echo(f"{counted(backfill.skipped_fragments, 'fragment')} already computed, but not committed")


@tables.command("backfill")
@_WORK
@click.option(
    "--checkpoint-size", type=click.IntRange(1), metavar="ROWS", help="Number of rows per call of the function."
)
@click.option("--executor", type=EXECUTORS, help="Default: CHUNKMILL_EXECUTOR, or spark.")
@DEBUG
@QUIET
def backfill(
    table: str,
    column: str,
    catalog: str | None,
    where: str | None,
    udf: str | None,
    modules: Sequence[str],
    task_size: int | None,
    recompute_stale: bool,
    checkpoint_size: int | None,
    executor: str | None,
    debug: bool,
    quiet: bool,
) -> None:
    """Compute COLUMN, and wait for it.

    An interrupt ends the job. Committed values are kept, and the next run continues from the checkpoints.
    """
    with reported(debug=debug), warnings_as_lines(table):
        leave_out_what_nothing_needs()
        opened = _opened(table, catalog, modules)
        options: dict[str, Any] = {"task_size": task_size, "checkpoint_size": checkpoint_size, "executor": executor}
        options["recompute_stale"] = recompute_stale
        result = opened.backfill(
            column, udf=_function(udf), where=where, progress=not quiet, **{k: v for k, v in options.items() if v}
        )
        done = result.columns[column]
        skipped = f", {counted(done.rows_skipped, 'row')} skipped on errors" if done.rows_skipped else ""
        click.echo(
            f"{opened.name}.{column}: {counted(done.rows_processed, 'row')} computed{skipped} (job {result.job_id})"
        )


@tables.command("refresh")
@_TABLE
@_CATALOG
@_MODULES
@click.option("--src-version", type=int, metavar="N", help="A version of the source. Default: the newest.")
@click.option("--dry-run", is_flag=True, help="Show what would be computed, without computing it.")
@click.option("--executor", type=EXECUTORS, help="Default: CHUNKMILL_EXECUTOR, or spark.")
@_JSON
@DEBUG
@QUIET
def refresh(
    table: str,
    catalog: str | None,
    modules: Sequence[str],
    src_version: int | None,
    dry_run: bool,
    executor: str | None,
    as_json: bool,
    debug: bool,
    quiet: bool,
) -> None:
    """Update TABLE, a view, to a version of its source, and wait for it.

    An interrupt ends the job. The view is then unchanged, and the next run continues from the checkpoints.
    """
    with reported(debug=debug), warnings_as_lines(table):
        leave_out_what_nothing_needs()
        view = _opened(table, catalog, modules)
        if dry_run:
            plan = view.plan_refresh(src_version=src_version)
            text = f"{counted(plan.total_rows_pending, 'row')} to compute, {plan.stale_rows:,} to remove"
            summary = text if plan.has_work else f"nothing to do, of {counted(plan.total_rows, 'row')}"
            click.echo(json.dumps(asdict(plan), ensure_ascii=False) if as_json else f"{view.name}: {summary}")
            return
        options: dict[str, Any] = {} if executor is None else {"executor": executor}
        result = view.refresh(src_version=src_version, progress=not quiet, **options)
        summary = f"{view.name}: {counted(result.rows_refreshed, 'row')} computed (job {result.job_id})"
        click.echo(json.dumps(asdict(result), default=str, ensure_ascii=False) if as_json else summary)


@tables.command("jobs")
@_TABLE
@_CATALOG
@_JSON
@DEBUG
def jobs(table: str, catalog: str | None, as_json: bool, debug: bool) -> None:
    """List the finished and running jobs of TABLE, oldest first."""
    with reported(debug=debug):
        leave_out_what_nothing_needs()
        for job in _existing_table(table, catalog).jobs():
            click.echo(json.dumps(asdict(job), default=str, ensure_ascii=False) if as_json else _line(job))


@tables.command("errors")
@_TABLE
@_CATALOG
@click.option("--job", "job_id", metavar="ID", help="Only errors of this job.")
@click.option("--column", metavar="COLUMN", help="Only errors of this column.")
@click.option("--type", "error_type", metavar="NAME", help="Only exceptions of this class.")
@_JSON
@DEBUG
def errors(
    table: str,
    catalog: str | None,
    job_id: str | None,
    column: str | None,
    error_type: str | None,
    as_json: bool,
    debug: bool,
) -> None:
    """List the rows of TABLE, by row address, for which a function failed."""
    with reported(debug=debug):
        leave_out_what_nothing_needs()
        for error in _existing_table(table, catalog).get_errors(job_id, column, error_type):
            if as_json:
                click.echo(json.dumps(asdict(error), default=str, ensure_ascii=False))
                continue
            place = "a batch" if error.row_address is None else f"row {error.row_address}"
            text = " ".join(error.error_message.split())
            click.echo(f"{error.column_name}, {place}: {error.error_type}: {text} (job {error.job_id})")


@tables.command("optimize")
@_TABLE
@_CATALOG
@click.option(
    "--older-than", default="7 days", show_default=True, metavar="TIME", help="Remove versions older than this."
)
@DEBUG
def optimize(table: str, catalog: str | None, older_than: str, debug: bool) -> None:
    """Join small fragments of TABLE, update its indexes, and remove old versions and unused files.

    Unused files are left by finished jobs. Files of running jobs are kept.
    """
    with reported(debug=debug), warnings_as_lines(table):
        leave_out_what_nothing_needs()
        opened = _opened(table, catalog, ())
        freed = opened.optimize(cleanup_older_than=timedelta(seconds=seconds_of(older_than)))
        click.echo(
            f"{opened.name}: {counted(freed.old_versions, 'version')} removed, {size(freed.bytes_removed)} freed"
        )


add_version_commands(tables, together(_TABLE, _CATALOG), lambda table, catalog: _existing_table(table, catalog))


def _opened(table: str, catalog: str | None, modules: Sequence[str]) -> Table:
    if modules:
        _look_here()
    if catalog is None:
        from ..tables import Table

        return Table(table, udf_modules=modules)
    return opened_catalog(catalog).get_table(table).computed(udf_modules=modules)


def _existing_table(table: str, catalog: str | None) -> Table:
    """Open a table and check that it exists: a missing one would list no jobs or errors. Raises ``NotFoundError``."""
    opened = _opened(table, catalog, ())
    assert opened.version > 0
    return opened


def _look_here() -> None:
    """Let modules be imported from the current folder, as ``python -m`` does."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def _function(place: str | None) -> UDF | None:
    """Import the module of ``--udf``, and return its function."""
    if place is None:
        return None
    from ..tables import UDF

    module, _, name = place.partition(":")
    if not name:
        raise UsageError(f"--udf {place}: expected MODULE:NAME")
    _look_here()
    try:
        function = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise UsageError(f"--udf {place}: the module cannot be imported: {error}") from error
    if not isinstance(function, UDF):
        raise UsageError(f"--udf {place}: the module has no function of this name with the decorator udf")
    return function


def _stale(plan: BackfillPlan) -> str:
    """Describe stale rows; empty if there are none."""
    if not plan.stale_rows:
        return ""
    return f"; {counted(plan.stale_rows, 'row')} updated since, see --recompute-stale"


def _line(job: JobRecord) -> str:
    counts = {metric.name: metric.n for metric in job.metrics}
    rows = f", {counted(counts['rows_processed'], 'row')}" if "rows_processed" in counts else ""
    why = f": {' '.join(job.error.split())}" if job.error else ""
    when = utc_time(job.launched_at.timestamp())
    return f"{when}  {job.job_id}  {job.status:<7}  {job.job_type} {job.column_name}{rows}{why}"
