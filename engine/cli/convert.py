"""``chunkmill convert`` and ``chunkmill merge``."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ...readers import all_options, detect_format, format_of_name, stem_of
from ..errors import ChunkmillError, SessionError, SessionStartError, UsageError, writing
from ..execution import Lease, PlannedRecording, RunOptions, executor_name, scratch_folder, write_recordings
from ..locations import Location, exists, reading_location
from ..reports import RunReport
from ..rrd import RrdFile
from ..spark import Terminated
from ..stream import MOST_PLANNED, ContentFilter, PlannedInTasks, plan_recording, write_stores
from ..task_context import TaskContext
from ..units import counted
from .complaints import complain, echo_json, exit_code, show, warnings_as_lines
from .jobs import (
    ConversionJob,
    Failures,
    check_mcap_options,
    convert_one,
    job_facts,
    joined_stores,
    merge_jobs,
    names_without_match,
    plan_jobs,
    progress_bar,
    report_facts,
    said_of_all,
    stores_by_id,
    stores_of,
    summary,
    tell_result,
    warn_of_no_times,
    write_mcap_of,
)
from .options import ConvertOptions
from .outputs import check_replaced, is_mcap, output_folder
from .standard_streams import as_given

if TYPE_CHECKING:
    from ..execution import ProgressListener
    from ..ingest import LandedFile

Converter = Callable[[Sequence[ConversionJob]], Iterator[tuple[ConversionJob, bool]]]
"""Converts some inputs, and yields each with its success as soon as it is done."""

CHECKPOINTS = ".chunkmill-convert"
"""The folder in the output with the journals of interrupted runs, until these are continued."""

JOBS_AT_ONCE: Final = 64
"""Jobs are opened, converted and committed in groups of this size: an interrupted run loses at most one group."""

_DONE: Final = "done.jsonl"
_STALE_SECONDS: Final = 7 * 86400.0


def convert_many(
    jobs: Sequence[ConversionJob],
    folder: Location,
    options: ConvertOptions,
    arguments: Sequence[str] = (),
    kind: str | None = None,
) -> tuple[list[RunReport], Failures, list[ConversionJob]]:
    """Convert all inputs into ``folder``.

    Return the reports and the failures, both in the order of the inputs, and the jobs that an earlier, interrupted run
    of the same command had done. ``arguments`` are the inputs as the command named them.
    """
    work = _Work(folder, options)
    with output_folder(folder), progress_bar(f"{len(jobs)} recordings", quiet=options.quiet) as bar:
        executor = executor_name(options.executor)
        work.run = RunOptions(executor, options.master, options.conf or None, bar)
        journal = _Journal(_checkpoint(folder, options, arguments, kind))
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
    """The inputs that a command has converted: after an interruption, the same command continues from there.

    Only this command uses ``folder``; it is removed when all inputs have succeeded. A file is known by its path, size
    and time of modification; it is converted again if its output is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, jobs: Mapping[LandedFile, ConversionJob], convert: Converter) -> list[ConversionJob]:
        """Convert the inputs that are not done yet, and return the jobs that an earlier run had done.

        ``convert`` yields each job with its success as soon as it is done. Its errors pass through. After an error or
        an interruption, the journal still lists the jobs that succeeded.
        """
        with writing(str(self._folder)):
            self._folder.mkdir(parents=True, exist_ok=True)
        self._remove_stale()
        with Lease.take(self._folder, "convert"):
            entries = self.entries()
            todo = {file: job for file, job in jobs.items() if file not in entries or not exists(job.destination)}
            succeeded = self._run_all(todo, convert)
        if succeeded == len(todo) or not self.entries():
            shutil.rmtree(self._folder, ignore_errors=True)
            if not any(self._folder.parent.iterdir()):
                self._folder.parent.rmdir()
        return [job for file, job in jobs.items() if file not in todo]

    def _run_all(self, todo: Mapping[LandedFile, ConversionJob], convert: Converter) -> int:
        """Convert all inputs, note those that succeed, and return their number."""
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

    def entries(self) -> set[LandedFile]:
        """The noted files; an incomplete last line is ignored."""
        from ..ingest import LandedFile

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
        """Remove the journals of other commands that were interrupted long ago and never run again."""
        for other in self._folder.parent.iterdir():
            if other != self._folder and other.is_dir() and time.time() - other.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(other, ignore_errors=True)


