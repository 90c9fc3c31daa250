"""Calls about what a dataset holds: its schema, and its tables of segments and layers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..client import CatalogClient
from ..dataset import layers_of
from ..entries import EntryKind
from .entry_methods import dataset_of
from .envelopes import part_of, projected, schema_message
from .messages import cloud, entry_id_message, shared
from .methods import Call, Kind, Method, ProtocolError, Status
from .served_layers import ServedLayers

_ID_BYTES: Final = 32
_MOST_SCHEMAS: Final = 1024
_LISTS: Final = ("rerun_layer_names", "rerun_storage_urls")
_MAY_BE_NULL: Final = ("rerun_num_chunks", "rerun_size_bytes", "rerun_schema_sha256")
_WITH_NAMED_ITEMS: Final = "rerun-py/0.33."
"""Clients that know items of lists by the name of the column."""


class DatasetCalls:
    """The handlers, over one catalog."""

    def __init__(self, catalog: CatalogClient, layers: ServedLayers) -> None:
        self._catalog = catalog
        self._layers = layers

    def methods(self) -> tuple[Method, ...]:
        """The methods of this group."""
        return (
            Method.named("GetDatasetSchema", Kind.UNARY, self._schema),
            Method.named("GetSegmentTableSchema", Kind.UNARY, self._segments_schema),
            Method.named("ScanSegmentTable", Kind.STREAM, self._segments),
            Method.named("GetDatasetManifestSchema", Kind.UNARY, self._manifest_schema),
            Method.named("ScanDatasetManifest", Kind.STREAM, self._manifest),
            Method.named("GetSchemas", Kind.STREAM, self._schemas),
            Method.named("GetAssetsForSegment", Kind.STREAM, self._assets),
            Method.named("DoMaintenance", Kind.UNARY, self._maintain, writes=True),
            Method.named("DoGlobalMaintenance", Kind.UNARY, self._maintain_all, writes=True),
        )

    def _schema(self, request: Any, call: Call) -> Any:
        del request
        return cloud("GetDatasetSchemaResponse")(schema=self._layers.schema(dataset_of(self._catalog, call)))

    def _segments_schema(self, request: Any, call: Call) -> Any:
        del request
        table = _as_known_to(call, self._layers.segment_table(dataset_of(self._catalog, call)))
        return cloud("GetSegmentTableSchemaResponse")(schema=schema_message(table.schema))

    def _segments(self, request: Any, call: Call) -> Iterator[Any]:
        table = _as_known_to(call, _chosen(self._layers.segment_table(dataset_of(self._catalog, call)), request))
        yield cloud("ScanSegmentTableResponse")(data=part_of(projected(table, request.columns)))

    def _manifest_schema(self, request: Any, call: Call) -> Any:
        del request
        table = _as_known_to(call, self._layers.manifest(dataset_of(self._catalog, call)))
        return cloud("GetDatasetManifestSchemaResponse")(schema=schema_message(table.schema))

    def _manifest(self, request: Any, call: Call) -> Iterator[Any]:
        table = _as_known_to(call, _chosen(self._layers.manifest(dataset_of(self._catalog, call)), request))
        yield cloud("ScanDatasetManifestResponse")(data=part_of(projected(table, request.columns)))

    def _schemas(self, request: Any, call: Call) -> Iterator[Any]:
        dataset = dataset_of(self._catalog, call)
        if len(request.schema_ids) > _MOST_SCHEMAS:
            raise ProtocolError(Status.INVALID_ARGUMENT, f"more than {_MOST_SCHEMAS} schema ids")
        for wanted in request.schema_ids:
            if len(wanted.sha256) != _ID_BYTES:
                text = f"SchemaId.sha256: expected {_ID_BYTES} bytes, got {len(wanted.sha256)}"
                raise ProtocolError(Status.INVALID_ARGUMENT, f"invalid value for field 'rerun.common.v1alpha1.{text}'")
        store = dataset.store_reader()
        known = set(layers_of(dataset, store).digests)
        for wanted in request.schema_ids:
            digest = wanted.sha256.hex()
            if digest in known:
                schema = schema_message(store.schemas.get(digest))
                id_ = shared("SchemaId")(sha256=wanted.sha256)
                yield cloud("GetSchemasResponse")(schema_id=id_, schema=schema)

    def _assets(self, request: Any, call: Call) -> Iterator[Any]:
        """The assets that go with a segment, or where none is named, with every one; nothing where there never were."""
        dataset = dataset_of(self._catalog, call)
        if dataset.kind is not EntryKind.DATASET:
            kind = "Blueprint" if dataset.kind is EntryKind.BLUEPRINT_DATASET else "Asset"
            text = f"assets can only be queried on recording datasets, this is a {kind} dataset"
            raise ProtocolError(Status.INVALID_ARGUMENT, text)
        hidden = dataset.asset_dataset()
        if hidden is not None:
            found = dataset.assets_for_segment(request.segment_id.id if request.HasField("segment_id") else None)
            ids = [shared("SegmentId")(id=id_) for id_ in found]
            yield cloud("GetAssetsForSegmentResponse")(assets_entry=entry_id_message(hidden.id), asset_segment_ids=ids)

    def _maintain(self, request: Any, call: Call) -> Any:
        before = request.cleanup_before if request.HasField("cleanup_before") else None
        dataset_of(self._catalog, call).do_maintenance(
            optimize_indexes=request.optimize_indexes,
            retrain_indexes=request.retrain_indexes,
            compact_fragments=request.compact_fragments,
            cleanup_before=None if before is None else _time_in(before),
            unsafe_allow_recent_cleanup=request.unsafe_allow_recent_cleanup,
        )
        return cloud("DoMaintenanceResponse")()

    def _maintain_all(self, request: Any, call: Call) -> Any:
        del request, call
        self._catalog.do_global_maintenance()
        return cloud("DoGlobalMaintenanceResponse")()


def _time_in(message: Any) -> datetime:
    try:
        return datetime.fromtimestamp(message.seconds, UTC).replace(microsecond=message.nanos // 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise ProtocolError(Status.INVALID_ARGUMENT, f"`cleanup_before` is no time: {error}") from None


def _as_known_to(call: Call, table: pa.Table) -> pa.Table:
    """The table of segments, or of layers, as a client has it.

    But for old ones, items of lists are called so, and what a failed registration does not tell may be null.
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
    """The rows of the segments, and layers, that a scan names."""
    filters = [("rerun_segment_id", request.segment_id_filter, "segment_ids")]
    if hasattr(request, "layer_name_filter"):
        filters.append(("rerun_layer_name", request.layer_name_filter, "layer_names"))
    for column, given, listed in filters:
        chosen = given.WhichOneof("filter")
        if chosen is not None:
            is_named = pc.is_in(table[column], pa.array(list(getattr(getattr(given, chosen), listed)), pa.string()))
            table = table.filter(is_named if chosen == "scan_only" else pc.invert(is_named))
    return table
