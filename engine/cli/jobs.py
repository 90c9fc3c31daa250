"""The jobs of ``convert``, made from its arguments: the output of each file, and how it is read and run."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import click

from ...readers import STORE, Format, detect_format, is_rrd, rrd_suffix, stem_of
from .. import inputs
from ..errors import ChunkmillError, ReadError, SourceMissingError, UnmatchedWarning, UsageError
from ..inputs import FoundInput
from ..limits import is_text
from ..locations import Location, reading_location
from ..units import duration, rows_in_chunks, size
from .complaints import complain, echo_json, error_facts
from .options import ConvertOptions, profile_of
from .outputs import check_apart, is_folder, is_input, is_mcap, resolved
from .standard_streams import as_given, as_known, name_place

if TYPE_CHECKING:
    from ..execution import ProgressListener
    from ..inputs import Stores
    from ..reports import RunReport
    from ..rrd import StoreEntry
    from ..stream import LazyChunkStream


@dataclass(frozen=True, slots=True)
class Input:
    """One recording to convert. ``name`` is its path without suffix below the folder it was found in.

    ``episode``: the episode's number or id, if ``path`` is a dataset of several.
    """

    path: Location
    name: PurePath
    episode: int | str | None = None


@dataclass(frozen=True, slots=True)
class ConversionJob:
    """One conversion: ``source`` becomes the RRD or MCAP ``destination``; ``name`` is the default id of its recording.

    ``into_folder``: the destination is in the given folder, which is created if missing.
    ``episode``: the episode's number or id, if ``source`` is a dataset of several.
    """

    source: Location
    destination: Location
    name: str
    into_folder: bool = False
    episode: int | str | None = None


Failures = list[tuple[ConversionJob, Exception]]
"""Jobs that failed, and why."""


def plan_jobs(arguments: Iterable[str], output: str, kind: str | None = None) -> list[ConversionJob]:
    """Find the inputs and give each its own destination.

    A folder or a pattern writes into the folder ``output``, as do several files; a single file writes to ``output``
    itself unless that is a folder. With a ``kind``, ``output`` is a folder of files of this format.

    Raises ``SourceMissingError`` if a folder or a pattern gives nothing, and
    ``UsageError`` if two inputs would become one file or an input would be its own destination.
    """
    arguments = list(arguments)
    items = distinct_inputs(arguments)
    many = len(arguments) > 1 or [item.path for item in items] != [reading_location(argument) for argument in arguments]
    return jobs_of(items, output, many=many, kind=kind)


def merge_jobs(arguments: Iterable[str], output: str, name: str) -> list[ConversionJob]:
    """The inputs of the file ``output``, each once; ``name`` is the id of inputs without one.

    Raises ``UsageError`` if ``output`` is a folder, or one of the inputs.
    """
    target = reading_location(output)
    if is_folder(output):
        raise UsageError("this is a folder, but the output is a single RRD", path=output, hint="Name a file with -o.")
    items = distinct_inputs(arguments)
    check_apart(output, (item.path for item in items))
    return [ConversionJob(item.path, target, name, episode=item.episode) for item in items]


def jobs_of(inputs: list[Input], output: str, *, many: bool, kind: str | None = None) -> list[ConversionJob]:
    """Give each input its own destination; ``many``: treat the inputs as several, even if there is one.

    With a ``kind`` the output is a folder of files of this format.
    """
    destination = reading_location(output)
    is_file = is_rrd(destination.name) or is_mcap(destination)
    into_folder = kind is not None or is_folder(output) or (many and not is_file)
    if len(inputs) > 1 and not into_folder:
        raise UsageError(
            f"{len(inputs)} inputs cannot be written to one file",
            path=output,
            hint="Give a folder with -o: each input becomes an RRD in it, or an MCAP with --to mcap.",
        )
    jobs = []
    for item in inputs:
        suffix = ".mcap" if kind == "mcap" else rrd_suffix(item.path.name)
        target = destination / f"{item.name}{suffix}" if into_folder else destination
        jobs.append(ConversionJob(item.path, target, "-".join(item.name.parts), into_folder, item.episode))
    _refuse_clashes(jobs)
    return jobs


def distinct_inputs(arguments: Iterable[str]) -> list[Input]:
    """The recordings of arguments, each once; warns of repeated ones."""
    by_key: dict[tuple[Location, int | str | None], Input] = {}
    again: list[Input] = []
    for item in (item for argument in arguments for item in find_inputs(argument)):
        key = (resolved(item.path), item.episode)
        if key in by_key:
            again.append(item)
        else:
            by_key[key] = item
    if again:
        others = f", and {len(again) - 1:,} more" if len(again) > 1 else ""
        complain(f"{again[0].path}{others}: given more than once, used once", kind="warning")
    return list(by_key.values())


def find_inputs(argument: str) -> Iterator[Input]:
    """The recordings of one argument, in the order of their paths."""
    path = reading_location(argument)
    if not is_text(argument):
        raise UsageError(f"the name {argument!r} is not UTF-8", hint="Rename it: paths have to be UTF-8.")
    items = [item for at in _search(path) for item in _inputs(at)]
    if not items:
        raise SourceMissingError("this contains no recording", path=argument)
    yield from items


def local_bytes(sources: Iterable[Location]) -> int | None:
    """The bytes of files and folders; None if one is not local. Readers report missing ones."""
    total = 0
    for source in sources:
        if not isinstance(source, Path):
            return None
        with suppress(OSError):
            files = source.rglob("*") if source.is_dir() else (source,)
            total += sum(file.stat().st_size for file in files if file.is_file())
    return total


def _search(path: Location) -> Iterator[FoundInput]:
    """The inputs at a path; for a catalog, the stores of its datasets, wherever these are stored."""
    if isinstance(path, Path) and not path.is_dir():
        yield from inputs.search_inputs(path, tell=_tell)
        return
    from ..catalog import CatalogClient, is_catalog

    if not is_catalog(path):
        yield from inputs.search_inputs(path, tell=_tell)
        return
    for dataset in CatalogClient(str(path)).datasets():
        place = reading_location(dataset)
        if STORE.is_dataset(place):
            name = dataset.name
            name_place(place, f"{path} dataset {name!r}")
            yield FoundInput(place, PurePath(f"%2E{name[1:]}" if name.startswith(".") else name), STORE)


def _inputs(match: FoundInput) -> Iterator[Input]:
    """The recordings of an input: each recording of a dataset or a store is one."""
    if match.dataset is None:
        yield Input(match.path, match.below.parent / stem_of(match.below.name))
    else:
        yield from _episodes(match.dataset, match.path, match.below)


def _episodes(row: Format, dataset: Location, inner: PurePath) -> Iterator[Input]:
    """The episodes of a dataset; the dataset itself if it is one recording, or unreadable (its conversion says why)."""
    itself = Input(dataset, inner if inner.parts else PurePath(resolved(dataset).name))
    if not row.has_episodes:
        yield itself
        return
    try:
        for episode in row.open(dataset).episodes():
            yield Input(dataset, inner / episode.name, episode.number)
    except ReadError:
        yield itself


def _tell(path: str, text: str) -> None:
    complain(f"{path} {text}", kind="warning")


def _refuse_clashes(jobs: list[ConversionJob]) -> None:
    sources = {resolved(job.source) for job in jobs}
    taken: dict[Location, Location] = {}
    for job in jobs:
        target = resolved(job.destination)
        if target in sources:
            raise is_input(str(job.destination))
        if target in taken:
            raise UsageError(
                f"both {taken[target]} and {job.source} would be written to this file",
                path=str(job.destination),
                hint="Convert them to different folders.",
            )
        taken[target] = job.source


def progress_bar(label: str, *, quiet: bool) -> AbstractContextManager[ProgressListener | None]:
    """The bar of a run on stderr; None if stderr is no terminal, so that rich need not be loaded."""
    if quiet or not (sys.stderr.isatty() or os.environ.get("FORCE_COLOR")):
        return nullcontext()
    from ..execution import ProgressBar

    return ProgressBar(label, quiet=quiet)


def convert_one(job: ConversionJob, options: ConvertOptions, progress: ProgressListener | None) -> RunReport:
    """Convert one input on the chosen executor. Raises ``ChunkmillError``; then nothing is written.

    An RRD keeps all its recordings and blueprints; the filter and the pipeline are for recordings.
    """
    from ..stream import write_stores

    stores = stores_of(job, options)
    if options.shards:
        return _write_shards(job, stores, options, progress)
    if is_mcap(job.destination):
        return write_mcap_of(stores, job.destination, str(job.source), options, progress)
    return write_stores(
        job.destination,
        stores,
        executor=options.executor,
        master=options.master,
        conf=options.conf or None,
        progress=progress,
    )


def write_mcap_of(
    stores: Stores, destination: Location, source: str, options: ConvertOptions, progress: ProgressListener | None
) -> RunReport:
    """Write the only recording among stores as an MCAP. Raises ``UsageError`` for several.

    An MCAP holds no blueprint.
    """
    from ..writers import write_mcap

    streams = [stream for store, stream in stores if store.kind == "recording"]
    if len(streams) != 1:
        raise UsageError(
            f"an MCAP can hold only one recording, but the input contains {len(streams)}",
            path=source,
            hint="Merge them with `chunkmill merge`, or write an RRD, and convert each of its recordings with a "
            "pipeline.",
        )
    if len(streams) < len(stores):
        complain(f"{source}: an MCAP cannot hold blueprints; {len(stores) - 1} left out", kind="warning")
    return write_mcap(
        streams[0],
        str(destination),
        sort=not options.unsorted,
        compression=options.compression,
        executor=options.executor,
        master=options.master,
        conf=options.conf or None,
        progress=progress,
    )


def check_mcap_options(destination: Location, options: ConvertOptions, *, merges: bool = False) -> None:
    """Raise ``UsageError`` for options that do not apply to the output's format."""
    if not is_mcap(destination):
        if options.unsorted or options.compression is not None:
            raise UsageError("--unsorted and --compression are for MCAPs", path=str(destination))
        return
    refused = {
        "--application-id": options.application_id,
        "--recording-id": None if merges else options.recording_id,
        "--shards": options.shards,
        "--optimize": options.optimize if options.optimize != "none" else None,
    }
    wrong = [flag for flag, value in refused.items() if value]
    if wrong:
        raise UsageError(f"{' and '.join(wrong)} cannot be used for an MCAP", path=str(destination))


