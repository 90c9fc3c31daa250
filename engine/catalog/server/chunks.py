"""Calls about chunks: which ones a query needs, what a segment has, and the chunks themselves, as they lie."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ...errors import NotFoundError
from ...rrd import ChunkTable, StoreEntry, build_manifest
from ..client import CatalogClient
from ..dataset import DatasetEntry
from ..entries import EntryKind
from .chunk_keys import ChunkKeys, LayerKey
from .entry_methods import dataset_of
from .envelopes import part_of, rows_in
from .fetching import EncodedMessage, encoded_chunks
from .messages import RrdManifest, cloud
from .methods import Call, Kind, Method, ProtocolError, Status
from .planning import ChunkQuery, Integers, chunk_ranges
from .served_layers import ServedLayers, StoredLayer

_LAYERS_AT_ONCE: Final = 256
"""Layers whose chunks are told in one message."""
_KEYS_AT_ONCE: Final = 8192
_MOST_BOUND: Final = (1 << 63) - 1
_CONTROL: Final = {"rerun:kind": "control"}
_LATEST_AT, _EARLIEST_AT = 2, 3

_FIXED: Final = (
    pa.field("chunk_id", pa.binary(16), False, _CONTROL),
    pa.field("chunk_segment_id", pa.string(), False, _CONTROL),
    pa.field("rerun_segment_layer", pa.string(), False, _CONTROL),
    pa.field("chunk_key", pa.binary(), False, _CONTROL),
    pa.field("chunk_entity_path", pa.string(), False, _CONTROL),
    pa.field("chunk_is_static", pa.bool_(), False, _CONTROL),
    pa.field("chunk_byte_len", pa.uint64(), False, _CONTROL),
    pa.field("chunk_byte_size_uncompressed", pa.uint64()),
)
_DIRECT: Final = (
    pa.field("rerun_layer_direct_url", pa.dictionary(pa.int32(), pa.string())),
    pa.field("rerun_layer_direct_url_expires_at", pa.dictionary(pa.int32(), pa.int64())),
)
_START: Final = pa.field("chunk_timeline_start", pa.int64())


class ChunkCalls:
    """The handlers, over one catalog."""

    def __init__(self, catalog: CatalogClient, layers: ServedLayers) -> None:
        self._catalog = catalog
        self._layers = layers
        self._keys = ChunkKeys(catalog, layers)

    def methods(self) -> tuple[Method, ...]:
        """The methods of this group."""
        return (
            Method.named("QueryDataset", Kind.STREAM, self._query),
            Method.named("FindChunks", Kind.STREAM, self._find),
            Method.named("FetchChunks", Kind.STREAM, self._fetch),
            Method.named("GetRrdManifest", Kind.STREAM, self._manifest),
        )

    # --- plans

    def _query(self, request: Any, call: Call) -> Iterator[Any]:
        dataset = dataset_of(self._catalog, call)
        if request.select_all_entity_paths and request.entity_paths:
            raise _bad("`entity_paths` and `select_all_entity_paths` exclude each other")
        layers = self._layers.of(dataset, [segment.id for segment in request.segment_ids] or None)
        lines = _timelines_of(layers)
        for query, some in _queries(request, layers, lines):
            for plan in self._plans(some, query, call):
                columns = [_starts(plan, name) for name in lines]
                fields = [_start_field(name) for name in lines]
                rows = self._batch(dataset, plan, fields, columns)
                yield cloud("QueryDatasetResponse")(data=part_of(rows))

    def _find(self, request: Any, call: Call) -> Iterator[Any]:
        dataset = dataset_of(self._catalog, call)
        query, segments = _found_query(request)
        layers = self._layers.of(dataset, segments)
        if query.timeline is not None:
            _check_timeline(query.timeline, layers, dataset)
        if query.window is not None and not query.latest_at:
            layers = _touching(layers, query.timeline or "", query.window)
        for plan in self._plans(layers, query, call):
            rows = self._batch(dataset, plan, [_START], [_starts(plan, request.range.timeline or query.timeline)])
            yield cloud("FindChunksResponse")(data=part_of(rows))

    def _plans(self, layers: Sequence[StoredLayer], query: ChunkQuery, call: Call) -> Iterator[list[_Planned]]:
        """The chunks that a query needs, some layers at a time; at least one answer, if an empty one."""
        for first in range(0, max(len(layers), 1), _LAYERS_AT_ONCE):
            found = []
            for layer in layers[first : first + _LAYERS_AT_ONCE]:
                call.check()
                if not layer.entry.chunks:
                    continue
                table = layer.folder.references(layer.entry).table
                rows = query.rows(table, layer.entry.recording_id)
                if len(rows):
                    found.append(_Planned(layer, table, rows))
            if found or not first:
                yield found

    def _batch(
        self, dataset: DatasetEntry, plan: Sequence[_Planned], fields: Sequence[pa.Field], columns: Sequence[pa.Array]
    ) -> pa.RecordBatch:
        """The rows of chunks: the columns of :data:`_FIXED`, more, and where else they are, which is nowhere."""
        keys = self._keys.made(dataset.id, [(planned.layer, planned.rows) for planned in plan])
        fixed, count = _fixed(plan, keys), len(keys)
        direct = [
            pa.DictionaryArray.from_arrays(pa.nulls(count, pa.int32()), pa.array([], f.type.value_type))
            for f in _DIRECT
        ]
        schema = pa.schema([*_FIXED, *fields, *_DIRECT])
        return pa.RecordBatch.from_arrays([*fixed, *columns, *direct], schema=schema)

    # --- chunks

    def _fetch(self, request: Any, call: Call) -> Iterator[EncodedMessage]:
        wanted: dict[LayerKey, array[int]] = {}
        layers: dict[LayerKey, StoredLayer] = {}
        for part in request.chunk_infos:
            infos = rows_in(part, call)
            if "chunk_key" not in infos.column_names:
                raise _bad("the chunk infos have no column `chunk_key`")
            column = infos["chunk_key"]
            if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
                raise _bad(f"the column `chunk_key` is {column.type}, and no binary")
            for first in range(0, len(column), _KEYS_AT_ONCE):  # in few bytes there may be millions of empty ones
                call.check()
                for key in column.slice(first, _KEYS_AT_ONCE).to_pylist():
                    layer, row = self._keys.parsed(key)
                    wanted.setdefault(layer, array("Q")).append(row)
                new = [key for key in wanted if key not in layers]  # and millions of which none is known
                layers.update(zip(new, self._keys.layers(new), strict=True))
        chosen = ((layers[key], np.array(rows, np.int64)) for key, rows in wanted.items())
        yield from encoded_chunks(chosen, call)

    def _manifest(self, request: Any, call: Call) -> Iterator[Any]:
        if not request.HasField("segment_id"):
            raise _bad("missing required field: 'rerun.cloud.v1alpha1.GetRrdManifestRequest.segment_id'")
        dataset, segment = dataset_of(self._catalog, call), request.segment_id.id
        layers = self._layers.of(dataset, [segment])
        if not layers:
            raise NotFoundError(f"Segment '{segment}' not found in dataset '{dataset.id}'")
        there = [layer for layer in layers if layer.entry.chunks]
        tables = [layer.folder.references(layer.entry).table for layer in there]
        every = [(layer, np.arange(len(table))) for layer, table in zip(there, tables, strict=True)]
        is_blueprint = dataset.kind is EntryKind.BLUEPRINT_DATASET
        kind = "blueprint" if is_blueprint else "recording"
        store = StoreEntry(kind, layers[0].entry.application_id, segment)
        whole = ChunkTable.concat(tables) if tables else ChunkTable.of(())
        manifest = RrdManifest.FromString(build_manifest(store, whole, path=f"segment {segment}"))
        rows = rows_in(manifest.data)
        keys = self._keys.made(dataset.id, every)
        manifest.data.CopyFrom(part_of(rows.append_column(pa.field("chunk_key", pa.binary(), False), keys)))
        yield cloud("GetRrdManifestResponse")(rrd_manifest=manifest)


class _Planned(NamedTuple):
    """Chunks of a layer that are needed: their rows in its manifest."""

    layer: StoredLayer
    table: ChunkTable
    rows: Integers


def _fixed(plan: Sequence[_Planned], keys: pa.Array) -> list[pa.Array]:
    """The columns of :data:`_FIXED`, put together for all layers: arrays of each would cost most of a plan."""
    count = len(keys)
    ids, is_static, sizes = np.empty((count, 16), np.uint8), np.empty(count, np.bool_), np.empty(count, np.uint64)
    segments: list[str] = []
    names: list[str] = []
    entities: list[str] = []
    at = 0
    for (_, entry), table, rows in plan:
        end = at + len(rows)
        ids[at:end], is_static[at:end] = table.chunk_ids[rows], table.is_static[rows]
        sizes[at:end] = table.uncompressed_sizes[rows]
        segments += [entry.recording_id] * len(rows)
        names += [entry.layer] * len(rows)
        codes, paths = table.entity_codes
        entities += [paths[code] for code in codes[rows].tolist()]
        at = end
    told = pa.array(sizes)
    return [
        pa.Array.from_buffers(pa.binary(16), count, [None, pa.py_buffer(ids)]),
        pa.array(segments, pa.string()),
        pa.array(names, pa.string()),
        keys,
        pa.array(entities, pa.string()),
        pa.array(is_static),
        told,
        told,
    ]


def _starts(plan: Sequence[_Planned], timeline: str | None) -> pa.Array:
    """The start of each chunk on a timeline, null where it is not on it."""
    found = []
    for planned in plan:
        starts, _, there = chunk_ranges(planned.table, timeline or "")
        found.append(pa.array(starts[planned.rows], pa.int64(), mask=~there[planned.rows]))
    return pa.concat_arrays(found) if found else pa.array([], pa.int64())


def _start_field(name: str) -> pa.Field:
    metadata = {"rerun:index": name, "rerun:index_marker": "start", "rerun:kind": "index"}
    return pa.field(f"{name}:start", pa.int64(), True, metadata)


def _timelines_of(layers: Sequence[StoredLayer]) -> list[str]:
    """The names of all timelines of some layers, sorted."""
    return sorted({name for layer in layers for name in _names_in(layer)})


def _names_in(layer: StoredLayer) -> Iterator[str]:
    if layer.entry.ranges is not None:
        return (some.name for some in layer.entry.ranges)
    table = layer.folder.references(layer.entry).table
    return (name for name, _ in table.timelines.keys)


def _touching(layers: Sequence[StoredLayer], timeline: str, window: tuple[int, int]) -> list[StoredLayer]:
    """The layers of segments that can have chunks in a window: of others, static chunks make no rows, either."""
    touching = {
        layer.entry.recording_id
        for layer in layers
        if layer.entry.ranges is None
        or any(
            some.name == timeline and some.start <= window[1] and some.end >= window[0] for some in layer.entry.ranges
        )
    }
    return [layer for layer in layers if layer.entry.recording_id in touching]


# --- requests


def _queries(
    request: Any, layers: Sequence[StoredLayer], lines: Sequence[str]
) -> Iterator[tuple[ChunkQuery, Sequence[StoredLayer]]]:
    """The queries of a ``QueryDatasetRequest``, each with the layers that it is asked of."""
    base: dict[str, Any] = {
        "entities": None if request.select_all_entity_paths else {path.path for path in request.entity_paths},
        "wants_static": not request.exclude_static_data,
        "wants_temporal": not request.exclude_temporal_data,
    }
    query = request.query
    latest, window = query.HasField("latest_at"), query.HasField("range")
    if not latest and not window:
        yield ChunkQuery(**base), layers
        return
    names = {
        some.index.timeline.name for some, there in ((query.latest_at, latest), (query.range, window)) if there
    } - {""}
    if len(names) > 1:
        raise _bad("`latest_at` and `range` name different timelines")
    name = next(iter(names), None)
    if name is None:
        yield ChunkQuery(**{**base, "wants_temporal": False}), layers
        return
    if name not in lines and layers:
        raise _bad(f"unknown timeline `{name}`")
    bounds = (query.range.index_range.start, query.range.index_range.end) if window else None
    times: Sequence[int] | Mapping[str, Sequence[int]] = ()
    if latest and query.latest_at.per_segment_values:
        given = query.latest_at.per_segment_values
        if len(given) != len(request.segment_ids):
            raise _bad(f"{len(given)} lists of index values for {len(request.segment_ids)} segments")
        times = {segment.id: list(some.values) for segment, some in zip(request.segment_ids, given, strict=True)}
        layers = [layer for layer in layers if times[layer.entry.recording_id]]
    elif latest and query.latest_at.HasField("at"):
        times = [query.latest_at.at]
    yield ChunkQuery(timeline=name, window=bounds, latest_at=times, **base), layers


def _found_query(request: Any) -> tuple[ChunkQuery, list[str] | None]:
    """The query of a ``FindChunksRequest``, and the segments that it is asked of; None: all."""
    if not request.HasField("contents") or request.contents.WhichOneof("selection") is None:
        raise _bad("`contents` is required")
    entities = _entities(request.contents)
    mode = request.WhichOneof("mode")
    if mode is None:
        raise _bad("`mode` is required")
    if mode == "static":
        return ChunkQuery(entities, wants_temporal=False), _segments(request.static, "static")
    asked = getattr(request, mode)
    if asked.fill_mode == _EARLIEST_AT:
        raise ProtocolError(Status.UNIMPLEMENTED, "`FILL_MODE_EARLIEST_AT` is not supported")
    if mode == "samples":
        by_segment = {some.segment_id.id: list(some.values) for some in asked.segments if some.values}
        if asked.fill_mode == _LATEST_AT:
            return ChunkQuery(entities, asked.timeline, latest_at=by_segment), list(by_segment)
        return ChunkQuery(entities, asked.timeline, values=by_segment), list(by_segment)
    segments = _segments(asked, "range")
    start, end = asked.HasField("start_inclusive"), asked.HasField("end_inclusive")
    fills = asked.fill_mode == _LATEST_AT
    if fills and not start:
        raise _bad("`range.fill_mode` `FILL_MODE_LATEST_AT` requires `range.start_inclusive` to be set")
    if not start and not end:
        return ChunkQuery(entities), segments
    window = asked.start_inclusive if start else -_MOST_BOUND - 1, asked.end_inclusive if end else _MOST_BOUND
    latest = [asked.start_inclusive] if fills else ()
    return ChunkQuery(entities, asked.timeline, window, latest), segments


def _entities(contents: Any) -> Set[str] | None:
    if contents.WhichOneof("selection") == "all":
        return None
    if any(entity.WhichOneof("components") is None for entity in contents.explicit.entities):
        raise _bad("`contents.components` is required")
    return {entity.entity_path.path for entity in contents.explicit.entities}


def _segments(message: Any, where: str) -> list[str] | None:
    chosen = message.segments.WhichOneof("selection") if message.HasField("segments") else None
    if chosen is None:
        raise _bad(f"`{where}.segments` is required")
    return None if chosen == "all" else [segment.id for segment in message.segments.explicit.ids]


def _check_timeline(name: str, layers: Sequence[StoredLayer], dataset: DatasetEntry) -> None:
    if any(name in _names_in(layer) for layer in layers) or not layers:
        return
    known = {field.name for field in dataset.schema().index_columns()}
    if name not in known:
        raise _bad(f"unknown timeline `{name}`")


def _bad(text: str) -> ProtocolError:
    return ProtocolError(Status.INVALID_ARGUMENT, text)
