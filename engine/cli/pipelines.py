"""The pipelines of one conversion, from its reader to the RRD."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from ... import readers
from ..errors import ReadError, UsageError
from ..execution.choice import executor_name
from ..execution.progress import ProgressListener
from ..reports import RunReport
from ..rrd import StoreEntry
from ..stream import LazyChunkStream, write_stores
from .formats import Format, detect_format
from .inputs import Job
from .options import ConvertOptions

APPLICATION_ID = "chunkmill"
"""The application id of a recording that comes from a file without one."""

Stores = list[tuple[StoreEntry, LazyChunkStream]]


def convert_one(job: Job, options: ConvertOptions, progress: ProgressListener) -> RunReport:
    """Convert one input on the executor that is asked for. Raises ``ChunkmillError``; then nothing is written.

    An RRD keeps all its recordings and blueprints; the filter and the pipeline are for recordings.
    """
    return write_stores(
        job.destination,
        stores_of(job, options),
        executor=executor_of(options),
        master=options.master,
        conf=options.conf or None,
        progress=progress,
    )


def stores_of(job: Job, options: ConvertOptions) -> Stores:
    """The stores that one input becomes. Raises ``ChunkmillError`` where it cannot be opened."""
    return _STORES[detect_format(job.source)](job, options)


def executor_of(options: ConvertOptions) -> str | None:
    """The executor that is asked for; who names a Spark master or setting wants Spark, whatever the environment."""
    wants_spark = options.master is not None or bool(options.conf)
    return options.executor or ("spark" if wants_spark else None)


def _from_mcap(job: Job, options: ConvertOptions) -> Stores:
    reader = readers.McapReader(
        job.source,
        include_topic_regex=options.topics or None,
        exclude_topic_regex=options.exclude_topics or None,
        recover=options.recover,
    )
    return _one(reader.stream(), job, options)


def _from_parquet(job: Job, options: ConvertOptions) -> Stores:
    return _one(readers.ParquetReader(job.source, **options.parquet.arguments()).stream(), job, options)


def _from_lerobot(job: Job, options: ConvertOptions) -> Stores:
    episode = _dataset(job.source).episode(job.episode or 0)
    return _one(episode.stream(), job, options)


@lru_cache(maxsize=1)
def _dataset(path: Path) -> readers.LeRobotDataset:
    """The dataset that the episodes of a run are of; what its ``meta`` says is read once."""
    return readers.LeRobotDataset(path)


def _one(stream: LazyChunkStream, job: Job, options: ConvertOptions) -> Stores:
    store = StoreEntry("recording", options.application_id or APPLICATION_ID, options.recording_id or job.name)
    return [(store, _piped(stream, options))]


def _from_rrd(job: Job, options: ConvertOptions) -> Stores:
    reader = readers.RrdReader(job.source, recover=options.recover)
    recordings = reader.recordings()
    if len(recordings) > 1 and options.recording_id is not None:
        raise UsageError(
            f"--recording-id names one recording, and the file holds {len(recordings)}",
            path=str(job.source),
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
        raise ReadError("the file holds neither a recording nor a blueprint", path=str(job.source))
    return stores


_STORES = {
    Format.LEROBOT: _from_lerobot,
    Format.MCAP: _from_mcap,
    Format.PARQUET: _from_parquet,
    Format.RRD: _from_rrd,
}


def _piped(stream: LazyChunkStream, options: ConvertOptions) -> LazyChunkStream:
    """The stream through the filter and the pipeline that were asked for."""
    if options.content:
        stream = stream.filter(content=list(options.content))
    if options.pipeline is None:
        return stream
    made = options.pipeline.apply(stream)
    if executor_name(executor_of(options)) == "spark":
        options.pipeline.check_travels(made)
    return made
