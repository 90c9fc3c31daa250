"""``chunkmill convert`` with many inputs: few stages, every input by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..execution.many import Recording, write_recordings
from ..execution.runner import RunOptions
from ..locations import Location
from ..reports import RunReport
from ..stream.lazy_stream import plan_recording
from .failures import complain
from .inputs import Job
from .options import ConvertOptions
from .pipelines import executor_of, stores_of
from .progress import ProgressBar
from .results import made, tell_result
from .warning_lines import warnings_as_lines

Failures = list[tuple[Job, Exception]]


def convert_many(jobs: Sequence[Job], folder: Location, options: ConvertOptions) -> tuple[list[RunReport], Failures]:
    """Convert all inputs into ``folder``; gives what was done, and what failed, in the order of the inputs."""
    reports: list[RunReport] = []
    planning: Failures = []
    failures: Failures = []
    planned: list[Job] = []
    with made(folder), ProgressBar(f"{len(jobs)} recordings", quiet=options.quiet) as bar:
        run = RunOptions(executor_of(options), options.master, options.conf or None, bar)
        for outcome in write_recordings(_recordings(jobs, options, planned, planning), folder, run):
            job = planned[outcome.index]
            if outcome.report is None:
                assert outcome.error is not None
                failures.append((job, outcome.error))
                continue
            for text in outcome.report.warnings:
                complain(text if str(job.source) in text else f"{job.source}: {text}", kind="warning")
            tell_result(job, outcome.report, options)
            reports.append(outcome.report)
    order = {id(job): number for number, job in enumerate(jobs)}
    return reports, sorted([*planning, *failures], key=lambda failure: order[id(failure[0])])


def _recordings(
    jobs: Sequence[Job], options: ConvertOptions, planned: list[Job], failures: Failures
) -> Iterator[Recording]:
    """Open the inputs, one after the other; what cannot be opened is a failure of its own."""
    for job in jobs:
        try:
            with warnings_as_lines(job.source):
                recording = plan_recording(job.destination, stores_of(job, options), executor=executor_of(options))
        except Exception as error:  # noqa: BLE001 (reported by the caller, after the other inputs)
            failures.append((job, error))
            continue
        planned.append(job)
        yield recording
