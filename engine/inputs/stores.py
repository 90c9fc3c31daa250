"""Inputs of any format: finding them by path, opening their streams, and verifying them."""

from __future__ import annotations

import glob
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...readers import FORMATS, STORE, Format, all_suffixes, detect_format, format_of_name
from ..chunk import Chunk, TimeBounds, timeline_called
from ..errors import ReadError, ReadWarning, SourceMissingError, UsageError
from ..limits import is_text
from ..locations import Location, files_below, fixed_part, reading_location
from ..rrd import StoreEntry
from ..storage import ObjectUrl, find_objects, is_one_object

if TYPE_CHECKING:
    from ..pipelines import Pipeline
    from ..rrd import Verification
    from ..stream import LazyChunkStream

APPLICATION_ID = "chunkmill"
"""The application id of a recording that comes from a file without one."""

_LOG_TIME = "message_log_time"
_CLAMPED = 2**63  # log times from here on are read as the latest time of a timeline

Stores: TypeAlias = "list[tuple[StoreEntry, LazyChunkStream]]"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options for reading inputs; ``None`` and empty values are defaults.

    ``content`` filters entities. ``reading`` has options of formats by name; each input uses those of its own format.
    ``bounds`` limits the rows to keep; static rows are always kept. ``application_id`` and ``recording_id`` replace
    those of the file. ``executor`` is the executor of the run.
    """

    content: tuple[str, ...] = ()
    pipeline: Pipeline | None = None
    bounds: TimeBounds | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    application_id: str | None = None
    recording_id: str | None = None
    executor: str | None = None


@dataclass(frozen=True, slots=True)
class FoundInput:
    """An input: a file, or a folder that is one recording or dataset, with its format as ``dataset``.

    ``below`` is the path relative to the searched folder, or the name.
    """

    path: Location
    below: PurePath
    dataset: Format | None = None


Tell = Callable[[str, str], None]
"""Called with each skipped path, and the reason."""


def search_inputs(
    location: Location, row: Format | None = None, tell: Tell = lambda _path, _why: None
) -> Iterator[FoundInput]:
    """Find the inputs at a path: a file, or the inputs in a folder, below a prefix or for a pattern, sorted by path.

    Folders and their subfolders are searched for inputs of the format ``row``, by default of any format. Hidden names
    are left out. A shard of a store of recordings counts as its store. A missing file is reported later, by its reader.
    Raises ``SourceMissingError`` if a folder, pattern or prefix has no input, ``UsageError`` for a folder within a
    store.
    """
    yield from _Search(tuple(FORMATS.values()) if row is None else (row,), tell).inputs(location)


class _Search:
    """A search for inputs of some formats."""

    def __init__(self, rows: tuple[Format, ...], tell: Tell) -> None:
        self._rows = rows
        self._tell = tell
        self._suffixes = rows[0].suffixes if len(rows) == 1 else all_suffixes()
        self._stores: dict[Location, bool] = {}
        self._given: set[Location] = set()

    def inputs(self, location: Location) -> Iterator[FoundInput]:
        """The inputs at a path."""
        if isinstance(location, ObjectUrl):
            yield from self._in_store(location)
        elif location.is_dir():
            yield from self._in_folder(location)
        elif glob.has_magic(str(location)) and not os.path.lexists(location):
            yield from self._matching(str(location))
        else:
            yield FoundInput(location, PurePath(location.name))

    def _in_store(self, url: ObjectUrl) -> Iterator[FoundInput]:
        if not url.is_pattern:
            if format_of_name(url.name) in self._rows or is_one_object(url):
                yield FoundInput(url, PurePosixPath(url.name))
                return
            dataset = self._dataset(url)
            if dataset is not None:
                yield FoundInput(url, PurePosixPath(), dataset)
                return
        for entry in find_objects(url, self._suffixes):
            yield from self._file_or_store(entry.url, entry.below)

    def _in_folder(self, folder: Path) -> Iterator[FoundInput]:
        if self._is_store(folder.absolute().parent):
            raise UsageError(
                "this folder is part of a store, and may contain replaced recordings",
                path=str(folder),
                hint="Give the folder of the store.",
            )
        datasets: dict[Path, Format] = {}

        def is_input(path: Path) -> bool:
            dataset = self._dataset(path)
            if dataset is not None:
                datasets[path] = dataset
            return dataset is not None

        nothing = True
        for path in files_below(folder, self._suffixes, is_input=is_input, tell=self._tell):
            if path in datasets or self._is_recording(path):
                nothing = False
                yield FoundInput(path, path.relative_to(folder), datasets.get(path))
        if nothing:
            raise SourceMissingError(
                "the folder contains no recording", path=str(folder), hint=f"Looked for {self._wanted()}."
            )

    def _matching(self, pattern: str) -> Iterator[FoundInput]:
        fixed, whole, nothing = fixed_part(pattern), None, True
        for path in map(Path, sorted(glob.glob(pattern, recursive=True))):  # noqa: PTH207 (takes absolute patterns too)
            if whole is not None and path.is_relative_to(whole):
                continue
            inner = path.relative_to(fixed)
            dataset = self._dataset(path) if path.is_dir() else None
            if dataset is not None:
                whole = path
                inputs = iter([FoundInput(path, inner, dataset)])
            elif self._is_recording(path):
                inputs = self._file_or_store(path, inner)
            else:
                continue
            nothing = False
            yield from inputs
        if nothing:
            raise SourceMissingError(
                "no recording matches this pattern", path=pattern, hint=f"Looked for {self._wanted()}."
            )

    def _file_or_store(self, file: Location, below: PurePath) -> Iterator[FoundInput]:
        """Yield the file, or for a shard its store, once."""
        store = file.parent.parent
        if file.parent.name != "shards" or not self._is_store(store):
            yield FoundInput(file, below)
        elif store not in self._given:
            self._given.add(store)
            yield FoundInput(store, PurePath(*below.parts[:-2]), STORE)

    def _dataset(self, folder: Location) -> Format | None:
        dataset_format = next((row for row in self._rows if row.is_dataset(folder)), None)
        # The folder `catalog` of a catalog has versions, too, and no recordings.
        is_store = dataset_format is not STORE or isinstance(folder, ObjectUrl) or (folder / "tables").is_dir()
        return dataset_format if is_store else None

    def _is_store(self, folder: Location) -> bool:
        """Return whether this is a store of recordings and stores are searched for."""
        if STORE not in self._rows:
            return False
        if folder not in self._stores:
            self._stores[folder] = STORE.is_dataset(folder)
        return self._stores[folder]

    def _is_recording(self, path: Path) -> bool:
        """Return whether this is a recording by its name, and a file; warn if only the name matches."""
        if not path.name.lower().endswith(self._suffixes) or path.name.startswith(".") or path.is_dir():
            return False
        if not path.is_file():
            is_link = path.is_symlink()
            self._tell(
                str(path), "is a link to a file that does not exist" if is_link else "is not a file, and is skipped"
            )
        elif not is_text(str(path)):
            self._tell(repr(str(path)), "has a name that is not UTF-8, and is skipped; rename it")
        else:
            return True
        return False

    def _wanted(self) -> str:
        if self._suffixes:
            return f"{', '.join(self._suffixes)} files"
        return f"folders with {self._rows[0].marker}"


def stores_of(source: Location, name: str, options: SourceOptions, episode: int | str | None = None) -> Stores:
    """Open an input as stores with streams; ``name`` is the id for a recording without one.

    Filter and pipeline apply to recordings, not to blueprints. ``episode`` selects one in a folder with several. Raises
    ``ChunkmillError`` if the input cannot be opened.
    """
    row = detect_format(source)
    times = _read_within(row, options)
    reading = {**times, **options.reading}
    within = options.bounds is not None and len(times) == len(times.keys() - options.reading.keys()) == sum(
        bound is not None for bound in (options.bounds.start, options.bounds.end)
    )
    stores = row.open(source, {**reading, **row.choosing(episode)}).stores()
    named = [store for store, _ in stores if store is not None and store.kind == "recording"]
    if len(named) > 1 and options.recording_id is not None:
        raise UsageError(
            f"--recording-id names one recording, but the file contains {len(named)}",
            path=str(source),
            hint="Leave it out: each recording then keeps its own id.",
        )
    if not stores:
        raise ReadError("the file contains neither a recording nor a blueprint", path=str(source))
    return [_renamed(store, stream, name, options, within=within) for store, stream in stores]


def is_table(location: Location) -> bool:
    """Return True if a folder or a prefix of an object store is a Lance table."""
    from ..lance import LanceTable

    if isinstance(location, Path) and not (location / "_versions").is_dir():
        return False
    if isinstance(location, ObjectUrl) and (location.is_read_only or format_of_name(location.name) is not None):
        return False
    return bool(LanceTable(location, location.name).versions())


def verify(path: str | os.PathLike[str]) -> Verification:
    """Read and decode a recording of any format, a store or a table, completely, and verify it.

    Every checksum and digest is verified, every chunk is decoded, and footers, manifests and indexes are compared with
    the data. The files of a table are compared with the digests that commits have stored; the result lists files
    without digests. Reads a few megabytes at a time, in this process. Raises ``SourceMissingError`` if there is nothing
    under that path, ``UnsupportedError`` for a file of another format.

    Parameters
    ----------
    path
        A file, a folder of a format whose recordings are folders, a store of recordings, a table, or the URL of one of
        these.

    Returns
    -------
    Verification
        The ``faults``, each a ``ReadError`` with its file and offset, and counts of the readable data. For a table it
        is a ``TableVerification``.
    """
    from ..rrd import Findings

    location = reading_location(path)
    if is_table(location):
        from ..lance import LanceTable

        return LanceTable(location, location.name.removesuffix(".lance")).verify()
    row = detect_format(location)
    episodes = () if row is STORE else row.open(location).episodes()
    if not episodes:
        return row.open(location).verify()
    findings = Findings()
    for episode in episodes:
        try:
            findings.add(row.open(location, row.choosing(episode.number)).verify())
        except SourceMissingError as error:  # a file of the dataset
            findings.fault(error)
    return findings.verification()


def _renamed(
    store: StoreEntry | None, stream: LazyChunkStream, name: str, options: SourceOptions, *, within: bool
) -> tuple[StoreEntry, LazyChunkStream]:
    """Return the store under the requested ids, with its stream."""
    entry = store or StoreEntry("recording", APPLICATION_ID, name)
    application_id = options.application_id or entry.application_id
    if entry.kind == "blueprint":  # a viewer finds it by the application id of its recording
        return StoreEntry("blueprint", application_id, entry.recording_id), stream
    renamed = StoreEntry("recording", application_id, options.recording_id or entry.recording_id)
    return renamed, _piped(stream, options, within=within)


@dataclass(frozen=True, slots=True)
class _Within:
    """Keeps static rows and rows within a range of times; a chunk entirely inside stays unchanged."""

    bounds: TimeBounds

    def __call__(self, chunk: Chunk) -> list[Chunk]:
        """The chunk, its rows within the bounds, or nothing."""
        if chunk.is_static:
            return [chunk]
        name = timeline_called(self.bounds.timeline, chunk.timeline_names)
        line = next((t for t in chunk.header.timelines if t.name == name), None)
        if line is None:
            text = f"rows that lack the timeline {self.bounds.timeline!r} are left out; they have"
            warnings.warn(f"{text} {', '.join(chunk.timeline_names)}", ReadWarning, stacklevel=2)
            return []
        if line.start is None or line.end is None:
            return []
        start, end = self.bounds.start, self.bounds.end
        if (start is not None and line.end < start) or (end is not None and line.start >= end):
            return []
        if (start is None or line.start >= start) and (end is None or line.end < end):
            return [chunk]
        inside = self.bounds.rows(chunk.data)
        if inside is None:
            return [chunk]
        return [Chunk.from_data(chunk.data.take(np.flatnonzero(inside)))] if inside.any() else []


def _read_within(row: Format, options: SourceOptions) -> dict[str, int]:
    """Return the range of log times in which to read an MCAP or bag, if equivalent: other chunks stay unread."""
    bounds = options.bounds
    has_range = any(o.name == "start_time_ns" for o in row.options)
    if not has_range or bounds is None or timeline_called(bounds.timeline, [_LOG_TIME]) is None:
        return {}
    if options.reading.keys() & {"timestamp_offset_ns", "timeline_type"}:
        return {}
    times = {"start_time_ns": bounds.start, "end_time_ns": bounds.end}
    return {name: time for name, time in times.items() if time is not None and 0 <= time < _CLAMPED}


def _piped(stream: LazyChunkStream, options: SourceOptions, *, within: bool) -> LazyChunkStream:
    """Return the stream through the requested filter and pipeline; ``within``: the reader keeps to the bounds."""
    if options.content:
        stream = stream.filter(content=list(options.content))
    if options.bounds is not None and not within:
        stream = stream.flat_map(_Within(options.bounds))
    if options.pipeline is None:
        return stream
    from ..execution import executor_name

    made = options.pipeline.apply(stream)
    if executor_name(options.executor) == "spark":
        options.pipeline.check_travels(made)
    return made