class _Work:
    """The conversion of inputs, with its reports and failures."""

    run: RunOptions

    def __init__(self, folder: Location, options: ConvertOptions) -> None:
        self.reports: list[RunReport] = []
        self.failures: Failures = []
        self._folder = folder
        self._options = options

    def do(self, jobs: Sequence[ConversionJob]) -> Iterator[tuple[ConversionJob, bool]]:
        """Convert some inputs, and yield each with its success as soon as that is known."""
        if is_mcap(jobs[0].destination):
            yield from ((job, self._write_mcap(job)) for job in jobs)
            return
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

    def _write_mcap(self, job: ConversionJob) -> bool:
        """Convert one input to an MCAP; return whether that was possible."""
        reports, failures = _convert_one(job, self._options, nullcontext(self.run.progress))
        self.reports += reports
        self.failures += failures
        return not failures

    def _unfit(self, job: ConversionJob) -> Exception | None:
        """The error of an output that is damaged, or None; reads the output only if the options say so."""
        try:
            if self._options.verify:
                from .checks import verify_output

                verify_output(job)
        except Exception as error:  # noqa: BLE001 (reported by the caller, after the other inputs)
            return error
        return None

    def _recordings(self, jobs: Sequence[ConversionJob], planned: list[ConversionJob]) -> Iterator[PlannedRecording]:
        """Open the inputs, one after the other; an input that cannot be opened is a failure of its own."""
        printed: set[str] = set()
        context = TaskContext(PlannedInTasks()) if len(jobs) > MOST_PLANNED else TaskContext()
        for job in jobs:
            try:
                with context.entered(), warnings_as_lines(job.source, printed, but=said_of_all(job, self._options)):
                    stores = stores_of(job, self._options)
                    recording = plan_recording(job.destination, stores, executor=self._options.executor)
            except Exception as error:  # noqa: BLE001 (reported by the caller, after the other inputs)
                self.failures.append((job, error))
                continue
            planned.append(job)
            yield recording


def _key(job: ConversionJob) -> LandedFile:
    """The journal's key of a job: the file as it is now; for an episode, its dataset's stamp."""
    from ..ingest import LandedFile, file_at

    source = str(job.source)
    if job.episode is not None:
        row = detect_format(job.source)
        return LandedFile(f"{source}#{job.episode}", *row.open(job.source, row.choosing(job.episode)).stamp())
    file = file_at(str(job.source.absolute()) if isinstance(job.source, Path) else job.source)
    return LandedFile(source, 0, 0) if file is None else LandedFile(source, file.size, file.modified_ns)


def _checkpoint(folder: Location, options: ConvertOptions, arguments: Sequence[str], kind: str | None) -> Path:
    """The folder of a command's journal, by its inputs, its options and the code of its pipeline."""
    from importlib.metadata import version

    wanted = {
        "version": version("chunkmill"),
        "inputs": sorted(arguments),
        "output": str(folder),
        "content": options.content,
        "bounds": options.bounds,
        "optimize": options.optimize,
        "mcap": [kind == "mcap", options.unsorted, options.compression],
        "reading": repr(sorted(options.reading.items())),
        "application_id": options.application_id,
        "verify": options.verify,
        "pipeline": None if options.pipeline is None else _code_of(options.pipeline.location, str(options.pipeline)),
    }
    name = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:16]
    below = folder if isinstance(folder, Path) else scratch_folder()
    return below.absolute() / CHECKPOINTS / name


def _code_of(file: Path | None, name: str) -> list[str]:
    """The name of a pipeline, and digests of the Python files next to its file, as it may use any of them."""
    files = [] if file is None else sorted(file.parent.glob("*.py"))
    return [name, *(f"{f.name}:{hashlib.sha256(f.read_bytes()).hexdigest()}" for f in files)]


