"""Calls about chunks: the chunks that a query needs, the chunks of a segment, and their stored bytes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...errors import NotFoundError
from ...limits import MIB
from ...optimisation import ChunkReferences
from ...rrd import (
    ChunkTable,
    PositionalFile,
    Recent,
    StoreEntry,
    VerifiedPayload,
    build_manifest,
    digest_rows,
    message_head,
    message_tail,
    open_positional,
    store_field,
    verified_after_store,
)
from ..dataset import DatasetEntry
from ..entries import EntryId, EntryKind
from .lake import Integers, Lake, LayerKey, StoredLayer, parsed_key
from .protocol import Call, Kind, Need, ProtocolError, RrdManifest, Status, answers, cloud, invalid, part_of, rows_in

_LAYERS_AT_ONCE: Final = 256
"""The number of layers whose chunks are in one message."""
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


@answers("QueryDataset", Kind.STREAM, need=Need.READ)
def _query_dataset(lake: Lake, request: Any, call: Call) -> Iterator[EncodedMessage]:
    dataset = lake.dataset(call)
    if request.select_all_entity_paths and request.entity_paths:
        raise invalid("`entity_paths` and `select_all_entity_paths` exclude each other")
    layers = lake.layers.of(dataset, [segment.id for segment in request.segment_ids] or None)
    lines = _timelines_of(layers)
    for query, some in _queries(request, layers, lines):
        for plan in _plans(some, query, call):
            yield _answer("QueryDatasetResponse", lake, dataset.id, plan, lines, [_start_field(name) for name in lines])


@answers("FindChunks", Kind.STREAM, need=Need.READ)
def _find_chunks(lake: Lake, request: Any, call: Call) -> Iterator[EncodedMessage]:
    dataset = lake.dataset(call)
    query, segments = _found_query(request)
    layers = lake.layers.of(dataset, segments)
    if query.timeline is not None:
        _check_timeline(query.timeline, layers, dataset)
    if query.window is not None and not query.latest_at:
        layers = _touching(layers, query.timeline or "", query.window)
    for plan in _plans(layers, query, call):
        line = request.range.timeline or query.timeline or ""
        yield _answer("FindChunksResponse", lake, dataset.id, plan, [line], [_START])


def _plans(layers: Sequence[StoredLayer], query: ChunkQuery, call: Call) -> Iterator[list[_Planned]]:
    """Yield the chunks that a query needs, some layers at a time; at least one plan, even if it is empty."""
    for first in range(0, max(len(layers), 1), _LAYERS_AT_ONCE):
        plan = []
        for layer in layers[first : first + _LAYERS_AT_ONCE]:
            call.check()
            if not layer.entry.chunks:
                continue
            table = layer.folder.references(layer.entry).table
            rows = query.rows(table, layer.entry.recording_id)
            if len(rows):
                plan.append(_Planned(layer, table, rows))
        if plan or not first:
            yield plan


_ANSWERS: Final = Recent[bytes](32 * MIB, largest=MIB // 4)
"""A cache of messages: queries of a segment often need the same chunks, such as for random samples."""


def _answer(
    kind: str,
    lake: Lake,
    dataset: EntryId,
    plan: Sequence[_Planned],
    lines: Sequence[str],
    fields: Sequence[pa.Field],
) -> EncodedMessage:
    """The message with the chunks of a plan; ``fields`` are the columns of their starts on ``lines``."""
    entries = [planned.layer.entry for planned in plan]
    key = (
        (kind, dataset, *lines),
        *((entry.manifest_digest, entry.recording_id, entry.layer) for entry in entries),
        *(planned.rows.tobytes() for planned in plan),
    )
    data = _ANSWERS.find(key)
    if data is None:
        rows = _batch(lake, dataset, plan, fields, [_starts(plan, name) for name in lines])
        data = cloud(kind)(data=part_of(rows)).SerializeToString()
        _ANSWERS.keep(key, data, 2 * len(data))
    else:
        lake.layers.keep(dataset, (planned.layer for planned in plan))
    return EncodedMessage(data)


def _batch(
    lake: Lake, dataset: EntryId, plan: Sequence[_Planned], fields: Sequence[pa.Field], columns: Sequence[pa.Array]
) -> pa.RecordBatch:
    """The rows of chunks, with the columns of :data:`_FIXED`, ``columns``, and the empty columns of :data:`_DIRECT`."""
    keys = lake.layers.keys(dataset, [(planned.layer, planned.rows) for planned in plan])
    fixed, count = _fixed(plan, keys), len(keys)
    direct = [
        pa.DictionaryArray.from_arrays(pa.nulls(count, pa.int32()), pa.array([], f.type.value_type)) for f in _DIRECT
    ]
    schema = pa.schema([*_FIXED, *fields, *_DIRECT])
    return pa.RecordBatch.from_arrays([*fixed, *columns, *direct], schema=schema)


@answers("FetchChunks", Kind.STREAM, need=Need.READ)
def _fetch_chunks(lake: Lake, request: Any, call: Call) -> Iterator[EncodedMessage]:
    wanted: dict[LayerKey, array[int]] = {}
    layers: dict[LayerKey, StoredLayer] = {}
    for part in request.chunk_infos:
        infos = rows_in(part, call)
        if "chunk_key" not in infos.column_names:
            raise invalid("the chunk infos have no column `chunk_key`")
        column = infos["chunk_key"]
        if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
            raise invalid(f"the column `chunk_key` is {column.type}, not binary")
        for first in range(0, len(column), _KEYS_AT_ONCE):  # few bytes may contain millions of empty keys
            call.check()
            for key in column.slice(first, _KEYS_AT_ONCE).to_pylist():
                layer, row = parsed_key(key)
                wanted.setdefault(layer, array("Q")).append(row)
            new = [key for key in wanted if key not in layers]  # or millions of unknown keys
            if call.rights.readable is not None:
                for id_ in {id_ for id_, _ in new}:
                    lake.dataset_of(EntryId(id_.hex()), call)
            layers.update(zip(new, lake.layers.named(new), strict=True))
    chosen = ((layers[key], np.array(rows, np.int64)) for key, rows in wanted.items())
    yield from encoded_chunks(chosen, call)


@answers("GetRrdManifest", Kind.STREAM, need=Need.READ)
def _get_rrd_manifest(lake: Lake, request: Any, call: Call) -> Iterator[Any]:
    if not request.HasField("segment_id"):
        raise invalid("missing required field: 'rerun.cloud.v1alpha1.GetRrdManifestRequest.segment_id'")
    dataset, segment = lake.dataset(call), request.segment_id.id
    layers = lake.layers.of(dataset, [segment])
    if not layers:
        raise NotFoundError(f"Segment '{segment}' not found in dataset '{dataset.id}'")
    filled = [layer for layer in layers if layer.entry.chunks]
    tables = [layer.folder.references(layer.entry).table for layer in filled]
    every = [(layer, np.arange(len(table))) for layer, table in zip(filled, tables, strict=True)]
    is_blueprint = dataset.kind is EntryKind.BLUEPRINT_DATASET
    kind = "blueprint" if is_blueprint else "recording"
    store = StoreEntry(kind, layers[0].entry.application_id, segment)
    whole = ChunkTable.concat(tables) if tables else ChunkTable.of(())
    manifest = RrdManifest.FromString(build_manifest(store, whole, path=f"segment {segment}"))
    rows = rows_in(manifest.data)
    keys = lake.layers.keys(dataset.id, every)
    manifest.data.CopyFrom(part_of(rows.append_column(pa.field("chunk_key", pa.binary(), False), keys)))
    yield cloud("GetRrdManifestResponse")(rrd_manifest=manifest)


class _Planned(NamedTuple):
    """The needed chunks of a layer: their rows in its manifest."""

    layer: StoredLayer
    table: ChunkTable
    rows: Integers


def _fixed(plan: Sequence[_Planned], keys: pa.Array) -> list[pa.Array]:
    """The columns of :data:`_FIXED` for all layers. Separate arrays for each layer would take most of a plan's time."""
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
    byte_sizes = pa.array(sizes)
    return [
        pa.Array.from_buffers(pa.binary(16), count, [None, pa.py_buffer(ids)]),
        pa.array(segments, pa.string()),
        pa.array(names, pa.string()),
        keys,
        pa.array(entities, pa.string()),
        pa.array(is_static),
        byte_sizes,
        byte_sizes,
    ]


