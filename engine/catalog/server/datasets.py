"""Calls about the content of a dataset: its schema and tables, registration, written chunks, and maintenance."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ...chunk import Chunk
from ...errors import AlreadyExistsError, UsageError
from ...execution import Staging
from ...locations import located
from ...recordings import BASE_LAYER
from ...rrd import RrdWriter, StoreEntry
from ..dataset import DatasetEntry, layers_of
from ..entries import EntryKind
from ..layers import OnDuplicateSegmentLayer, places_opened, requests_below
from .lake import Lake, naming_places
from .protocol import (
    Call,
    Kind,
    Need,
    ProtocolError,
    Status,
    answers,
    cloud,
    entry_id_message,
    invalid,
    part_of,
    projected,
    rows_in,
    schema_message,
    shared,
)

_ID_BYTES: Final = 32
_MOST_SCHEMAS: Final = 1024
_LISTS: Final = ("rerun_layer_names", "rerun_storage_urls")
_MAY_BE_NULL: Final = ("rerun_num_chunks", "rerun_size_bytes", "rerun_schema_sha256")
_WITH_NAMED_ITEMS: Final = "rerun-py/0.33."
"""Clients that expect items of lists with the name of the column."""


@answers("GetDatasetSchema", need=Need.READ)
def _get_dataset_schema(lake: Lake, _request: Any, call: Call) -> Any:
    return cloud("GetDatasetSchemaResponse")(schema=lake.layers.version(lake.dataset(call)).schema)


@answers("GetSegmentTableSchema", need=Need.READ)
def _get_segment_table_schema(lake: Lake, _request: Any, call: Call) -> Any:
    table = _as_known_to(call, lake.layers.version(lake.dataset(call)).segment_table)
    return cloud("GetSegmentTableSchemaResponse")(schema=schema_message(table.schema))


@answers("ScanSegmentTable", Kind.STREAM, need=Need.READ)
def _scan_segment_table(lake: Lake, request: Any, call: Call) -> Iterator[Any]:
    table = _as_known_to(call, _chosen(lake.layers.version(lake.dataset(call)).segment_table, request))
    yield cloud("ScanSegmentTableResponse")(data=part_of(projected(table, request.columns)))


@answers("GetDatasetManifestSchema", need=Need.READ)
def _get_dataset_manifest_schema(lake: Lake, _request: Any, call: Call) -> Any:
    table = _as_known_to(call, lake.layers.version(lake.dataset(call)).manifest)
    return cloud("GetDatasetManifestSchemaResponse")(schema=schema_message(table.schema))


@answers("ScanDatasetManifest", Kind.STREAM, need=Need.READ)
def _scan_dataset_manifest(lake: Lake, request: Any, call: Call) -> Iterator[Any]:
    table = _as_known_to(call, _chosen(lake.layers.version(lake.dataset(call)).manifest, request))
    yield cloud("ScanDatasetManifestResponse")(data=part_of(projected(table, request.columns)))


@answers("GetSchemas", Kind.STREAM, need=Need.READ)
def _get_schemas(lake: Lake, request: Any, call: Call) -> Iterator[Any]:
    dataset = lake.dataset(call)
    if len(request.schema_ids) > _MOST_SCHEMAS:
        raise invalid(f"more than {_MOST_SCHEMAS} schema ids")
    for wanted in request.schema_ids:
        if len(wanted.sha256) != _ID_BYTES:
            text = f"SchemaId.sha256: expected {_ID_BYTES} bytes, got {len(wanted.sha256)}"
            raise invalid(f"invalid value for field 'rerun.common.v1alpha1.{text}'")
    store = dataset.store_reader()
    digests = set(layers_of(dataset, store).digests)
    for wanted in request.schema_ids:
        digest = wanted.sha256.hex()
        if digest in digests:
            schema = schema_message(store.schemas.get(digest))
            id_ = shared("SchemaId")(sha256=wanted.sha256)
            yield cloud("GetSchemasResponse")(schema_id=id_, schema=schema)


@answers("GetAssetsForSegment", Kind.STREAM, need=Need.READ)
def _get_assets_for_segment(lake: Lake, request: Any, call: Call) -> Iterator[Any]:
    """Return the assets of a segment, or of all segments if none is named; empty before the first asset."""
    dataset = lake.dataset(call)
    if dataset.kind is not EntryKind.DATASET:
        kind = "Blueprint" if dataset.kind is EntryKind.BLUEPRINT_DATASET else "Asset"
        raise invalid(f"assets can only be queried on recording datasets, this is a {kind} dataset")
    hidden = dataset.asset_dataset()
    if hidden is not None:
        assets = dataset.assets_for_segment(request.segment_id.id if request.HasField("segment_id") else None)
        ids = [shared("SegmentId")(id=id_) for id_ in assets]
        yield cloud("GetAssetsForSegmentResponse")(assets_entry=entry_id_message(hidden.id), asset_segment_ids=ids)


@answers("DoMaintenance", need=Need.WRITE)
def _do_maintenance(lake: Lake, request: Any, call: Call) -> Any:
    before = request.cleanup_before if request.HasField("cleanup_before") else None
    lake.dataset(call).do_maintenance(
        optimize_indexes=request.optimize_indexes,
        retrain_indexes=request.retrain_indexes,
        compact_fragments=request.compact_fragments,
        cleanup_before=None if before is None else _time_in(before),
        unsafe_allow_recent_cleanup=request.unsafe_allow_recent_cleanup,
    )
    call.record.changed.update(
        compacted=request.compact_fragments,
        indexes=request.optimize_indexes or request.retrain_indexes,
        cleaned_up=before is not None,
    )
    return cloud("DoMaintenanceResponse")()


@answers("DoGlobalMaintenance", need=Need.WRITE_ALL)
def _do_global_maintenance(lake: Lake, _request: Any, call: Call) -> Any:
    lake.catalog.do_global_maintenance()
    call.record.changed.update(maintained=True)
    return cloud("DoGlobalMaintenanceResponse")()


def _time_in(message: Any) -> datetime:
    try:
        return datetime.fromtimestamp(message.seconds, UTC).replace(microsecond=message.nanos // 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise invalid(f"`cleanup_before` is not a time: {error}") from None


def _as_known_to(call: Call, table: pa.Table) -> pa.Table:
    """The table of segments, or of layers, in the form of the client's version.

    For newer clients, items of lists have the name ``item``, and columns that failed registrations lack are nullable.
    """
    if call.client_version.startswith(_WITH_NAMED_ITEMS):
        return table
    for at, field in enumerate(table.schema):
        if pa.types.is_list(field.type) and field.name in _LISTS:
            type_ = pa.list_(field.type.value_field.with_name("item"))
            table = table.set_column(at, field.with_type(type_), table[at].cast(type_))
        elif field.name in _MAY_BE_NULL and "rerun_registration_status" in table.schema.names:
            table = table.set_column(at, field.with_nullable(True), table[at])
    return table


def _chosen(table: pa.Table, request: Any) -> pa.Table:
    """The rows of the segments, and layers, in a scan's request."""
    filters = [("rerun_segment_id", request.segment_id_filter, "segment_ids")]
    if hasattr(request, "layer_name_filter"):
        filters.append(("rerun_layer_name", request.layer_name_filter, "layer_names"))
    for column, given, listed in filters:
        chosen = given.WhichOneof("filter")
        if chosen is not None:
            is_named = pc.is_in(table[column], pa.array(list(getattr(getattr(given, chosen), listed)), pa.string()))
            table = table.filter(is_named if chosen == "scan_only" else pc.invert(is_named))
    return table


