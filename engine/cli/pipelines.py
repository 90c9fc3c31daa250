"""The pipeline of one conversion, from its reader to ``write_rrd``."""

from __future__ import annotations

from ...readers import McapReader, RrdReader
from ..execution.progress import ProgressListener
from .formats import Format, detect_format
from .inputs import Job
from .options import ConvertOptions

APPLICATION_ID = "chunkmill"
"""The application id of a recording that comes from an MCAP, which has none."""


def convert_one(job: Job, options: ConvertOptions, progress: ProgressListener) -> None:
    """Convert one input on the executor that is asked for. Raises ``ChunkmillError``; then nothing is written."""
    source = str(job.source)
    if detect_format(job.source) is Format.MCAP:
        stream = McapReader(
            source,
            include_topic_regex=list(options.topics) or None,
            exclude_topic_regex=list(options.exclude_topics) or None,
        ).stream()
        application_id, recording_id = APPLICATION_ID, job.name
    else:
        reader = RrdReader(source)
        store = reader.recordings()[0]
        stream = reader.stream(store=store)
        application_id, recording_id = store.application_id, store.recording_id
    if options.content:
        stream = stream.filter(content=list(options.content))
    stream.write_rrd(
        str(job.destination),
        application_id=options.application_id or application_id,
        recording_id=options.recording_id or recording_id,
        executor=options.executor,
        progress=progress,
    )