def convert_all(
    arguments: Iterable[str],
    output: str,
    options: ConvertOptions,
    jobs: Sequence[ConversionJob] | None = None,
    kind: str | None = None,
) -> None:
    """Convert every input; a failed one does not stop the others, and is reported at the end.

    ``jobs`` are planned if they are not given. With a ``kind`` the output is a folder of files of this format.

    Raises ``UsageError`` if the call is wrong; leaves with exit code 1 if an input failed (2 if all failures are wrong
    usage).
    """
    began, started = time.time(), time.perf_counter()
    arguments = list(arguments)
    jobs = plan_jobs(arguments, output, kind) if jobs is None else jobs
    if options.shards and not is_mcap(jobs[0].destination):
        jobs = [replace(job, destination=reading_location(output), into_folder=False) for job in jobs]
    _check(jobs, options, _done_before(jobs, output, options, arguments, kind))
    if options.content or options.reading:
        advise_before(jobs, options)
    done: list[ConversionJob] = []
    if len(jobs) == 1:
        reports, failures = _convert_one(jobs[0], options, progress_bar(jobs[0].source.name, quiet=options.quiet))
    else:
        reports, failures, done = convert_many(jobs, reading_location(output), options, arguments, kind)
    _tell_of_others(done, failures, len(jobs), options)
    if reports:
        seconds = time.perf_counter() - started
        joined = RunReport.joined(reports, output, began, seconds) if len(jobs) > 1 else reports[0]
        if len(jobs) > 1 and not options.quiet and not options.as_json:
            click.echo(summary(f"{len(reports)} of {counted(len(jobs), 'input')}", output, joined), err=True)
        _tell(joined, options)
    if (options.content or options.reading) and not options.shards:
        failed = {id(job) for job, _ in failures}
        written = [job for job in jobs if id(job) not in failed]
        if not any(is_mcap(job.destination) for job in written):
            advise_after(written, options)
    if options.pipeline is not None:
        failures = [(job, options.pipeline.explained(error)) for job, error in failures]
    if failures:
        raise _failed(failures, len(jobs), options)


def _tell_of_others(done: Sequence[ConversionJob], failures: Failures, count: int, options: ConvertOptions) -> None:
    """Print the notes on jobs that were not converted now."""
    if options.as_json:
        for job, error in [*((job, None) for job in done), *failures]:
            echo_json(job_facts(job, None, error))
    elif done and not options.quiet:
        click.echo(
            f"{len(done)} of {count} inputs were converted by an earlier run that was interrupted or had failures",
            err=True,
        )


def _failed(failures: Failures, count: int, options: ConvertOptions) -> click.exceptions.Exit:
    """Show the failures of ``count`` jobs, and return the exit code."""
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


def _done_before(
    jobs: Sequence[ConversionJob], output: str, options: ConvertOptions, arguments: Sequence[str], kind: str | None
) -> set[ConversionJob]:
    """Return the jobs of a folder of MCAPs that an earlier, interrupted run of the same command had done.

    An RRD may be replaced in any case.
    """
    if len(jobs) == 1 or kind != "mcap":
        return set()
    entries = _Journal(_checkpoint(reading_location(output), options, arguments, kind)).entries()
    return {job for job in jobs if entries and _key(job) in entries}


def _check(jobs: Sequence[ConversionJob], options: ConvertOptions, done: Collection[ConversionJob]) -> None:
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
    check_mcap_options(jobs[0].destination, options)
    check_formats(jobs, options)
    check_replaced([job.destination for job in jobs if job not in done], overwrite=options.overwrite)


def check_formats(jobs: Sequence[ConversionJob], options: ConvertOptions) -> None:
    """Raise ``UsageError`` for selection options that an input's format lacks."""
    for purpose in dict.fromkeys(o.refused for o in all_options() if o.refused and o.name in options.reading):
        for job in jobs:
            row = format_of_name(job.source.name)
            if row is not None and all(o.refused != purpose for o in row.options):
                flags = " and ".join(o.flag or o.name for o in all_options() if o.refused == purpose)
                raise UsageError(
                    f"{flags} {purpose}, but this input has another format",
                    path=str(job.source),
                    hint="Convert inputs of other formats separately, or select their entities by --content.",
                )


def _tell(report: RunReport, options: ConvertOptions) -> None:
    """Print and save the report, as the options say."""
    if options.stats:
        from .query_display import print_stats

        print_stats(report, options.chosen)
    if options.report is not None:
        from ..reports import save_report

        save_report(replace(report, destination=as_given(report.destination)), options.report)