# --- registration, written chunks, and the removal of layers

_ON_DUPLICATE: Final = {
    0: OnDuplicateSegmentLayer.REPLACE,
    1: OnDuplicateSegmentLayer.REPLACE,
    2: OnDuplicateSegmentLayer.SKIP,
    3: OnDuplicateSegmentLayer.ERROR,
}
_RRD: Final = 1
_WITH_WHOLE_REQUESTS: Final = tuple(f"rerun-py/0.{minor}." for minor in range(33, 37))
"""Clients whose servers refuse a whole request with an existing layer. Newer servers fail only its file."""

_TOLD: Final = pa.schema(
    [
        pa.field(name, pa.string(), False)
        for name in (
            "rerun_segment_id",
            "rerun_segment_layer",
            "rerun_segment_type",
            "rerun_storage_url",
            "rerun_task_id",
        )
    ]
)


class _Source(NamedTuple):
    """A file to register as a layer."""

    uri: str
    layer: str


@answers("RegisterWithDataset", need=Need.WRITE)
@naming_places
def _register_with_dataset(lake: Lake, request: Any, call: Call) -> Any:
    dataset = lake.dataset(call)
    if not request.data_sources:
        raise UsageError("no data sources to register")
    choice = _ON_DUPLICATE.get(request.on_duplicate)
    if choice is None:
        raise invalid(f"on_duplicate is {request.on_duplicate}, which is not a known value")
    for given in request.data_sources:
        if given.typ != _RRD:
            raise invalid("invalid value for field 'rerun.cloud.v1alpha1.DataSourceKind.: enum value unspecified'")
        if not given.storage_url:
            raise invalid("missing required field: 'rerun.cloud.v1alpha1.DataSource.storage_url'")
    lake.check_files((given.storage_url for given in request.data_sources), call)
    sources = [source for given in request.data_sources for source in _sources(lake, given, call)]
    rows = _registered(dataset, sources, choice, call, whole=call.client_version.startswith(_WITH_WHOLE_REQUESTS))
    rows = [(*row, DONE if error is None else failed_task(lake.shown(error))) for *row, error in rows]
    table = pa.table([pa.array(column, pa.string()) for column in zip(*rows, strict=True)], _TOLD)
    return cloud("RegisterWithDatasetResponse")(data=part_of(table))