def stores_of(job: ConversionJob, options: ConvertOptions) -> Stores:
    """The stores of one input. Raises ``ChunkmillError`` if it cannot be opened."""
    return laid_out(_opened(job, options), options)


def stores_by_id(jobs: Iterable[ConversionJob], options: ConvertOptions) -> Stores:
    """The stores of several inputs: those of the same kind and id are joined, in the order of the inputs."""
    from ..stream import LazyChunkStream

    streams: dict[StoreEntry, list[LazyChunkStream]] = {}
    for job in jobs:
        for store, stream in _opened(job, options):
            streams.setdefault(store, []).append(stream)
    merged = [(store, some[0] if len(some) == 1 else LazyChunkStream.merge(*some)) for store, some in streams.items()]
    return laid_out(merged, options)


def joined_stores(jobs: Iterable[ConversionJob], options: ConvertOptions) -> Stores:
    """All recordings of several inputs as one, and their blueprints."""
    from ..stream import LazyChunkStream

    opened = [pair for job in jobs for pair in _opened(job, options)]
    recordings = [pair for pair in opened if pair[0].kind == "recording"]
    if len(recordings) < 2:
        return opened
    merged = (recordings[0][0], LazyChunkStream.merge(*(stream for _, stream in recordings)))
    return [merged, *(pair for pair in opened if pair[0].kind != "recording")]


