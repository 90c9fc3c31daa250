"""``chunkmill merge``: several inputs become one RRD."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ..locations import reading_location
from ..units import counted
from .complaints import echo_json, reported, warnings_as_lines
from .jobs import (
    progress_bar,
    summary,
)
from .options import (
    APPLICATION_ID,
    CONTENT,
    DEBUG,
    EXECUTOR,
    LAYOUT,
    QUIET,
    SPARK,
    TIMES,
    ConvertOptions,
    ReadingCommand,
    bounds_of,
    check_id,
    chosen_executor,
)
from .outputs import RECORDINGS, output_option
from .standard_streams import as_given


@click.command(cls=ReadingCommand)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@output_option(
    "-o",
    "--output",
    required=True,
    writes=RECORDINGS,
    piped=True,
    metavar="OUT",
    help="The RRD to write; '-' for standard output.",
)
@CONTENT
@TIMES
@LAYOUT
@APPLICATION_ID
@click.option(
    "--recording-id",
    metavar="ID",
    callback=check_id,
    help="Merge everything into one recording of this id. Default: recordings with the same id are merged; files "
    "without ids become one recording named after OUT.",
)
@EXECUTOR
@SPARK
@click.option("--stats", is_flag=True, help="Print where the time went, and how much was read and written.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object about the RRD.")
@DEBUG
@QUIET
def merge(inputs: tuple[str, ...], output: str, debug: bool, start: Any, end: Any, **given: Any) -> None:
    """Merge recordings and stores, of any formats, into one RRD.

    INPUT is as for `chunkmill convert`. Recordings with the same id and application id become one recording, such as
    the parts of a split recording. Chunks of RRDs are copied unchanged.
    """
    with reported(debug=debug):
        given["executor"] = chosen_executor(given["executor"], given["master"], given["conf"])
        options = ConvertOptions(debug=debug, bounds=bounds_of(start, end), **given)
        from .standard_streams import from_standard_input, to_standard_output

        with from_standard_input(inputs) as arguments, to_standard_output(output) as target:
            merge_all(arguments, target, options)


def merge_all(arguments: Sequence[str], output: str, options: ConvertOptions) -> None:
    """Write the recordings of all inputs, each input once, into one RRD.

    Raises ``ChunkmillError``; then nothing is written.
    """
    from ...readers import stem_of
    from ..stream import write_stores
    from .advice import advise_before
    from .convert import check_formats
    from .jobs import merge_jobs, report_facts, stores_by_id
    from .start import resolve_executor

    target = reading_location(output)
    jobs = merge_jobs(arguments, output, stem_of(target.name))
    check_formats(jobs, options)
    advise_before(jobs, options)
    options = resolve_executor(options, jobs)
    with warnings_as_lines(target), progress_bar(target.name, quiet=options.quiet) as bar:
        report = write_stores(
            target,
            stores_by_id(jobs, options),
            executor=options.executor,
            master=options.master,
            conf=dict(options.conf) or None,
            progress=bar,
        )
    if options.as_json:
        sources = [as_given(str(job.source)) for job in jobs]
        echo_json({"sources": sources, "destination": as_given(str(target)), **report_facts(report)})
    elif not options.quiet:
        click.echo(summary(counted(len(jobs), "input"), target, report), err=True)
    if options.stats:
        from .query_display import print_stats

        print_stats(report, options.chosen)
