"""The streams that one input becomes, whatever its format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ... import readers
from ..errors import ReadError, UsageError
from ..execution.choice import executor_name
from ..locations import Location
from ..pipelines import Pipeline
from ..rrd import StoreEntry
from ..stream import LazyChunkStream
from .formats import Format, detect_format

APPLICATION_ID = "chunkmill"
"""The application id of a recording that comes from a file without one."""

Stores = list[tuple[StoreEntry, LazyChunkStream]]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How inputs are read. ``None`` and empty mean: not given.

    ``content`` filters entities, ``topics`` and ``exclude_topics`` are regular expressions over an MCAP's topics,
    ``parquet`` are arguments of :class:`ParquetReader`, ``recover`` takes what can be read of a damaged file.
    ``application_id`` and ``recording_id`` replace those of the file; ``executor`` is who will run it.
    """

    content: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    exclude_topics: tuple[str, ...] = ()
    pipeline: Pipeline | None = None
    parquet: Mapping[str, Any] = field(default_factory=dict)
    application_id: str | None = None
    recording_id: str | None = None
    recover: bool = False
    executor: str | None = None


def stores_of(source: Location, name: str, options: SourceOptions, episode: int | None = None) -> Stores:
    """The stores that one input becomes; ``name`` is the id of a recording whose file has none.

    An RRD keeps all its recordings and blueprints; the filter and the pipeline are for recordings. ``episode``: which
    one of a LeRobot dataset. Raises ``ChunkmillError`` where the input cannot be opened.
    """
    kind = detect_format(source)
    if kind is Format.RRD:
        return _from_rrd(source, options)
    return _one(_STREAMS[kind](source, options, episode), name, options)


def _from_mcap(source: Location, options: SourceOptions, _episode: int | None) -> LazyChunkStream:
    reader = readers.McapReader(
        source,
        include_topic_regex=options.topics or None,
        exclude_topic_regex=options.exclude_topics or None,
        recover=options.recover,
    )
    return reader.stream()


def _from_parquet(source: Location, options: SourceOptions, _episode: int | None) -> LazyChunkStream:
    return readers.ParquetReader(source, **options.parquet).stream()


def _from_lerobot(source: Location, _options: SourceOptions, episode: int | None) -> LazyChunkStream:
    assert isinstance(source, Path)
    return _dataset(source).episode(episode or 0).stream()


_STREAMS = {Format.LEROBOT: _from_lerobot, Format.MCAP: _from_mcap, Format.PARQUET: _from_parquet}


@lru_cache(maxsize=1)
def _dataset(path: Path) -> readers.LeRobotDataset:
    """The dataset that the episodes of a run are of; what its ``meta`` says is read once."""
    return readers.LeRobotDataset(path)


def _one(stream: LazyChunkStream, name: str, options: SourceOptions) -> Stores:
    store = StoreEntry("recording", options.application_id or APPLICATION_ID, options.recording_id or name)
    return [(store, _piped(stream, options))]


def _from_rrd(source: Location, options: SourceOptions) -> Stores:
    reader = readers.RrdReader(source, recover=options.recover)
    recordings = reader.recordings()
    if len(recordings) > 1 and options.recording_id is not None:
        raise UsageError(
            f"--recording-id names one recording, and the file holds {len(recordings)}",
            path=str(source),
            hint="Leave it out: each recording then keeps its own.",
        )
    stores: Stores = []
    for store in recordings:
        application_id = options.application_id or store.application_id
        renamed = StoreEntry("recording", application_id, options.recording_id or store.recording_id)
        stores.append((renamed, _piped(reader.stream(store=store), options)))
    for store in reader.blueprints():
        # A viewer finds a blueprint by the application id of its recording.
        renamed = StoreEntry("blueprint", options.application_id or store.application_id, store.recording_id)
        stores.append((renamed, reader.stream(store=store)))
    if not stores:
        raise ReadError("the file holds neither a recording nor a blueprint", path=str(source))
    return stores


def _piped(stream: LazyChunkStream, options: SourceOptions) -> LazyChunkStream:
    """The stream through the filter and the pipeline that were asked for."""
    if options.content:
        stream = stream.filter(content=list(options.content))
    if options.pipeline is None:
        return stream
    made = options.pipeline.apply(stream)
    if executor_name(options.executor) == "spark":
        options.pipeline.check_travels(made)
    return made