def laid_out(stores: Stores, options: ConvertOptions) -> Stores:
    """The stores; if the options say so, the chunks of recordings are collected here and laid out anew."""
    profile = profile_of(options.optimize)
    if profile is None:
        return stores

    def again(stream: LazyChunkStream) -> LazyChunkStream:
        return stream.collect(optimize=profile, executor=options.executor, master=options.master).stream()

    return [(store, again(stream) if store.kind == "recording" else stream) for store, stream in stores]


def _opened(job: ConversionJob, options: ConvertOptions) -> Stores:
    choices = {choice.name: getattr(options, choice.name) for choice in fields(inputs.SourceOptions)}
    return inputs.stores_of(job.source, job.name, inputs.SourceOptions(**choices), job.episode)


def names_without_match(job: ConversionJob, options: ConvertOptions) -> list[str] | None:
    """Return the entities of an input if the options choose none of its entities or topics.

    None if some match, or if the index of the input does not list them.
    """
    from ..stream import compile_plan, known_entities, sink_of

    names: set[str] = set()
    with warnings.catch_warnings(), suppress(ChunkmillError, OSError):  # which the conversion reports
        warnings.simplefilter("ignore")
        for store, stream in _opened(job, replace(options, pipeline=None)):
            if store.kind == "recording":
                plan = compile_plan(sink_of(stream))
                if sum(isinstance(why, UnmatchedWarning) for why in plan.nothing) < len(plan.sources):
                    return None
                names.update(name for name in known_entities(sink_of(stream)) if not name.startswith("/__"))
        return sorted(names) or None
    return None


