"""``chunkmill convert``: every input becomes one RRD."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace

import click

from ...readers import all_options, format_of_name
from ..errors import SessionError, SessionStartError, UsageError
from ..locations import reading_location
from ..reports import RunReport
from ..units import counted
from .complaints import complain, echo_json, exit_code, show, warnings_as_lines
from .jobs import (
    ConversionJob,
    Failures,
    convert_one,
    job_facts,
    plan_jobs,
    progress_bar,
    said_of_all,
    summary,
    tell_result,
)
from .options import ConvertOptions
from .outputs import check_replaced, output_folder
from .standard_streams import as_given


def convert_all(
    arguments: Iterable[str], output: str, options: ConvertOptions, jobs: Sequence[ConversionJob] | None = None
) -> None:
    """Convert every input; one that fails does not stop the others, and is reported at the end.

    ``jobs`` are planned where they are not given.

    Raises ``UsageError`` where the call is wrong; leaves with exit code 1 where an input failed (2 where every failure
    is one of usage).
    """
    began, started = time.time(), time.perf_counter()
    arguments = list(arguments)
    jobs = plan_jobs(arguments, output) if jobs is None else jobs
    if options.shards:
        jobs = [replace(job, destination=reading_location(output), into_folder=False) for job in jobs]
    _check(jobs, options)
    if options.content or options.reading:
        from .advice import advise_before

        advise_before(jobs, options)
    done: list[ConversionJob] = []
    if len(jobs) == 1:
        reports, failures = _convert_one(jobs[0], options)
    else:
        from .bulk_conversion import convert_many

        reports, failures, done = convert_many(jobs, reading_location(output), options, arguments)
    _tell_of_others(done, failures, len(jobs), options)
    if reports:
        seconds = time.perf_counter() - started
        joined = RunReport.joined(reports, output, began, seconds) if len(jobs) > 1 else reports[0]
        if len(jobs) > 1 and not options.quiet and not options.as_json:
            click.echo(summary(f"{len(reports)} of {counted(len(jobs), 'input')}", output, joined), err=True)
        _tell(joined, options)
    if (options.content or options.reading) and not options.shards:
        from .advice import advise_after

        failed = {id(job) for job, _ in failures}
        advise_after((job for job in jobs if id(job) not in failed), options)
    if options.pipeline is not None:
        failures = [(job, options.pipeline.explained(error)) for job, error in failures]
    if failures:
        raise _failed(failures, len(jobs), options)


def _tell_of_others(done: Sequence[ConversionJob], failures: Failures, count: int, options: ConvertOptions) -> None:
    """Print what is to be said of jobs that were not converted now."""
    if options.as_json:
        for job, error in [*((job, None) for job in done), *failures]:
            echo_json(job_facts(job, None, error))
    elif done and not options.quiet:
        click.echo(
            f"{len(done)} of {count} inputs were converted by an earlier run that was interrupted or had failures",
            err=True,
        )


def _failed(failures: Failures, count: int, options: ConvertOptions) -> click.exceptions.Exit:
    """Show the failures of ``count`` jobs, and give the exit code."""
    alike: dict[str, list[ConversionJob]] = {}
    for job, error in failures:
        jobs = alike.setdefault(str(error) if isinstance(error, SessionError) else f"{id(job)}", [])
        jobs.append(job)
        if len(jobs) == 1:
            show(error, debug=options.debug, path=None if isinstance(error, SessionError) else job.source)
    if count > 1:
        complain(
            f"{len(failures)} of {count} inputs failed, and nothing was written for them; run the same "
            "command again to retry only those"
        )
    return click.exceptions.Exit(min(exit_code(error) for _, error in failures))


def _check(jobs: Sequence[ConversionJob], options: ConvertOptions) -> None:
    if len(jobs) > 1 and options.recording_id is not None:
        raise UsageError(
            f"--recording-id names one recording, but there are {len(jobs)} inputs",
            hint="Leave it out: each recording is then named after its file.",
        )
    if options.shards and (len(jobs) > 1 or options.verify):
        raise UsageError(
            "--shards takes a single input and cannot be combined with --verify",
            hint="Convert each input separately, and run `chunkmill verify` on the folder.",
        )
    check_formats(jobs, options)
    check_replaced([job.destination for job in jobs], overwrite=options.overwrite)


def check_formats(jobs: Sequence[ConversionJob], options: ConvertOptions) -> None:
    """Refuse options that choose what an input of another format cannot choose: raises ``UsageError``."""
    for purpose in dict.fromkeys(o.refused for o in all_options() if o.refused and o.name in options.reading):
        for job in jobs:
            row = format_of_name(job.source.name)
            if row is not None and all(o.refused != purpose for o in row.options):
                flags = " and ".join(o.flag or o.name for o in all_options() if o.refused == purpose)
                raise UsageError(
                    f"{flags} {purpose}, and this is none",
                    path=str(job.source),
                    hint="Convert the others separately; --content selects entities of any format.",
                )


def _tell(report: RunReport, options: ConvertOptions) -> None:
    """Print and keep the report, as far as it was asked for."""
    if options.stats:
        from .run_display import print_stats

        print_stats(report, options.chosen)
    if options.report is not None:
        from ..reports import save_report

        save_report(replace(report, destination=as_given(report.destination)), options.report)


def _convert_one(job: ConversionJob, options: ConvertOptions) -> tuple[list[RunReport], Failures]:
    try:
        with (
            output_folder(job.destination.parent) if job.into_folder else nullcontext(),
            warnings_as_lines(job.source, but=said_of_all(job, options)),
            progress_bar(job.source.name, quiet=options.quiet) as bar,
        ):
            result = convert_one(job, options, bar)
        if options.verify:
            from .checks import verify_output

            verify_output(job)
    except SessionStartError:
        raise  # nothing to do with the input
    except Exception as failure:  # noqa: BLE001 (reported by the caller)
        return [], [(job, failure)]
    tell_result(job, result, options)
    return [result], []
