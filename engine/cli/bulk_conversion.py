"""``chunkmill convert`` with many inputs: few stages, every input by itself, and a run that was cut is gone on with."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from ...readers import detect_format
from ..errors import writing
from ..execution import Lease, PlannedRecording, RunOptions, executor_name, scratch_folder, write_recordings
from ..ingest import LandedFile, file_at
from ..locations import Location, exists
from ..reports import RunReport
from ..spark import Terminated
from ..stream import plan_recording
from .complaints import complain, warnings_as_lines
from .jobs import ConversionJob, Failures, progress_bar, said_of_all, stores_of, tell_result
from .options import ConvertOptions
from .outputs import output_folder

Converter = Callable[[Sequence[ConversionJob]], Iterator[tuple[ConversionJob, bool]]]
"""Converts some inputs, and gives each as soon as it is done, with whether it succeeded."""

CHECKPOINTS = ".chunkmill-convert"
"""The folder in the output in which runs that were cut leave what they know, until they have been gone on with."""

JOBS_AT_ONCE: Final = 64
"""Jobs that are opened, converted and committed before the next ones: what is lost at most when a run is cut."""

_DONE: Final = "done.jsonl"
_STALE_SECONDS: Final = 7 * 86400.0


def convert_many(
    jobs: Sequence[ConversionJob], folder: Location, options: ConvertOptions, arguments: Sequence[str] = ()
) -> tuple[list[RunReport], Failures, list[ConversionJob]]:
    """Convert all inputs into ``folder``.

    Gives what was done, what failed, both in the order of the inputs, and those that an earlier run of the same command
    had done before it was cut. ``arguments`` are the inputs as the command named them.
    """
    work = _Work(folder, options)
    with output_folder(folder), progress_bar(f"{len(jobs)} recordings", quiet=options.quiet) as bar:
        executor = executor_name(options.executor)
        work.run = RunOptions(executor, options.master, options.conf or None, bar)
        journal = _Journal(_checkpoint(folder, options, arguments))
        try:
            done = journal.run({_key(job): job for job in jobs}, work.do)
        except (KeyboardInterrupt, Terminated) as interrupt:
            text = (
                f"{len(work.reports)} of {len(jobs)} inputs were converted; run the same command again for the others"
            )
            raise type(interrupt)(text) from None
    order = {id(job): number for number, job in enumerate(jobs)}
    return work.reports, sorted(work.failures, key=lambda failure: order[id(failure[0])]), done


class _Journal:
    """The inputs that a command has converted, by which the same command goes on where it was cut.

    ``folder`` is the command's alone, and is removed when all have succeeded. A file is known by its path, size and
    time of modification; it is converted again where its output is gone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, jobs: Mapping[LandedFile, ConversionJob], convert: Converter) -> list[ConversionJob]:
        """Convert what is not done yet; gives the jobs that an earlier run had done.

        ``convert`` gives each job as soon as it is done, with whether it succeeded. Raises what it raises; then, and
        when it is interrupted, what succeeded is remembered.
        """
        with writing(str(self._folder)):
            self._folder.mkdir(parents=True, exist_ok=True)
        self._remove_stale()
        with Lease.take(self._folder, "convert"):
            known = self._entries()
            todo = {file: job for file, job in jobs.items() if file not in known or not exists(job.destination)}
            succeeded = self._run_all(todo, convert)
        if succeeded == len(todo) or not self._entries():
            shutil.rmtree(self._folder, ignore_errors=True)
            if not any(self._folder.parent.iterdir()):
                self._folder.parent.rmdir()
        return [job for file, job in jobs.items() if file not in todo]

    def _run_all(self, todo: Mapping[LandedFile, ConversionJob], convert: Converter) -> int:
        """Convert all, and note and count those that succeed."""
        jobs, file_of = list(todo.values()), {id(job): file for file, job in todo.items()}
        succeeded = 0
        with (self._folder / _DONE).open("a", encoding="utf-8") as journal:
            for first in range(0, len(jobs), JOBS_AT_ONCE):
                for job, success in convert(jobs[first : first + JOBS_AT_ONCE]):
                    if success:
                        succeeded += 1
                        file = file_of[id(job)]
                        journal.write(json.dumps(file) + "\n")
                        journal.flush()
            os.fsync(journal.fileno())
        return succeeded

    def _entries(self) -> set[LandedFile]:
        """The files that are noted; a last line that was cut counts for nothing."""
        path = self._folder / _DONE
        files: set[LandedFile] = set()
        if path.exists():
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    name, size, modified = json.loads(line)
                    files.add(LandedFile(str(name), int(size), int(modified)))
                except (ValueError, TypeError):
                    continue
        return files

    def _remove_stale(self) -> None:
        """Remove the journals of other commands that were cut long ago, and never run again."""
        for other in self._folder.parent.iterdir():
            if other != self._folder and other.is_dir() and time.time() - other.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(other, ignore_errors=True)


class _Work:
    """The conversion of inputs, with the reports and the failures that came of it."""

    run: RunOptions

    def __init__(self, folder: Location, options: ConvertOptions) -> None:
        self.reports: list[RunReport] = []
        self.failures: Failures = []
        self._folder = folder
        self._options = options

    def do(self, jobs: Sequence[ConversionJob]) -> Iterator[tuple[ConversionJob, bool]]:
        """Convert some inputs; gives each, with whether it succeeded, as soon as that is known."""
        planned: list[ConversionJob] = []
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

    def _unfit(self, job: ConversionJob) -> Exception | None:
        """The error of an output that is not what was written; looked for only where that is asked for."""
        try:
            if self._options.verify:
                from .checks import verify_output

                verify_output(job)
        except Exception as error:  # noqa: BLE001 (reported by the caller, after the other inputs)
            return error
        return None

    def _recordings(self, jobs: Sequence[ConversionJob], planned: list[ConversionJob]) -> Iterator[PlannedRecording]:
        """Open the inputs, one after the other; what cannot be opened is a failure of its own."""
        told: set[str] = set()
        for job in jobs:
            try:
                with warnings_as_lines(job.source, told, but=said_of_all(job, self._options)):
                    stores = stores_of(job, self._options)
                    recording = plan_recording(job.destination, stores, executor=self._options.executor)
            except Exception as error:  # noqa: BLE001 (reported by the caller, after the other inputs)
                self.failures.append((job, error))
                continue
            planned.append(job)
            yield recording


def _key(job: ConversionJob) -> LandedFile:
    """The file that a job is known by in the journal, as it is now; of an episode, as its dataset says."""
    source = str(job.source)
    if job.episode is not None:
        row = detect_format(job.source)
        return LandedFile(f"{source}#{job.episode}", *row.open(job.source, row.choosing(job.episode)).stamp())
    found = file_at(str(job.source.absolute()) if isinstance(job.source, Path) else source)
    return LandedFile(source, 0, 0) if found is None else LandedFile(source, found.size, found.modified_ns)


def _checkpoint(folder: Location, options: ConvertOptions, arguments: Sequence[str]) -> Path:
    """The folder of a command's journal, by its inputs, its options and the code of its pipeline."""
    wanted = {
        "version": version("chunkmill"),
        "inputs": sorted(arguments),
        "output": str(folder),
        "content": options.content,
        "bounds": options.bounds,
        "optimize": options.optimize,
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
