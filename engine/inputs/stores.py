"""The streams that one input becomes, whatever its format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...readers import detect_format
from ..errors import ReadError, UsageError
from ..execution import executor_name
from ..locations import Location
from ..pipelines import Pipeline
from ..rrd import StoreEntry
from ..stream import LazyChunkStream

APPLICATION_ID = "chunkmill"
"""The application id of a recording that comes from a file without one."""

Stores = list[tuple[StoreEntry, LazyChunkStream]]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The choices on reading inputs. ``None`` and empty mean: not given.

    ``content`` filters entities, ``reading`` are options of formats by their names, of which each input takes those
    of its own. ``application_id`` and ``recording_id`` replace those of the file; ``executor`` is who will run it.
    """

    content: tuple[str, ...] = ()
    pipeline: Pipeline | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    application_id: str | None = None
    recording_id: str | None = None
    executor: str | None = None


def stores_of(source: Location, name: str, options: SourceOptions, episode: int | None = None) -> Stores:
    """The stores that one input becomes; ``name`` is the id of a recording whose file has none.

    The filter and the pipeline are for recordings, and not for blueprints. ``episode``: which one of a folder that
    holds many. Raises ``ChunkmillError`` where the input cannot be opened.
    """
    chosen = {} if episode is None else {"episode": episode}
    found = detect_format(source).open(source, {**options.reading, **chosen}).stores()
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
