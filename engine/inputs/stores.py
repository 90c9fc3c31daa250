"""One input of any format: the streams that it becomes, and all of it verified."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...readers import STORE, Format, detect_format
from ..chunk import Chunk, TimeBounds, timeline_called
from ..errors import ReadError, SourceMissingError, UsageError
from ..locations import Location, reading_location
from ..rrd import StoreEntry

if TYPE_CHECKING:
    from ..pipelines import Pipeline
    from ..rrd import Verification
    from ..stream import LazyChunkStream

APPLICATION_ID = "chunkmill"
"""The application id of a recording that comes from a file without one."""

_LOG_TIME = "message_log_time"

Stores: TypeAlias = "list[tuple[StoreEntry, LazyChunkStream]]"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The choices on reading inputs. ``None`` and empty mean: not given.

    ``content`` filters entities, ``reading`` are options of formats by their names, of which each input takes those
    of its own. ``bounds`` are those of the rows that are kept, beside what is static. ``application_id`` and
    ``recording_id`` replace those of the file; ``executor`` is who will run it.
    """

    content: tuple[str, ...] = ()
    pipeline: Pipeline | None = None
    bounds: TimeBounds | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    application_id: str | None = None
    recording_id: str | None = None
    executor: str | None = None


def stores_of(source: Location, name: str, options: SourceOptions, episode: int | str | None = None) -> Stores:
    """The stores that one input becomes; ``name`` is the id of a recording whose file has none.

    The filter and the pipeline are for recordings, and not for blueprints. ``episode``: which one of a folder that
    holds many. Raises ``ChunkmillError`` where the input cannot be opened.
    """
    row = detect_format(source)
    reading = {**_read_within(row, options), **options.reading}
    found = row.open(source, {**reading, **row.choosing(episode)}).stores()
    named = [store for store, _ in found if store is not None and store.kind == "recording"]
    if len(named) > 1 and options.recording_id is not None:
        raise UsageError(
            f"--recording-id names one recording, and the file holds {len(named)}",
            path=str(source),
            hint="Leave it out: each recording then keeps its own.",
        )
    if not found:
        raise ReadError("the file holds neither a recording nor a blueprint", path=str(source))
    return [_renamed(store, stream, name, options) for store, stream in found]


def verify(path: str | os.PathLike[str]) -> Verification:
    """Read and decode all of a recording of any format, or of a store, and compare all that it says of itself.

    Every checksum and digest is compared, every chunk is decoded, and footers, manifests and indexes are compared with
    what is there. Reads a few megabytes at a time, in this process. Raises ``SourceMissingError`` where there is
    nothing under that path, ``UnsupportedError`` for a file of another format.

    Parameters
    ----------
    path
        A file, a folder of a format whose recordings are folders, a store of recordings, or the URL of one of these.

    Returns
    -------
    Verification
        The ``faults``, each a ``ReadError`` with its file and offset, and what could be read.
    """
    from ..rrd import Findings

    location = reading_location(path)
    row = detect_format(location)
    episodes = () if row is STORE else row.open(location).episodes()
    if not episodes:
        return row.open(location).verify()
    found = Findings()
    for episode in episodes:
        try:
            found.add(row.open(location, row.choosing(episode.number)).verify())
        except SourceMissingError as error:  # a file of the dataset
            found.fault(error)
    return found.verification()


def _renamed(
    store: StoreEntry | None, stream: LazyChunkStream, name: str, options: SourceOptions
) -> tuple[StoreEntry, LazyChunkStream]:
    """The store under the ids that were asked for, with its stream."""
    known = store or StoreEntry("recording", APPLICATION_ID, name)
    application_id = options.application_id or known.application_id
    if known.kind == "blueprint":  # a viewer finds it by the application id of its recording
        return StoreEntry("blueprint", application_id, known.recording_id), stream
    renamed = StoreEntry("recording", application_id, options.recording_id or known.recording_id)
    return renamed, _piped(stream, options)


@dataclass(frozen=True, slots=True)
class _Within:
    """Keeps rows within a range of times, and what is static; a chunk that lies in it whole stays as it is."""

    bounds: TimeBounds

    def __call__(self, chunk: Chunk) -> list[Chunk]:
        """The chunk, what is left of it, or nothing."""
        if chunk.is_static:
            return [chunk]
        name = timeline_called(self.bounds.timeline, chunk.timeline_names)
        line = next((t for t in chunk.header.timelines if t.name == name), None)
        if line is None or line.start is None or line.end is None:
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
    """The range of log times that an MCAP is to be read in, where that says the same: other chunks stay unread."""
    bounds = options.bounds
    if row.name != "mcap" or bounds is None or timeline_called(bounds.timeline, [_LOG_TIME]) is None:
        return {}
    if options.reading.keys() & {"timestamp_offset_ns", "timeline_type"}:
        return {}
    times = {"start_time_ns": bounds.start, "end_time_ns": bounds.end}
    return {name: time for name, time in times.items() if time is not None and time >= 0}


def _piped(stream: LazyChunkStream, options: SourceOptions) -> LazyChunkStream:
    """The stream through the filter and the pipeline that were asked for."""
    if options.content:
        stream = stream.filter(content=list(options.content))
    if options.bounds is not None:
        stream = stream.flat_map(_Within(options.bounds))
    if options.pipeline is None:
        return stream
    from ..execution import executor_name

    made = options.pipeline.apply(stream)
    if executor_name(options.executor) == "spark":
        options.pipeline.check_travels(made)
    return made
