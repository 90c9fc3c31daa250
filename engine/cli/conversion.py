"""``chunkmill convert``: every input becomes one RRD."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

import click

from ..errors import ReadWarning, UsageError
from ..execution.progress import RunResult
from .failures import FAILED, complain, show
from .formats import FORMAT_OF_SUFFIX, Format
from .inputs import Job, plan_jobs
from .options import ConvertOptions
from .pipelines import check_content, convert_one
from .progress import ProgressBar
from .units import duration, size


def convert_all(arguments: Iterable[str], output: str, options: ConvertOptions) -> None:
    """Convert every input; one that fails does not stop the others, and is reported at the end.

    Raises ``UsageError`` where the call is wrong; leaves with exit code 1 where an input failed.
    """
    jobs = plan_jobs(arguments, output)
    _check(jobs, options)
    failures: list[Exception] = []
    for job in jobs:
        try:
            _convert(job, options)
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001 (reported below, after the other inputs)
            failures.append(error)
    for error in failures:
        show(error, debug=options.debug)
    if failures and len(jobs) > 1:
        complain(f"{len(failures)} of {len(jobs)} inputs failed, and nothing was written for them")
    if failures:
        raise click.exceptions.Exit(FAILED)


def _check(jobs: Sequence[Job], options: ConvertOptions) -> None:
    if len(jobs) > 1 and options.recording_id is not None:
        raise UsageError(
            f"--recording-id names one recording, and there are {len(jobs)} inputs",
            hint="Leave it out: each recording is then named after its file.",
        )
    if options.executor == "inline" and (options.master is not None or options.conf):
        raise UsageError("--master and --conf are for Spark, and --executor inline runs without it")
    check_content(options)
    if options.topics or options.exclude_topics:
        for job in jobs:
            if FORMAT_OF_SUFFIX.get(job.source.suffix.lower()) is Format.RRD:
                raise UsageError(
                    "--topics and --exclude-topics choose topics of an MCAP, and this is an RRD",
                    path=str(job.source),
                    hint="Use --content to choose entities.",
                )


def _convert(job: Job, options: ConvertOptions) -> None:
    job.destination.parent.mkdir(parents=True, exist_ok=True)
    with _warnings_as_lines() as said, ProgressBar(job.source.name, quiet=options.quiet) as bar:
        convert_one(job, options, bar)
    result = bar.result
    for text in dict.fromkeys([*said, *(result.warnings if result is not None else ())]):
        complain(f"{job.source}: {text}", kind="warning")
    if result is not None and not options.quiet:
        click.echo(_summary(job, result), err=True)


def _summary(job: Job, result: RunResult) -> str:
    """What became of one input.

    >>> from pathlib import Path
    >>> job = Job(Path("drive.mcap"), Path("drive.rrd"), "drive")
    >>> _summary(job, RunResult(2, 18, 3513, 782_496, 1_204_000, 1.25))
    'drive.mcap -> drive.rrd: 3,513 rows in 18 chunks, 782.5 kB -> 1.2 MB, 1.2 s'
    """
    return (
        f"{job.source} -> {job.destination}: {result.rows:,} rows in {result.chunks:,} chunks, "
        f"{size(result.bytes_in)} -> {size(result.bytes_out)}, {duration(result.seconds)}"
    )


@contextmanager
def _warnings_as_lines() -> Iterator[list[str]]:
    """Collect the texts of read warnings instead of printing them with their place in the code."""
    texts: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", ReadWarning)
        usual = warnings.showwarning

        def collect(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, ReadWarning):
                texts.append(str(message))
            else:
                usual(message, category, filename, lineno, file, line)

        warnings.showwarning = collect
        yield texts