def _sources(lake: Lake, given: Any, call: Call) -> list[_Source]:
    """The files of a data source in a request."""
    if given.object_store_config and not isinstance(located(given.storage_url), Path):
        text = "the server has its own configuration of object stores; omit `object_store_config`"
        raise ProtocolError(Status.UNIMPLEMENTED, text)
    layer = given.layer or BASE_LAYER
    if not given.prefix:
        lake.check_files(map(str, places_opened(given.storage_url)), call)
        return [_Source(given.storage_url, layer)]
    requests = [request for request in requests_below(given.storage_url, layer) if request.place.endswith(".rrd")]
    if not requests:
        raise UsageError(f"no rrd files found in {given.storage_url}")
    for request in requests:
        lake.check_files(map(str, places_opened(request.place)), call)  # a link may lead out of the allowed folders
    return [_Source(request.uri, layer) for request in requests]


@answers("UnregisterFromDataset", Kind.STREAM, need=Need.WRITE)
def _unregister_from_dataset(lake: Lake, request: Any, call: Call) -> Iterator[Any]:
    dataset = lake.dataset(call)
    segments = [segment.id for segment in request.segments_to_drop]
    layers = list(request.layers_to_drop)
    done = dataset.unregister(segments_to_drop=segments, layers_to_drop=layers, force=request.force)
    call.record.changed.update(removed=done.removed)
    response = cloud("UnregisterFromDatasetResponse")(data=part_of(_TOLD.empty_table()))
    response.task_id.id = DONE
    yield response


@answers("WriteChunks", Kind.UPLOAD, need=Need.WRITE)
def _write_chunks(lake: Lake, requests: Iterator[Any], call: Call) -> Any:
    """Write the chunks of a client as the base layers of new segments, all of them or none."""
    dataset = lake.dataset(call)
    kind = "blueprint" if dataset.kind is EntryKind.BLUEPRINT_DATASET else "recording"
    Staging.sweep_scratch()  # left by killed servers
    with Staging.in_scratch() as staging:
        place = staging.local / "chunks.rrd"
        segments = set()
        with RrdWriter(place) as writer:
            for request in requests:
                call.check()
                segment, chunks = _chunks_in(request.chunk, call)
                store = StoreEntry(kind, str(dataset.id), segment)
                writer.begin_store(store)
                for chunk in chunks:
                    writer.append(store, chunk)
                    segments.add(segment)
                if writer.position > lake.options.most_upload_bytes:
                    text = f"one call writes at most {lake.options.most_upload_bytes} bytes of chunks"
                    raise ProtocolError(Status.OUT_OF_RANGE, text)
            writer.finish()
        live = dataset.store_reader().live()
        for segment in segments:
            if any(layer.layer == BASE_LAYER for layer in live.of_recording(segment, kind)):
                raise AlreadyExistsError(f"Segment '{segment}', layer '{BASE_LAYER}' already exists")
        if segments:
            dataset.register(place, on_duplicate="error", copy=True, executor="inline").wait()
            _note_layers(call, [(segment, BASE_LAYER, None) for segment in sorted(segments)], "error")
    return cloud("WriteChunksResponse")()


@answers("CancelTasks", need=Need.WRITE_SOME)
def _cancel_tasks(_lake: Lake, _request: Any, _call: Call) -> Any:
    """Do nothing: clients get the id of a task after its end."""
    return cloud("CancelTasksResponse")()


@answers("QueryTasks", need=Need.NOTHING)
def _query_tasks(_lake: Lake, request: Any, _call: Call) -> Any:
    return cloud("QueryTasksResponse")(data=part_of(tasks_table(task.id for task in request.ids)))


@answers("QueryTasksOnCompletion", Kind.STREAM, need=Need.NOTHING)
def _query_tasks_on_completion(_lake: Lake, request: Any, _call: Call) -> Iterator[Any]:
    yield cloud("QueryTasksOnCompletionResponse")(data=part_of(tasks_table(task.id for task in request.ids)))


