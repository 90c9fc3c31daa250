"""The pipelines of one conversion, from its reader to the RRD."""

from __future__ import annotations

from .. import inputs
from ..execution.progress import ProgressListener
from ..inputs import SourceOptions, Stores
from ..reports import RunReport
from ..stream import write_stores
from .inputs import Job
from .options import ConvertOptions


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
    return inputs.stores_of(job.source, job.name, source_options(options), job.episode)


def source_options(options: ConvertOptions) -> SourceOptions:
    """What the options say of how inputs are read."""
    return SourceOptions(
        content=options.content,
        pipeline=options.pipeline,
        reading=options.reading,
        application_id=options.application_id,
        recording_id=options.recording_id,
        executor=executor_of(options),
    )


def executor_of(options: ConvertOptions) -> str | None:
    """The executor that is asked for; who names a Spark master or setting wants Spark, whatever the environment."""
    wants_spark = options.master is not None or bool(options.conf)
    return options.executor or ("spark" if wants_spark else None)
