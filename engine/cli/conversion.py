"""``chunkmill convert``: every input becomes one RRD."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import click

from ..errors import UsageError
from ..reports import RunReport
from ..units import duration, size
from .failures import complain, exit_code, show
from .formats import FORMAT_OF_SUFFIX, Format
from .inputs import Job, plan_jobs
from .options import ConvertOptions
from .pipelines import convert_one
from .progress import ProgressBar
from .warning_lines import warnings_as_lines


def convert_all(arguments: Iterable[str], output: str, options: ConvertOptions) -> None:
    """Convert every input; one that fails does not stop the others, and is reported at the end.

    Raises ``UsageError`` where the call is wrong; leaves with exit code 1 where an input failed (2 where every failure
    is one of usage).
    """
    jobs = plan_jobs(arguments, output)
    _check(jobs, options)
    failures: list[tuple[Job, Exception]] = []
    reports: list[RunReport] = []
    for job in jobs:
        try:
            reports.append(_convert(job, options))
        except Exception as failure:  # noqa: BLE001 (reported below, after the other inputs)
            failures.append((job, failure))
    if reports:
        _tell(RunReport.joined(reports, output) if len(reports) > 1 else reports[0], options)
    for job, error in failures:
        show(error, debug=options.debug, path=job.source)
    if failures and len(jobs) > 1:
        complain(f"{len(failures)} of {len(jobs)} inputs failed, and nothing was written for them")
    if failures:
        raise click.exceptions.Exit(min(exit_code(error) for _, error in failures))


def _check(jobs: Sequence[Job], options: ConvertOptions) -> None:
    if len(jobs) > 1 and options.recording_id is not None:
        raise UsageError(
            f"--recording-id names one recording, and there are {len(jobs)} inputs",
            hint="Leave it out: each recording is then named after its file.",
        )
    if options.executor == "inline" and (options.master is not None or options.conf):
        raise UsageError("--master and --conf are for Spark, and --executor inline runs without it")
    if options.topics or options.exclude_topics:
        for job in jobs:
            if FORMAT_OF_SUFFIX.get(job.source.suffix.lower()) in (Format.RRD, Format.PARQUET):
                raise UsageError(
                    "--topics and --exclude-topics choose topics of an MCAP, and this is none",
                    path=str(job.source),
                    hint="Use --content to choose entities.",
                )


def _tell(report: RunReport, options: ConvertOptions) -> None:
    """Print and keep the report, as far as it was asked for."""
    if options.stats:
        from .stats import print_stats

        print_stats(report)
    if options.report is not None:
        report.save(options.report)


def _convert(job: Job, options: ConvertOptions) -> RunReport:
    folder = job.destination.parent
    with (
        _made(folder) if job.into_folder and isinstance(folder, Path) else nullcontext(),
        warnings_as_lines(job.source),
        ProgressBar(job.source.name, quiet=options.quiet) as bar,
    ):
        result = convert_one(job, options, bar)
    if not result.chunks:
        complain(f"{job.source}: nothing was left to write; {job.destination} is an empty recording", kind="warning")
    if not options.quiet:
        click.echo(_summary(job, result), err=True)
    return result


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make ``folder`` and what is missing above it, and take that back where nothing came to lie in it."""
    missing = [f for f in (folder, *folder.parents) if not f.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for made in missing:
                made.rmdir()
        raise


def _summary(job: Job, result: RunReport) -> str:
    """What became of one input.

    >>> from pathlib import Path
    >>> job = Job(Path("drive.mcap"), Path("drive.rrd"), "drive")
    >>> _summary(job, RunReport(2, 18, 3513, 782_496, 1_204_000, 1.25))
    'drive.mcap -> drive.rrd: 3,513 rows in 18 chunks, 782.5 kB -> 1.2 MB, 1.2 s'
    """
    return (
        f"{job.source} -> {job.destination}: {result.rows:,} rows in {result.chunks:,} chunks, "
        f"{size(result.bytes_in)} -> {size(result.bytes_out)}, {duration(result.seconds)}"
    )