def _convert_one(
    job: ConversionJob, options: ConvertOptions, progress: AbstractContextManager[ProgressListener | None]
) -> tuple[list[RunReport], Failures]:
    try:
        with (
            output_folder(job.destination.parent) if job.into_folder else nullcontext(),
            warnings_as_lines(job.source, but=said_of_all(job, options)),
            progress as bar,
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


def convert_to_parquet(arguments: Sequence[str], output: str, options: ConvertOptions) -> None:
    """Write the recordings of all inputs as one folder of Parquet files; those with the same id are joined.

    Raises ``ChunkmillError``; then nothing is written.
    """
    from ..writers import write_parquet

    if options.shards or options.verify:
        raise UsageError("--shards and --verify are for RRDs", hint="Leave them out.")
    target = reading_location(output)
    jobs = plan_jobs(arguments, f"{output.rstrip('/')}/")
    check_formats(jobs, options)
    if len(jobs) > 1 and options.recording_id is not None:
        raise UsageError(f"--recording-id names one recording, but there are {len(jobs)} inputs", hint="Leave it out.")
    advise_before(jobs, options)
    with warnings_as_lines(target), progress_bar(target.name, quiet=options.quiet) as bar:
        report = write_parquet(
            stores_by_id(jobs, options),
            output,
            executor=options.executor,
            master=options.master,
            conf=dict(options.conf) or None,
            progress=bar,
        )
    source = jobs[0].source if len(jobs) == 1 else counted(len(jobs), "input")
    _tell_of_one(jobs, source, target, report, options)


def _tell_of_one(
    jobs: Sequence[ConversionJob], source: Location | str, target: Location, report: RunReport, options: ConvertOptions
) -> None:
    """Print the result of inputs that were written to one output; ``source`` names the inputs."""
    warn_of_no_times(source, target, options)
    if options.as_json:
        sources = [as_given(str(job.source)) for job in jobs]
        echo_json({"sources": sources, "destination": as_given(str(target)), **report_facts(report)})
    elif not options.quiet:
        click.echo(summary(source, target, report), err=True)
    _tell(report, options)


def merge_all(arguments: Sequence[str], output: str, options: ConvertOptions) -> None:
    """Write the recordings of all inputs, each input once, into one RRD.

    Raises ``ChunkmillError``; then nothing is written.
    """
    from .start import resolve_executor

    target = reading_location(output)
    jobs = merge_jobs(arguments, output, stem_of(target.name))
    check_mcap_options(target, options, merges=True)
    check_formats(jobs, options)
    advise_before(jobs, options)
    options = resolve_executor(options, jobs)
    with warnings_as_lines(target), progress_bar(target.name, quiet=options.quiet) as bar:
        if is_mcap(target):
            report = write_mcap_of(joined_stores(jobs, options), target, output, options, bar)
        else:
            report = write_stores(
                target,
                stores_by_id(jobs, options),
                executor=options.executor,
                master=options.master,
                conf=dict(options.conf) or None,
                progress=bar,
            )
    _tell_of_one(jobs, counted(len(jobs), "input"), target, report, options)


_LOOKED_INTO: Final = 64_000_000
"""The largest input, in bytes, that is read once more to name its contents."""

_TOPICS: Final = "include_topic_regex"
_RULES: Final = re.compile(r"([+-]?)\s*([^\s+-]\S*)")
"""The rules of an expression: whether each is for or against, and its path."""


def advise_before(jobs: Sequence[ConversionJob], options: ConvertOptions) -> None:
    """Warn of faults that are visible before anything is read, and raise ``UsageError`` if no input has a match."""
    for text in (*_options_for_nothing(jobs, options), *_stars(options)):
        complain(text, kind="warning")
    refuse_unmatched(jobs, options)


def refuse_unmatched(jobs: Sequence[ConversionJob], options: ConvertOptions) -> None:
    """Raise ``UsageError`` if no input has an entity or a topic that the options choose.

    Indexes are read until an input may match, or has no index. More than ``JOBS_AT_ONCE`` inputs are
    not checked.
    """
    choices = sorted(_choices(options)) or [("--content", text) for text in options.content]
    if not choices or len(jobs) > JOBS_AT_ONCE:
        return
    paths: dict[str, None] = {}
    for job in jobs:
        names = names_without_match(job, options)
        if names is None:
            return
        paths |= dict.fromkeys(names)
    close = list(dict.fromkeys(filter(None, (_closest(text, list(paths)) for _, text in choices))))
    where = f" in {len(jobs)} inputs" if len(jobs) > 1 else ""
    raise UsageError(
        f"nothing{where} matches {' and '.join(f'{option} {text!r}' for option, text in choices)}",
        path=None if where else str(jobs[0].source),
        hint=f"Did you mean {' or '.join(map(repr, close))}?" if close else f"There are: {_some(list(paths))}.",
    )


def _choices(options: ConvertOptions) -> set[tuple[str, str]]:
    """The options that choose entities and topics, each with one of its values."""
    chosen = {("--content", rule) for text in options.content for rule in _included(text)}
    return chosen | {("--topics", pattern) for pattern in options.reading.get(_TOPICS, ())}


def advise_after(jobs: Iterable[ConversionJob], options: ConvertOptions) -> None:
    """Warn of each choice of entities or topics that matches nothing in the finished jobs.

    Outputs are read until every choice has a match. There are no warnings with a pipeline, as it may write other
    entities than the chosen ones.
    """
    left = _choices(options)
    if not left or options.pipeline is not None:
        return
    done = list(jobs)
    for job in done:
        if isinstance(job.destination, Path) and left:
            entities = _entities_written(job.destination)
            left = {choice for choice in left if not any(_chooses(*choice, entity) for entity in entities)}
    if not left or not done or not all(isinstance(job.destination, Path) for job in done):
        return
    paths = _entities_read(done[0])
    for option, text in sorted(left):
        close = _closest(text, paths)
        meant = f"; did you mean {close!r}?" if close else f"; there is {_some(paths)}" if paths else ""
        complain(f"nothing was written for {option} {text!r}{meant}", kind="warning")


def _options_for_nothing(jobs: Sequence[ConversionJob], options: ConvertOptions) -> list[str]:
    rows = [format_of_name(job.source.name) for job in jobs]
    if None in rows:
        return []  # known by its content, or a folder
    applicable = {option.name for row in rows if row is not None for option in row.options}
    left = [option for option in all_options() if option.name in options.reading and option.name not in applicable]
    return [f"{option.flag or option.name} does not apply: no input has a format with this option" for option in left]


def _stars(options: ConvertOptions) -> list[str]:
    """A line for each star in a place of a shell's wildcard.

    >>> options = ConvertOptions(content=("/imu/* - /camera/**",), reading={"include_topic_regex": ("/imu/*",)})
    >>> for line in _stars(options):
    ...     print(line)
    --content '/imu/*': '*' is not a wildcard here, only a final '/**' is; did you mean '/imu/**'?
    --topics '/imu/*' is a regular expression, in which '*' repeats what is before it; to match all, write '/imu/.*'
    """
    lines = []
    for path in (path for text in options.content for _, path in _RULES.findall(text)):
        if _has_star(path):
            meant = f"{path[: path.index('*')].rpartition('/')[0]}/**"
            lines.append(
                f"--content {path!r}: '*' is not a wildcard here, only a final '/**' is; did you mean {meant!r}?"
            )
    for name, flag in ((_TOPICS, "--topics"), ("exclude_topic_regex", "--exclude-topics")):
        for pattern in options.reading.get(name, ()):
            if "/*" in pattern:
                meant = re.sub(r"/\*+", "/.*", pattern)
                lines.append(
                    f"{flag} {pattern!r} is a regular expression, in which '*' repeats what is before it; to match "
                    f"all, write {meant!r}"
                )
    return lines


def _has_star(path: str) -> bool:
    return "*" in path.removesuffix("/**")


def _included(text: str) -> list[str]:
    """The included paths of an expression, without those with a star, which have a warning already.

    >>> _included("/imu/** +/gps - /imu/raw /a*")
    ['/imu/**', '/gps']
    """
    return [path for sign, path in _RULES.findall(text) if sign != "-" and not _has_star(path)]


def _chooses(option: str, text: str, entity: str) -> bool:
    if option == "--content":
        return ContentFilter([text]).matches(entity)
    return any(re.search(text, name) for name in (entity, entity.lstrip("/")))


def _entities_written(path: Path) -> set[str]:
    """The entities of an output, by its footer, without those about the recording."""
    with suppress(ChunkmillError, OSError):
        file = RrdFile(path)
        tables = [file.listing(store) for store in file.stores() if store.kind == "recording"]
        return {entity for table in tables if table is not None for entity in table.entity_codes[1]}
    return set()


def _entities_read(job: ConversionJob) -> list[str]:
    """The topics or entities of a small local input."""
    with suppress(ChunkmillError, OSError):
        if isinstance(job.source, Path) and job.source.is_file() and job.source.stat().st_size <= _LOOKED_INTO:
            report = detect_format(job.source).inspect(job.source)
            return [e.path for s in report.stores for e in s.entities if not e.path.startswith("/__")]
    return []


def _closest(text: str, paths: Sequence[str]) -> str:
    """The path that a text may have meant, or a parent of several paths.

    >>> paths = ["/gps/fix", "/imu/data"]
    >>> _closest("/imuu/**", paths), _closest("/gps/fxi", paths), _closest("/camera", paths)
    ('/imu/**', '/gps/fix', '')
    """
    above = {"/".join(parts[:size]) for parts in (name.split("/") for name in paths) for size in range(2, len(parts))}
    wants_all = text.endswith("/**")
    candidates = [*paths, *sorted(above)] if wants_all else list(paths)
    matches = difflib.get_close_matches(text.removesuffix("/**"), candidates, 1, 0.75)
    return f"{matches[0]}/**" if matches and wants_all else "".join(matches)


def _some(paths: Sequence[str]) -> str:
    return ", ".join(paths[:4]) + (f" and {len(paths) - 4:,} more" if len(paths) > 4 else "")