def _starts(plan: Sequence[_Planned], timeline: str) -> pa.Array:
    """The start of each chunk on a timeline, null for chunks without it."""
    parts = []
    for planned in plan:
        starts, _, is_on_line = chunk_ranges(planned.table, timeline)
        parts.append(pa.array(starts[planned.rows], pa.int64(), mask=~is_on_line[planned.rows]))
    return pa.concat_arrays(parts) if parts else pa.array([], pa.int64())


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
    """The layers of segments with chunks in a window. Static chunks of other segments do not make rows."""
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
    """The queries of a ``QueryDatasetRequest``, each with its layers."""
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
        some.index.timeline.name for some, is_given in ((query.latest_at, latest), (query.range, window)) if is_given
    } - {""}
    if len(names) > 1:
        raise invalid("`latest_at` and `range` name different timelines")
    name = next(iter(names), None)
    if name is None:
        yield ChunkQuery(**{**base, "wants_temporal": False}), layers
        return
    if name not in lines and layers:
        raise invalid(f"unknown timeline `{name}`")
    bounds = (query.range.index_range.start, query.range.index_range.end) if window else None
    times: Sequence[int] | Mapping[str, Sequence[int]] = ()
    if latest and query.latest_at.per_segment_values:
        given = query.latest_at.per_segment_values
        if len(given) != len(request.segment_ids):
            raise invalid(f"{len(given)} lists of index values for {len(request.segment_ids)} segments")
        times = {segment.id: list(some.values) for segment, some in zip(request.segment_ids, given, strict=True)}
        layers = [layer for layer in layers if times[layer.entry.recording_id]]
    elif latest and query.latest_at.HasField("at"):
        times = [query.latest_at.at]
    yield ChunkQuery(timeline=name, window=bounds, latest_at=times, **base), layers