def _chunks_in(message: Any, call: Call) -> tuple[str, list[Chunk]]:
    """The segment and the chunks in a message. Raises :class:`ProtocolError`."""
    if not message.HasField("payload"):
        raise invalid("no chunk in WriteChunksRequest")
    part = shared("DataframePart")(encoder_version=message.encoder_version, payload=message.payload)
    table = rows_in(part, call)
    metadata = table.schema.metadata or {}
    segment = metadata.get(b"rerun:segment_id") or metadata.get(b"rerun:partition_id")
    if not segment:
        raise invalid("Received chunk without 'rerun:segment_id' metadata")
    try:
        return segment.decode(), [chunk for batch in table.to_batches() for chunk in Chunk.from_record_batch(batch)]
    except ValueError as error:
        raise invalid(f"error decoding chunk from record batch: {error}") from error


def _registered(
    dataset: DatasetEntry, sources: Sequence[_Source], choice: OnDuplicateSegmentLayer, call: Call, *, whole: bool
) -> list[tuple[str | None, ...]]:
    """Register files; return a row for each layer or failed file. The last item of a row is the error, or None.

    ``whole``: if a layer exists that must not exist, nothing is registered. Otherwise only its file fails. Halving the
    request finds it, as a request may have many files, and registers other files together.
    """
    uris, layers = [source.uri for source in sources], [source.layer for source in sources]
    try:
        handle = dataset.register(uris, layer_name=layers, on_duplicate=choice, executor="inline")
    except AlreadyExistsError as error:
        if whole:
            raise
        if len(sources) == 1:
            return [("", layers[0], "rrd", uris[0], str(error))]
        half = len(sources) // 2
        parts = (sources[:half], sources[half:])
        return [row for part in parts for row in _registered(dataset, part, choice, call, whole=whole)]
    rows: list[tuple[str | None, ...]] = [
        (result.segment_id or "", source.layer, "rrd", source.uri, result.error)
        for source, results in zip(sources, handle.results(), strict=True)
        for result in results
    ]
    _note_layers(call, [(segment, layer, uri) for segment, layer, _, uri, error in rows if error is None], choice)
    return rows


def _note_layers(call: Call, layers: Sequence[tuple[str | None, ...]], on_duplicate: str) -> None:
    """Note registered layers, by segment, name and URI, in the record of a call."""
    if layers:
        call.record.changed.setdefault("registered", []).extend(layers)
        call.record.changed["on_duplicate"] = str(on_duplicate)


# --- tasks
# Calls end when all is done, so a task is only an outcome, which its id contains. Any server of the lake can report it,
# even after a restart, and servers store nothing and clean up nothing.

DONE: Final = "task_0000000000000000"
"""The task id of registrations that have succeeded."""

_FAILED: Final = "task_failed_"
_LONGEST_TEXT: Final = 8192

_TASKS: Final = pa.schema(
    [
        pa.field("task_id", pa.string(), False),
        pa.field("kind", pa.string()),
        pa.field("data", pa.string()),
        pa.field("exec_status", pa.string(), False),
        pa.field("msgs", pa.string()),
        pa.field("blob", pa.binary()),
        pa.field("lease_owner", pa.string()),
        pa.field("lease_expiration", pa.timestamp("ns")),
        pa.field("attempts", pa.uint8(), False),
        pa.field("creation_time", pa.timestamp("ns")),
        pa.field("last_update_time", pa.timestamp("ns")),
    ]
)


def failed_task(text: str) -> str:
    """The id of a task that failed for the reason in ``text``, cut to 8,192 characters.

    >>> error_of(failed_task("the file holds no recording"))
    'the file holds no recording'
    """
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT]}…"
    return _FAILED + base64.urlsafe_b64encode(text.encode("utf-8", "backslashreplace")).decode()


def error_of(task: str) -> str | None:
    """The error of a failed task, or None if it succeeded. For a foreign id, a text that its outcome is unknown.

    >>> error_of(DONE)
    >>> error_of("task_1")
    "the task 'task_1' is not from a chunkmill server: its outcome is unknown"
    """
    if task == DONE:
        return None
    try:
        if task.startswith(_FAILED):
            return base64.b64decode(task.removeprefix(_FAILED), b"-_", validate=True).decode()
    except ValueError:  # the id was cut or changed
        pass
    return f"the task {task[:100]!r} is not from a chunkmill server: its outcome is unknown"


def tasks_table(ids: Iterable[str]) -> pa.Table:
    """The result of a query of tasks: one row for each id."""
    rows = []
    for task in dict.fromkeys(ids):
        error = error_of(task)
        status = "success" if error is None else "failed"
        rows.append({"task_id": task, "kind": "register", "exec_status": status, "msgs": error, "attempts": 1})
    return pa.Table.from_pylist(rows, _TASKS)
