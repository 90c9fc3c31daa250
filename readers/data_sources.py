"""Recordings opened for Spark's data sources: each of these functions gives the tasks over one file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..engine.errors import UsageError
from ..engine.stream import ContentFilter, LazyChunkStream
from ..engine.stream.lazy_stream import single_tasks
from .mcap import McapReader
from .parquet import ParquetReader
from .rrd import RrdReader

if TYPE_CHECKING:
    from ..engine.execution.data_sources import Request
    from ..engine.execution.work import Work


def open_mcap(path: str, request: Request) -> Sequence[Work]:
    """The splits of an MCAP file; of it only the topics that are asked for."""
    topics = None if request.topics is None else [f"^{re.escape(topic)}$" for topic in request.topics]
    return _tasks(McapReader(path, include_topic_regex=topics).stream(), request)


def open_parquet(path: str, request: Request) -> Sequence[Work]:
    """The splits of a Parquet file."""
    own = dict(request.own)
    arguments: dict[str, Any] = {key: own[key] for key in ("column_grouping", "entity_path_prefix") if key in own}
    if "index_columns" in own:
        arguments["index_columns"] = [tuple(entry.split(":")) for entry in _listed(own["index_columns"])]
    if "static_columns" in own:
        arguments["static_columns"] = _listed(own["static_columns"])
    if "use_structs" in own:
        arguments["use_structs"] = _flag("use_structs", own["use_structs"])
    return _tasks(ParquetReader(path, **arguments).stream(), request)


def open_rrd(path: str, request: Request) -> Sequence[Work]:
    """The splits of the first recording of an RRD."""
    return _tasks(RrdReader(path).stream(), request)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _flag(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise UsageError(f"option {name!r}: 'true' or 'false' was expected, got {text!r}")
    return text.strip().lower() == "true"


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
