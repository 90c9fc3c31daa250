"""``chunkmill convert`` with many inputs: a query over them in few stages, every input by itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

from ..execution.choice import executor_name
from ..execution.many import Recording, write_recordings
from ..execution.stage import RunOptions
from ..execution.staging import scratch_folder
from ..ingest.digests import landed
from ..ingest.files import LandedFile
from ..ingest.job_query import JobQuery
from ..locations import Location, exists
from ..reports import RunReport
from ..spark import Terminated
from ..stream.lazy_stream import plan_recording
from .failures import complain
from .inputs import Job
from .options import ConvertOptions
from .pipelines import executor_of, stores_of
from .progress import ProgressBar
from .results import made, tell_result
from .verifying import verify_output
from .warning_lines import warnings_as_lines

Failures = list[tuple[Job, Exception]]

CHECKPOINTS = ".chunkmill-convert"
"""The folder in the output in which runs that were cut leave what they know, until they have been gone on with."""


def convert_many(
    jobs: Sequence[Job], folder: Location, options: ConvertOptions, arguments: Sequence[str] = ()
) -> tuple[list[RunReport], Failures, int]:
    """Convert all inputs into ``folder``.

    Gives what was done, what failed, both in the order of the inputs, and how many an earlier run of the same command
    had done before it was cut. ``arguments`` are the inputs as the command named them.
    """
    work = _Work(folder, options)
    with made(folder), ProgressBar(f"{len(jobs)} recordings", quiet=options.quiet) as bar:
        executor = executor_name(executor_of(options))
        work.run = RunOptions(executor, options.master, options.conf or None, bar)
        query = JobQuery(_checkpoint(folder, options, arguments), work.run)
        try:
            done = query.run({_key(job): job for job in jobs}, lambda job: exists(job.destination), work.do)
        except (KeyboardInterrupt, Terminated) as interrupt:
            told = f"{len(work.reports)} of {len(jobs)} inputs were converted; the same command goes on with the others"
            raise type(interrupt)(told) from None
    order = {id(job): number for number, job in enumerate(jobs)}
    return work.reports, sorted(work.failures, key=lambda failure: order[id(failure[0])]), len(done)


class _Work:
    """What is done with inputs, and what came of it."""

    run: RunOptions

    def __init__(self, folder: Location, options: ConvertOptions) -> None:
        self.reports: list[RunReport] = []
        self.failures: Failures = []
        self._folder = folder
        self._options = options

    def do(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, bool]]:
        """Convert some inputs; gives each, with whether it succeeded, as soon as that is known."""
        planned: list[Job] = []
        failed = len(self.failures)
        for outcome in write_recordings(self._recordings(jobs, planned), self._folder, self.run):
            job = planned[outcome.index]
            error = outcome.error or self._unfit(job)
            if outcome.report is None or error is not None:
                assert error is not None
                self.failures.append((job, error))
                continue
            for text in outcome.report.warnings:
                complain(text if str(job.source) in text else f"{job.source}: {text}", kind="warning")
            self.reports.append(outcome.report)
            tell_result(job, outcome.report, self._options)
            yield job, True
        for job, _ in self.failures[failed:]:
            yield job, False

    def _unfit(self, job: Job) -> Exception | None:
        """What is wrong with an output, where that is asked for."""
        try:
            if self._options.verify:
                verify_output(job)
        except Exception as error:  # noqa: BLE001 (reported by the caller, after the other inputs)
            return error
        return None

    def _recordings(self, jobs: Sequence[Job], planned: list[Job]) -> Iterator[Recording]:
        """Open the inputs, one after the other; what cannot be opened is a failure of its own."""
        for job in jobs:
            try:
                with warnings_as_lines(job.source):
                    stores = stores_of(job, self._options)
                    recording = plan_recording(job.destination, stores, executor=executor_of(self._options))
            except Exception as error:  # noqa: BLE001 (reported by the caller, after the other inputs)
                self.failures.append((job, error))
                continue
            planned.append(job)
            yield recording


def _key(job: Job) -> LandedFile:
    """What a job is known by in the log: its file as it is now; of an episode, the dataset's own files."""
    source = str(job.source)
    if job.episode is not None:
        files = [f.stat() for f in Path(source, "meta").rglob("*") if f.is_file()]
        modified = max((f.st_mtime_ns for f in files), default=0)
        return LandedFile(f"{source}#{job.episode}", sum(f.st_size for f in files), modified)
    found = landed(str(job.source.absolute()) if isinstance(job.source, Path) else source)
    return LandedFile(source, 0, 0) if found is None else LandedFile(source, found.size, found.modified_ns)


def _checkpoint(folder: Location, options: ConvertOptions, arguments: Sequence[str]) -> Path:
    """Where a command keeps what it has done: a folder for its inputs, its options and the code of its pipeline."""
    wanted = {
        "version": version("chunkmill"),
        "inputs": sorted(arguments),
        "output": str(folder),
        "content": options.content,
        "reading": repr(sorted(options.reading.items())),
        "application_id": options.application_id,
        "verify": options.verify,
        "pipeline": None if options.pipeline is None else _code_of(options.pipeline.location, str(options.pipeline)),
    }
    name = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:16]
    below = folder if isinstance(folder, Path) else scratch_folder()
    return below.absolute() / CHECKPOINTS / name


def _code_of(file: Path | None, name: str) -> list[str]:
    """The name of a pipeline, and digests of the Python files beside its own, any of which it may use."""
    files = [] if file is None else sorted(file.parent.glob("*.py"))
    return [name, *(f"{f.name}:{hashlib.sha256(f.read_bytes()).hexdigest()}" for f in files)]
