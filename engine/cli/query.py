"""``chunkmill query``: rows of recordings, stores and datasets, shown, or written as Parquet or Arrow."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from ..errors import UsageError
from .complaints import reported
from .options import DEBUG, EXECUTOR, QUIET, SPARK, QueryOptions, ReadingCommand, chosen_executor, parse_tick
from .outputs import REPORT, ROWS, output_option

_SHOWN: Final = 20
"""The number of rows shown without a limit, as Rerun's frames show them."""


def _listed(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """The words of an option that may be repeated, or have several words with commas between."""
    return tuple(word.strip() for value in values for word in value.split(",") if word.strip())


def _ticks(context: click.Context, option: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """The index values of an option, with commas between."""
    if value is None:
        return None
    ticks = [parse_tick(context, option, word.strip()) for word in value.split(",") if word.strip()]
    return tuple(tick for tick in ticks if tick is not None)


@click.command(cls=ReadingCommand)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--index", required=True, metavar="NAME", help="The timeline that rows are by; 'none' for static data.")
@click.option("--contents", multiple=True, metavar="EXPR", help="Entities to show, such as '/imu/**'; repeatable.")
@click.option(
    "--segments", multiple=True, metavar="ID", help="Only these segments; an id or a pattern such as 'drive-*'."
)
@click.option(
    "--start",
    metavar="TIME",
    callback=parse_tick,
    help="Only rows from this index value on: nanoseconds, a sequence number, or 2026-01-23T10:43:30.",
)
@click.option("--end", metavar="TIME", callback=parse_tick, help="Only rows before this index value.")
@click.option(
    "--values",
    metavar="TIME,...",
    callback=_ticks,
    help="Make rows at these index values, instead of those in the data.",
)
@click.option("--fill", is_flag=True, help="Fill what is missing in a row with the latest value before.")
@click.option("--where", multiple=True, metavar="SQL", help="Only rows that match a condition on columns; repeatable.")
@click.option("--columns", multiple=True, metavar="NAME,...", callback=_listed, help="Only these columns of values.")
@click.option("--limit", type=click.IntRange(0), metavar="N", help="At most so many rows. Default: 20 if shown.")
@output_option(
    "-o",
    "--output",
    writes=ROWS,
    metavar="OUT",
    help="Write a file OUT.parquet or OUT.arrow; a folder for many segments.",
)
@click.option(
    "--semantics",
    type=click.Choice(["contract", "rerun-0.33"]),
    help="The rules of rows. Default: contract, or CHUNKMILL_CATALOG_SEMANTICS.",
)
@click.option("--explain", is_flag=True, help="Show which segments, chunks and bytes would be read.")
@EXECUTOR
@SPARK
@click.option("--stats", is_flag=True, help="Print how much was read, and how long it took.")
@REPORT
@DEBUG
@QUIET
def query(
    inputs: tuple[str, ...],
    output: str | None,
    debug: bool,
    quiet: bool,
    overwrite: bool,
    stats: bool,
    report: str | None,
    explain: bool,
    **given: Any,
) -> None:
    """Show the rows of recordings by an index, or write them as Parquet or Arrow.

    INPUT is a catalog and one of its datasets, a store of recordings, or recordings of any format: files, folders and
    patterns. There is one row for each index value of each segment (recording), with the value of each component.
    Conditions are SQL, with names of columns in double quotes: --where '"/imu:accel" IS NOT NULL'.
    """
    from .query_output import queried, write_rows

    with reported(debug=debug):
        given["executor"] = chosen_executor(given["executor"], given["master"], given["conf"])
        given["index"] = None if given["index"].lower() == "none" else given["index"]
        options = QueryOptions(output=output, **given)
        _check(options)
        from ..frames import query_metrics
        from ..reports import save_report
        from .query_display import query_report, show_plan, show_rows, show_stats
        from .query_output import AnswerRows
        from .standard_streams import from_standard_input

        with from_standard_input(inputs) as arguments, query_metrics() as metrics:
            began, rows, num_bytes = time.time(), 0, 0
            answer = AnswerRows.of(queried(arguments, options), options)
            if explain:
                show_plan(answer)
            elif output is not None:
                rows, num_bytes = write_rows(answer, output, overwrite=overwrite, quiet=quiet)
            else:
                rows = show_rows(answer, _SHOWN if options.limit is None else options.limit)
        if stats:
            show_stats(metrics.last_query())
        if report is not None:
            save_report(query_report(metrics.last_query(), began, output, rows, num_bytes), report)


def _check(options: QueryOptions) -> None:
    """Raise ``UsageError`` for options that do not go together."""
    if options.index is None and (options.start, options.end, options.values) != (None, None, None):
        raise UsageError("--start, --end and --values are on an index, and --index none has none")
    if options.start is not None and options.end is not None and options.start >= options.end:
        raise UsageError("--end has to be later than --start")