def _found_query(request: Any) -> tuple[ChunkQuery, list[str] | None]:
    """The query of a ``FindChunksRequest``, and its segments, or None for all."""
    if not request.HasField("contents") or request.contents.WhichOneof("selection") is None:
        raise invalid("`contents` is required")
    entities = _entities(request.contents)
    mode = request.WhichOneof("mode")
    if mode is None:
        raise invalid("`mode` is required")
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
        raise invalid("`range.fill_mode` `FILL_MODE_LATEST_AT` requires `range.start_inclusive` to be set")
    if not start and not end:
        return ChunkQuery(entities), segments
    window = asked.start_inclusive if start else -_MOST_BOUND - 1, asked.end_inclusive if end else _MOST_BOUND
    latest = [asked.start_inclusive] if fills else ()
    return ChunkQuery(entities, asked.timeline, window, latest), segments


def _entities(contents: Any) -> Set[str] | None:
    if contents.WhichOneof("selection") == "all":
        return None
    if any(entity.WhichOneof("components") is None for entity in contents.explicit.entities):
        raise invalid("`contents.components` is required")
    return {entity.entity_path.path for entity in contents.explicit.entities}


def _segments(message: Any, where: str) -> list[str] | None:
    chosen = message.segments.WhichOneof("selection") if message.HasField("segments") else None
    if chosen is None:
        raise invalid(f"`{where}.segments` is required")
    return None if chosen == "all" else [segment.id for segment in message.segments.explicit.ids]


def _check_timeline(name: str, layers: Sequence[StoredLayer], dataset: DatasetEntry) -> None:
    if any(name in _names_in(layer) for layer in layers) or not layers:
        return
    names = {field.name for field in dataset.schema().index_columns()}
    if name not in names:
        raise invalid(f"unknown timeline `{name}`")


