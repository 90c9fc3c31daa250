"""The jobs of ``convert``: from its arguments, which file becomes which, and how each is read and run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, fields
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import click

from ...readers import STORE, Format, is_rrd, rrd_suffix, stem_of
from .. import execution, inputs
from ..errors import ReadError, SourceMissingError, UnmatchedWarning, UsageError
from ..inputs import FoundInput
from ..limits import is_text
from ..locations import Location, reading_location
from ..objects import ObjectUrl
from ..units import duration, size
from .complaints import complain
from .options import ConvertOptions, profile_of

if TYPE_CHECKING:
    from ..execution import ProgressListener
    from ..inputs import Stores
    from ..reports import RunReport
    from ..rrd import StoreEntry
    from ..stream import LazyChunkStream


@dataclass(frozen=True, slots=True)
class Input:
    """One recording to convert. ``name`` is its path without suffix below the folder it was found in.

    ``episode``: which one of the dataset ``path``, a folder of many.
    """

    path: Location
    name: PurePath
    episode: int | str | None = None


@dataclass(frozen=True, slots=True)
class ConversionJob:
    """One conversion: ``source`` becomes the RRD ``destination``; ``name`` is the default id of its recording.

    ``into_folder``: the destination lies in the folder that was asked for, which is made where it is missing.
    ``episode``: which one of a folder of many.
    """

    source: Location
    destination: Location
    name: str
    into_folder: bool = False
    episode: int | str | None = None


def plan_jobs(arguments: Iterable[str], output: str) -> list[ConversionJob]:
    """Find the inputs and give each its own destination.

    A folder or a pattern writes into the folder ``output``, as do several files; a single file writes to ``output``
    itself unless that is a folder. Raises ``SourceMissingError`` where a folder or a pattern gives nothing, and
    ``UsageError`` where two inputs would become one file or an input would be its own destination.
    """
    _check_output(output)
    found: dict[tuple[Location, int | str | None], Input] = {}
    many = False
    for argument in arguments:
        items = list(find_inputs(argument))
        many = many or bool(found) or [i.path for i in items] != [reading_location(argument)]
        for item in items:
            found.setdefault((_resolved(item.path), item.episode), item)
    return jobs_of(list(found.values()), output, many=many)


def merge_jobs(arguments: Iterable[str], output: str, name: str) -> list[ConversionJob]:
    """The inputs that together become the file ``output``, each once; ``name`` is the id of those that have none.

    Raises ``UsageError`` where that is a folder, or one of them.
    """
    _check_output(output)
    target = reading_location(output)
    if _is_folder(output):
        raise UsageError("this is a folder, but the output is a single RRD", path=output, hint="Name a file with -o.")
    found = {(_resolved(i.path), i.episode): i for argument in arguments for i in find_inputs(argument)}
    if any(source == _resolved(target) for source, _ in found):
        raise UsageError("this file is an input and would be overwritten", path=output, hint="Choose another output.")
    return [ConversionJob(item.path, target, name, episode=item.episode) for item in found.values()]


def jobs_of(inputs: list[Input], output: str, *, many: bool) -> list[ConversionJob]:
    """Give each input its own destination; ``many``: there may be several, even where there is one."""
    destination = reading_location(output)
    into_folder = _is_folder(output) or (many and not is_rrd(destination.name))
    if len(inputs) > 1 and not into_folder:
        raise UsageError(
            f"{len(inputs)} inputs cannot be written to one file",
            path=output,
            hint="Give a folder with -o: each input becomes an RRD in it.",
        )
    jobs = []
    for item in inputs:
        target = destination / f"{item.name}{rrd_suffix(item.path.name)}" if into_folder else destination
        jobs.append(ConversionJob(item.path, target, "-".join(item.name.parts), into_folder, item.episode))
    _refuse_clashes(jobs)
    return jobs


def find_inputs(argument: str) -> Iterator[Input]:
    """The recordings that one argument stands for, in the order of their paths."""
    path = reading_location(argument)
    if not is_text(argument):
        raise UsageError(f"the name {argument!r} is not UTF-8", hint="Rename it: paths have to be UTF-8.")
    found = [one for at in _search(path) for one in _inputs(at)]
    if not found:
        raise SourceMissingError("this contains no recording", path=argument)
    yield from found


def local_bytes(sources: Iterable[Location]) -> int | None:
    """The bytes of files and folders; None where one is not local. What is missing is for its reader to say."""
    total = 0
    for source in sources:
        if not isinstance(source, Path):
            return None
        with suppress(OSError):
            files = source.rglob("*") if source.is_dir() else (source,)
            total += sum(file.stat().st_size for file in files if file.is_file())
    return total


@contextmanager
def output_folder(folder: Location) -> Iterator[None]:
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


def _search(path: Location) -> Iterator[FoundInput]:
    """The inputs that a path means; of a catalog the stores of its datasets, wherever they lie."""
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
            yield FoundInput(place, PurePath(f"%2E{name[1:]}" if name.startswith(".") else name), STORE)


def _inputs(found: FoundInput) -> Iterator[Input]:
    """The recordings of an input: of a dataset or a store each of its own."""
    if found.dataset is None:
        yield Input(found.path, found.below.parent / stem_of(found.below.name))
    else:
        yield from _episodes(found.dataset, found.path, found.below)


def _episodes(row: Format, dataset: Location, inner: PurePath) -> Iterator[Input]:
    """Its episodes; of one that cannot be read the dataset itself, for its reader to say why."""
    try:
        for episode in row.open(dataset).episodes():
            yield Input(dataset, inner / episode.name, episode.number)
    except ReadError:
        yield Input(dataset, inner if inner.parts else PurePath(_resolved(dataset).name))


def _tell(path: str, text: str) -> None:
    complain(f"{path} {text}", kind="warning")


def _check_output(output: str) -> None:
    if output == "-":
        raise UsageError(
            "this command does not write to standard output",
            hint="Give a file name; for a file called '-', write './-'.",
        )
    if not is_text(output):
        raise UsageError(f"the name {output!r} is not UTF-8", hint="Choose another: paths have to be UTF-8.")


def _is_folder(output: str) -> bool:
    if output.endswith(("/", os.sep)):
        return True
    location = reading_location(output)
    if isinstance(location, ObjectUrl):
        is_file = is_rrd(location.name)
        return not location.key or (not is_file and execution.Folder.at(location).exists())
    return location.is_dir()


def _resolved(location: Location) -> Location:
    return location if isinstance(location, ObjectUrl) else location.resolve()


def _refuse_clashes(jobs: list[ConversionJob]) -> None:
    sources = {_resolved(job.source) for job in jobs}
    taken: dict[Location, Location] = {}
    for job in jobs:
        target = _resolved(job.destination)
        if target in sources:
            raise UsageError(
                "this file is an input and would be overwritten",
                path=str(job.destination),
                hint="Choose another output.",
            )
        if target in taken:
            raise UsageError(
                f"both {taken[target]} and {job.source} would be written to this file",
                path=str(job.destination),
                hint="Convert them into different folders.",
            )
        taken[target] = job.source


def progress_bar(label: str, *, quiet: bool) -> AbstractContextManager[ProgressListener | None]:
    """The bar of a run on stderr; none where that is no terminal, for which rich need not be loaded."""
    if quiet or not (sys.stderr.isatty() or os.environ.get("FORCE_COLOR")):
        return nullcontext()
    from ..execution import ProgressBar

    return ProgressBar(label, quiet=quiet)


def convert_one(job: ConversionJob, options: ConvertOptions, progress: ProgressListener | None) -> RunReport:
    """Convert one input on the executor that is asked for. Raises ``ChunkmillError``; then nothing is written.

    An RRD keeps all its recordings and blueprints; the filter and the pipeline are for recordings.
    """
    from ..stream import write_stores

    stores = stores_of(job, options)
    if options.shards:
        return _write_shards(job, stores, options, progress)
    return write_stores(
        job.destination,
        stores,
        executor=options.executor,
        master=options.master,
        conf=options.conf or None,
        progress=progress,
    )


def stores_of(job: ConversionJob, options: ConvertOptions) -> Stores:
    """The stores that one input becomes. Raises ``ChunkmillError`` where it cannot be opened."""
    return laid_out(_opened(job, options), options)


def stores_by_id(jobs: Iterable[ConversionJob], options: ConvertOptions) -> Stores:
    """The stores that several inputs become together: those of one kind and id are one, in the order of the inputs."""
    from ..stream import LazyChunkStream

    found: dict[StoreEntry, list[LazyChunkStream]] = {}
    for job in jobs:
        for store, stream in _opened(job, options):
            found.setdefault(store, []).append(stream)
    merged = [(store, some[0] if len(some) == 1 else LazyChunkStream.merge(*some)) for store, some in found.items()]
    return laid_out(merged, options)


def laid_out(stores: Stores, options: ConvertOptions) -> Stores:
    """The stores with the chunks of recordings laid out anew, where that is asked for: those are collected here."""
    profile = profile_of(options.optimize)
    if profile is None:
        return stores

    def again(stream: LazyChunkStream) -> LazyChunkStream:
        return stream.collect(optimize=profile, executor=options.executor, master=options.master).stream()

    return [(store, again(stream) if store.kind == "recording" else stream) for store, stream in stores]


def _opened(job: ConversionJob, options: ConvertOptions) -> Stores:
    choices = {choice.name: getattr(options, choice.name) for choice in fields(inputs.SourceOptions)}
    return inputs.stores_of(job.source, job.name, inputs.SourceOptions(**choices), job.episode)


def _write_shards(
    job: ConversionJob, stores: Stores, options: ConvertOptions, progress: ProgressListener | None
) -> RunReport:
    """Write the one recording of an input as a folder of shards. Raises ``UsageError`` where there are several."""
    recordings = [(store, stream) for store, stream in stores if store.kind == "recording"]
    if len(recordings) != 1:
        raise UsageError(
            f"--shards takes one recording, but the input contains {len(recordings)}", path=str(job.source)
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
    """The warnings on an input that are said once of all inputs together, by :func:`advise_after`."""
    is_advised = isinstance(job.destination, Path) and not options.shards and options.pipeline is None
    return (UnmatchedWarning,) if is_advised else ()


def tell_result(job: ConversionJob, result: RunReport, options: ConvertOptions) -> None:
    """Print the line on a finished input, and a warning where nothing was in it."""
    if not result.chunks:
        complain(f"{job.source}: no chunks were left to write; {job.destination} is an empty recording", kind="warning")
    if not options.quiet:
        click.echo(summary(job.source, job.destination, result), err=True)


def summary(source: object, destination: object, result: RunReport) -> str:
    """The line on what was converted.

    >>> from chunkmill.engine.reports import RunReport
    >>> summary("drive.mcap", "drive.rrd", RunReport(2, 18, 3513, 782_496, 1_204_000, 1.25))
    'drive.mcap -> drive.rrd: 3,513 rows in 18 chunks, 782.5 kB -> 1.2 MB, 1.2 s'
    """
    return (
        f"{source} -> {destination}: {result.rows:,} rows in {result.chunks:,} chunks, "
        f"{size(result.bytes_in)} -> {size(result.bytes_out)}, {duration(result.seconds)}"
    )
