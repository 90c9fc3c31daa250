"""The inputs of ``chunkmill query``: a dataset, a store, or recordings of any format."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from ...readers import STORE, RrdReader, detect_format
from .. import inputs
from ..catalog import Queried, chosen_segments, is_catalog, queried_at
from ..errors import UsageError
from ..locations import located
from ..query import HeldRecording, Query, QuerySemantics, queried_recordings
from ..rrd import RrdFile
from ..store import ChunkStore, LazyStore, segment_of
from .complaints import warnings_as_lines
from .jobs import Input, distinct_inputs
from .options import QueryOptions
from .outputs import check_apart


def queried(arguments: Sequence[str], options: QueryOptions) -> Queried:
    """The columns of the answer, and the segments that arguments mean. Raises ``ChunkmillError``."""
    query = Query.of(
        options.index,
        options.contents or None,
        fill_latest_at=options.fill,
        using_index_values=options.values,
        semantics=QuerySemantics.of(options.semantics),
    )
    first = located(arguments[0])
    if is_catalog(first):
        if len(arguments) > 2:
            raise UsageError(
                f"a catalog and {len(arguments) - 1} more inputs were given",
                path=arguments[0],
                hint="Give a catalog and one of its datasets.",
            )
        return queried_at(first, arguments[1] if len(arguments) == 2 else None, query, options.segments)
    if len(arguments) == 1 and STORE.is_dataset(first):
        return queried_at(first, None, query, options.segments)
    found = _recordings(arguments, options)
    chosen = chosen_segments(options.segments, list(found)) if options.segments else found
    return queried_recordings(query, [found[segment_id] for segment_id in chosen])


def _recordings(arguments: Sequence[str], options: QueryOptions) -> dict[str, HeldRecording]:
    """The recordings of files, by their ids; those of one id are one."""
    found: dict[str, list[HeldRecording]] = {}
    items = distinct_inputs(arguments)
    if options.output is not None:
        check_apart(options.output, (item.path for item in items))
    for item in items:
        with warnings_as_lines(item.path):
            for segment_id, store in _stores_of(item, options):
                found.setdefault(segment_id, []).append(segment_of(store, segment_id))
    return {segment_id: HeldRecording.of(parts) for segment_id, parts in found.items()}


def _stores_of(item: Input, options: QueryOptions) -> Iterator[tuple[str, LazyStore | ChunkStore]]:
    """The recordings of an input: of an RRD with a footer by its manifest, of anything else the chunks in scratch."""
    row = detect_format(item.path)
    has_options = any(option.name in options.reading for option in row.options)
    if row.name == "rrd" and not has_options and RrdFile(item.path).has_footer:
        reader = RrdReader(item.path)
        for store in reader.recordings():
            yield store.recording_id, reader.store(store=store)
        return
    executor = options.executor or os.environ.get("CHUNKMILL_EXECUTOR") or "auto"
    choices = inputs.SourceOptions(content=options.contents, reading=options.reading, executor=executor)
    for store, stream in inputs.stores_of(item.path, "-".join(item.name.parts), choices, item.episode):
        if store.kind == "recording":
            yield store.recording_id, stream.collect(executor=executor, master=options.master)