# --- plans: the chunks of a layer that a query needs, from its manifest only
# Extra chunks are allowed, as clients check each chunk; missing chunks are errors.

Mask = npt.NDArray[np.bool_]

_LEAST: Final = np.iinfo(np.int64).min
_CLEARS: Final = "Clear:is_recursive"
_MOST_CELLS: Final = 1 << 17
"""The most components of chunks, times the number of times, that are compared at once: a few MiB."""


@dataclass(frozen=True, slots=True)
class ChunkQuery:
    """A query: the entities (None for all) and the times.

    It has no components, as in Rerun's server: all components of an entity determine the rows that a client makes.

    Without a ``timeline``, all chunks are needed. With one, these are needed: static chunks; chunks with values in
    ``window`` (both ends included); chunks that can have the latest value of a component at one of ``latest_at``; and
    chunks whose range includes one of ``values``. Mappings have separate times for each segment.
    """

    entities: Set[str] | None = None
    timeline: str | None = None
    window: tuple[int, int] | None = None
    latest_at: Sequence[int] | Mapping[str, Sequence[int]] = ()
    values: Mapping[str, Sequence[int]] = field(default_factory=dict)
    wants_static: bool = True
    wants_temporal: bool = True

    def rows(self, table: ChunkTable, segment_id: str) -> Integers:
        """The rows of the needed chunks in the manifest of a segment's layer."""
        codes, paths = table.entity_codes
        wanted = np.array([self.entities is None or path in self.entities for path in paths], np.bool_)[codes]
        static = table.is_static
        temporal = np.zeros(len(table), np.bool_)
        if self.wants_temporal:
            temporal = ~static if self.timeline is None else self._at_times(table, segment_id)
        return np.flatnonzero(wanted & ((static & self.wants_static) | (temporal & ~static)))

    def _at_times(self, table: ChunkTable, segment_id: str) -> Mask:
        starts, ends, is_on_line = chunk_ranges(table, self.timeline or "")
        needed = np.zeros(len(table), np.bool_)
        if self.window is not None:
            first, last = self.window
            needed |= is_on_line & (starts <= last) & (ends >= first)
        latest = self.latest_at
        times = latest.get(segment_id, ()) if isinstance(latest, Mapping) else latest
        if len(times):
            needed |= _latest(table, self.timeline or "", _ascending(times))
        if given := self.values.get(segment_id, ()):
            values = _ascending(given)
            at = np.searchsorted(values, starts)
            needed |= is_on_line & (at < len(values)) & (values[np.minimum(at, len(values) - 1)] <= ends)
        return needed


def _ascending(values: Sequence[int]) -> Integers:
    """The distinct values, ascending. For a few hundred values, numpy's ``unique`` takes ten times as long."""
    return np.array(sorted(set(values)), np.int64)


def chunk_ranges(table: ChunkTable, timeline: str) -> tuple[Integers, Integers, Mask]:
    """The first and the last value of each chunk on a timeline, and the mask of the chunks with values."""
    line = _line(table, timeline)
    return line.starts, line.ends, line.is_on_line


class _Components(NamedTuple):
    """The components of the chunks on a timeline, grouped by entity and component."""

    rows: Integers
    first: Integers
    last: Integers
    is_full: Mask
    is_clear: Mask
    begins: Integers
    """The first row of each group."""
    group: Integers


