"""Recordings opened for Spark's data sources: each of these functions gives the tasks over one file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..engine.stream import ContentFilter, LazyChunkStream
from ..engine.stream.lazy_stream import single_tasks
from .mcap import McapReader
from .rrd import RrdReader

if TYPE_CHECKING:
    from ..engine.execution.data_sources import Request
    from ..engine.execution.work import Work


def open_mcap(path: str, request: Request) -> Sequence[Work]:
    """The splits of an MCAP file; of it only the topics that are asked for."""
    topics = None if request.topics is None else [f"^{re.escape(topic)}$" for topic in request.topics]
    return _tasks(McapReader(path, include_topic_regex=topics).stream(), request)


def open_rrd(path: str, request: Request) -> Sequence[Work]:
    """The splits of the first recording of an RRD."""
    return _tasks(RrdReader(path).stream(), request)


def _tasks(stream: LazyChunkStream, request: Request) -> Sequence[Work]:
    if request.content is not None:
        stream = stream.filter(content=request.content)
    for wanted in request.pushed:
        content = None if wanted.entity_paths is None else _exactly(wanted.entity_paths)
        if content is not None or wanted.is_static is not None:
            stream = stream.filter(content=content, is_static=wanted.is_static)
    return single_tasks(stream)


def _exactly(entity_paths: Sequence[str]) -> ContentFilter | None:
    """A filter for these entities; None where one of them is no canonical path, so that Spark's own filter decides."""
    if any(re.search(r"(?<!\\)\s", path) for path in entity_paths):
        return None
    try:
        return ContentFilter(path if path.startswith("/") else "/" + path for path in entity_paths)
    except ValueError:
        return None