def _write_shards(
    job: ConversionJob, stores: Stores, options: ConvertOptions, progress: ProgressListener | None
) -> RunReport:
    """Write the only recording of an input as a folder of shards. Raises ``UsageError`` for several."""
    recordings = [(store, stream) for store, stream in stores if store.kind == "recording"]
    if len(recordings) != 1:
        raise UsageError(
            f"--shards needs a single recording, but the input contains {len(recordings)}", path=str(job.source)
        )
    store, stream = recordings[0]
    return stream.write_rrd(
        str(job.destination),
        application_id=store.application_id,
        recording_id=store.recording_id,
        shards=True,
        executor=options.executor,
        master=options.master,
        progress=progress,
    )


def said_of_all(job: ConversionJob, options: ConvertOptions) -> tuple[type[Warning], ...]:
    """The warnings on an input that :func:`advise_after` gives once for all inputs."""
    is_advised = isinstance(job.destination, Path) and not options.shards and options.pipeline is None
    is_advised = is_advised and not is_mcap(job.destination)
    return (UnmatchedWarning,) if is_advised else ()


def tell_result(job: ConversionJob, result: RunReport, options: ConvertOptions) -> None:
    """Print the line on a finished input, and a warning if it was empty."""
    if not result.chunks:
        complain(f"{job.source}: no chunks were left to write; {job.destination} is an empty recording", kind="warning")
    else:
        warn_of_no_times(job.source, job.destination, options)
    if options.as_json:
        echo_json(job_facts(job, result))
    elif not options.quiet:
        click.echo(summary(job.source, job.destination, result), err=True)


def warn_of_no_times(source: object, destination: Location, options: ConvertOptions) -> None:
    """Warn if an output has only static rows because no others are within ``--start`` and ``--end``."""
    if options.bounds is None or not isinstance(destination, Path) or not destination.is_file():
        return
    with suppress(ChunkmillError, OSError):
        stores = [s for s in detect_format(destination).inspect(destination).stores if s.kind == "recording"]
        # the writer of MCAPs gives static rows the time 0 if there are no others
        if not any(line.end or not is_mcap(destination) for store in stores for line in store.timelines):
            line = options.bounds.timeline
            complain(f"{source}: no rows are within --start and --end on {line}", kind="warning")


def job_facts(job: ConversionJob, result: RunReport | None, error: Exception | None = None) -> dict[str, Any]:
    """The outcome of a job as JSON data; without a result or an error, an earlier run had done the job."""
    outcome = "failed" if error is not None else "done before" if result is None else "converted"
    facts = {"source": as_given(str(job.source)), "destination": as_given(str(job.destination)), "outcome": outcome}
    if job.episode is not None:
        facts["episode"] = str(job.episode)
    return {**facts, **report_facts(result), **({} if error is None else {"error": error_facts(error)})}


def report_facts(report: RunReport | None) -> dict[str, Any]:
    """The figures of a run as JSON data."""
    names = ("rows", "chunks", "bytes_in", "bytes_out", "seconds")
    return {} if report is None else {name: getattr(report, name) for name in names}


def summary(source: object, destination: object, result: RunReport) -> str:
    """The line on the result of a conversion.

    >>> from chunkmill import RunReport
    >>> summary("drive.mcap", "drive.rrd", RunReport(2, 18, 3513, 782_496, 1_204_000, 1.25))
    'drive.mcap -> drive.rrd: 3,513 rows in 18 chunks, 782.5 kB -> 1.2 MB, 1.2 s'
    """
    return (
        f"{as_known(str(source))} -> {as_given(str(destination))}: {rows_in_chunks(result.rows, result.chunks)}, "
        f"{size(result.bytes_in)} -> {size(result.bytes_out)}, {duration(result.seconds)}"
    )