@dataclass(frozen=True)
class _Line:
    """The ranges of a table's chunks on a timeline. They are the same for all queries, and cost more than one query."""

    table: ChunkTable
    starts: Integers
    ends: Integers
    is_on_line: Mask

    @cached_property
    def components(self) -> _Components:
        """The components of the chunks on the timeline."""
        table, (entities, _) = self.table, self.table.entity_codes
        cells = table.components
        rows = np.repeat(np.arange(len(table)), np.diff(cells.ends))
        use = np.flatnonzero(self.is_on_line[rows])
        keys = entities[rows[use]] * max(len(cells.descriptors), 1) + cells.codes[use]
        order = np.argsort(keys, kind="stable")
        use, keys = use[order], keys[order]
        rows = rows[use]
        is_new = np.diff(keys, prepend=-1) != 0
        clears = np.array([d.component == _CLEARS for d in cells.descriptors], np.bool_)[cells.codes[use]]
        is_full = _have_in_all_rows(table)[use]
        return _Components(
            rows, self.starts[rows], self.ends[rows], is_full, clears, np.flatnonzero(is_new), np.cumsum(is_new) - 1
        )

    @cached_property
    def has_no_components(self) -> Mask:
        """The mask of chunks on the timeline without components."""
        has_none: Mask = self.is_on_line & (np.diff(self.table.components.ends) == 0)
        return has_none


_LINES: Final = Recent[_Line](16 * MIB, largest=4 * MIB)
_BYTES_OF_CELL: Final = 64


def _line(table: ChunkTable, timeline: str) -> _Line:
    """The ranges of a table's chunks on a timeline, cached."""
    key = id(table), timeline
    line = _LINES.find(key)
    if line is not None and line.table is table:  # the cache also holds the table, so that its id is unique
        return line
    cells = table.timelines
    of_line = np.array([name == timeline for name, _ in cells.keys], np.bool_)[cells.codes] & cells.is_known
    rows = np.repeat(np.arange(len(table)), np.diff(cells.ends))[of_line]
    starts, ends = np.zeros(len(table), np.int64), np.zeros(len(table), np.int64)
    is_on_line = np.zeros(len(table), np.bool_)
    starts[rows], ends[rows], is_on_line[rows] = cells.start[of_line], cells.end[of_line], True
    line = _Line(table, starts, ends, is_on_line)
    _LINES.keep(key, line, table.batch.nbytes + _BYTES_OF_CELL * (len(table) + len(table.components.codes)))
    return line


