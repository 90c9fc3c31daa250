"""What becomes of one input, on disk and in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from ..locations import Location
from ..reports import RunReport
from ..units import duration, size
from .failures import complain
from .inputs import Job
from .options import ConvertOptions


def tell_result(job: Job, result: RunReport, options: ConvertOptions) -> None:
    """Print the line on a finished input, and a warning where nothing was in it."""
    if not result.chunks:
        complain(f"{job.source}: nothing was left to write; {job.destination} is an empty recording", kind="warning")
    if not options.quiet:
        click.echo(_summary(job, result), err=True)


@contextmanager
def made(folder: Location) -> Iterator[None]:
    """Make ``folder`` and what is missing above it, and take that back where nothing came to lie in it.

    In an object store there is nothing to make.
    """
    if not isinstance(folder, Path):
        yield
        return
    missing = [f for f in (folder, *folder.parents) if not f.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):
            for empty in missing:
                empty.rmdir()


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