def _latest(table: ChunkTable, timeline: str, times: Integers) -> Mask:
    """The chunks that can have the latest value of one of their components at one of ``times``.

    A chunk cannot have it if another chunk surely has a value after the chunk's end and not after the time. A chunk
    with the component in every row surely has a value at its start and at its end.
    """
    line = _line(table, timeline)
    needed: Mask = line.has_no_components & (line.starts <= times[-1])
    rows, first, last, full, clears, begins, group = line.components
    if not len(rows):
        return needed
    at_once = max(_MOST_CELLS // len(rows), 1)
    for at in range(0, len(times), at_once):  # many times at once, as a matrix: one by one they take ten times as long
        time = times[at : at + at_once, None]
        early = first <= time
        sure = np.where(early & full, np.where(last <= time, last, first), _LEAST)
        latest = np.maximum.reduceat(sure, begins, axis=1)[:, group]
        kept = early & ((np.minimum(last, time) >= latest) | clears)
        needed[rows[kept.any(axis=0)]] = True
    return needed


def _have_in_all_rows(table: ChunkTable) -> Mask:
    """Whether every row of a chunk has a value, for each component of each chunk, from the manifest."""
    cells = table.components
    has = np.flatnonzero(np.diff(cells.range_ends))
    counts = np.zeros(len(cells.codes), np.int64)
    counts[has] = cells.num_rows[cells.range_ends[has]]
    are_full: Mask = counts == np.repeat(table.num_rows.astype(np.int64), np.diff(cells.ends))
    return are_full


# --- sent chunks: their stored messages, verified, with the name of their store put before them

ANSWER_BYTES: Final = MIB
"""The approximate bytes of chunks in one message. The last chunk may exceed this limit."""
_GAP: Final = 4096
"""The most bytes between two chunks that are read together."""
_CHUNKS_FIELD: Final = b"\x0a"


@dataclass(frozen=True, slots=True)
class EncodedMessage:
    """An encoded message, whose payload is neither parsed nor copied again."""

    data: bytes

    def SerializeToString(self) -> bytes:  # noqa: N802 (as messages of protobuf have it)
        """The bytes."""
        return self.data


def encoded_chunks(wanted: Iterable[tuple[StoredLayer, Integers]], call: Call) -> Iterator[EncodedMessage]:
    """The ``FetchChunksResponse`` messages of chunks, given by layers and rows in their manifests.

    The chunks of a layer are in the order of its files. Each chunk is compared with its digest, if known, and with the
    chunk id in the manifest. Raises ``ReadError``, and :class:`ProtocolError` for a missing row.
    """
    pieces: list[bytes | memoryview] = []
    size = 0
    for chunk in _all_messages(wanted):
        call.check()
        length = sum(map(len, chunk))
        pieces += (_CHUNKS_FIELD, _varint(length), *chunk)
        size += length
        if size >= ANSWER_BYTES:
            yield EncodedMessage(b"".join(pieces))
            pieces, size = [], 0
    if pieces:
        yield EncodedMessage(b"".join(pieces))


def _all_messages(wanted: Iterable[tuple[StoredLayer, Integers]]) -> Iterator[tuple[bytes | memoryview, ...]]:
    for layer, rows in wanted:
        entry = layer.entry
        references = layer.folder.references(entry)
        if len(rows) and int(rows.max()) >= len(references.table):
            raise ProtocolError(Status.NOT_FOUND, "there is no such chunk")
        segment = StoreEntry(entry.store.kind, entry.application_id, entry.recording_id)
        yield from _messages(references, rows, store_field(segment.to_message()))


def _messages(references: ChunkReferences, rows: Integers, named: bytes) -> Iterator[tuple[bytes | memoryview, ...]]:
    """The pieces of each chunk's message. Unneeded columns (lists of ranges) would take most of the time."""
    table, store = references.table, references.store
    parts, paths = table.part_codes
    rows = rows[np.lexsort((table.offsets[rows], parts[rows]))]
    digests, ids = digest_rows(table.digests)[rows].tobytes(), table.chunk_ids[rows].tobytes()
    columns = (parts, table.offsets, table.sizes, table.uncompressed_sizes, table.is_static)
    places = list(zip(*(column[rows].tolist() for column in columns), strict=True))
    opened: tuple[int, PositionalFile] | None = None
    read, first = memoryview(b""), 0
    with ExitStack() as stack:
        for number, (part, offset, size, expanded, is_static) in enumerate(places):
            if opened is None or opened[0] != part:
                stack.close()
                opened = part, stack.enter_context(open_positional(paths[part], references.version))
                read = memoryview(b"")
            file, its_own = opened[1], slice(16 * number, 16 * number + 16)
            chunk_id, digest = ids[its_own], digests[its_own].strip(b"\0") and digests[its_own]
            if not first <= offset <= first + len(read) - size:
                stop = _end_of_neighbours(places, number)
                read, first = memoryview(file.read(offset, stop - offset, what="chunks")), offset
            message = read[offset - first : offset - first + size]
            rest = verified_after_store(message, chunk_id, is_static=is_static, digest=digest, store=store)
            if rest is not None:
                yield named, rest
                continue
            payload = VerifiedPayload(
                paths[part],
                offset,
                size,
                chunk_id,
                version=references.version,
                digest=digest,
                uncompressed_size=None if store is None else expanded,
                store=store,
            )
            encoded = payload.located(file)
            data = encoded.data
            if data is None:
                data = file.read(encoded.offset, encoded.size, what="a chunk")
            head = message_head(named, int(encoded.compression), encoded.uncompressed_size, encoded.size)
            yield head, data, message_tail(chunk_id, is_static)


def _end_of_neighbours(places: Sequence[tuple[Any, ...]], number: int) -> int:
    """The end of the neighbouring chunks that are read together with a chunk."""
    part, start, size = places[number][:3]
    stop = start + size
    for other, offset, length, *_ in islice(places, number + 1, None):
        if other != part or offset - stop > _GAP or offset + length - start > ANSWER_BYTES:
            break
        stop = max(stop, offset + length)
    return int(stop)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
