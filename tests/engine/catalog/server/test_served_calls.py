"""Every call of the catalog protocol, of the SDKs 0.33.1 to 0.41 and of the viewer: each has a handler and works."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.catalog import CatalogClient, DatasetEntry
from chunkmill.engine.catalog.server import (
    CatalogService,
    Kind,
    ProtocolError,
    ServiceOptions,
    Status,
    protocol_error,
    start,
)
from chunkmill.engine.catalog.server.protocol import SERVICE, rows_in
from chunkmill.engine.errors import ChunkmillError
from chunkmill.engine.recordings import RecordingsFolder
from served import SEGMENTS, Caller, recording

UNARY, STREAM, UPLOAD = Kind.UNARY, Kind.STREAM, Kind.UPLOAD
CALLS = {
    "Version": UNARY,
    "WhoAmI": UNARY,
    "DoBandwidthTest": STREAM,
    "WatchEvents": STREAM,
    "FindEntries": UNARY,
    "CreateDatasetEntry": UNARY,
    "ReadDatasetEntry": UNARY,
    "UpdateDatasetEntry": UNARY,
    "UpdateEntry": UNARY,
    "DeleteEntry": UNARY,
    "CreateTableEntry": UNARY,
    "RegisterTable": UNARY,
    "ReadTableEntry": UNARY,
    "UpdateTableEntry": UNARY,
    "GetTableSchema": UNARY,
    "ScanTable": STREAM,
    "WriteTable": UPLOAD,
    "RegisterWithDataset": UNARY,
    "UnregisterFromDataset": STREAM,
    "QueryTasksOnCompletion": STREAM,
    "QueryTasks": UNARY,
    "CancelTasks": UNARY,
    "GetSegmentTableSchema": UNARY,
    "ScanSegmentTable": STREAM,
    "GetDatasetManifestSchema": UNARY,
    "ScanDatasetManifest": STREAM,
    "GetDatasetSchema": UNARY,
    "GetSchemas": STREAM,
    "GetRrdManifest": STREAM,
    "GetAssetsForSegment": STREAM,
    "GetSegmentProperties": STREAM,
    "SetSegmentProperties": UNARY,
    "DeleteSegmentProperties": UNARY,
    "QueryDataset": STREAM,
    "FindChunks": STREAM,
    "FetchChunks": STREAM,
    "GetWriteAccessGrant": UNARY,
    "GetMultipartUploadPartGrants": UNARY,
    "CompleteMultipartUpload": UNARY,
    "AbortMultipartUpload": UNARY,
    "DoMaintenance": UNARY,
    "DoGlobalMaintenance": UNARY,
    # of clients up to SDK 0.36 and 0.33
    "WriteChunks": UPLOAD,
    "CreateIndex": UNARY,
    "ListIndexes": UNARY,
    "DeleteIndexes": UNARY,
    "SearchDataset": STREAM,
}


@pytest.fixture
def client(catalog: CatalogClient, tmp_path: Path) -> Iterator[Any]:
    rerun_catalog = pytest.importorskip("rerun.catalog")
    with start(CatalogService(catalog, ServiceOptions(readable=[str(tmp_path / "files")]))) as running:
        yield rerun_catalog.CatalogClient(running.url)


def refused(call: Caller, name: str, **fields: Any) -> ProtocolError:
    with pytest.raises((ProtocolError, ChunkmillError)) as caught:
        call(name, **fields)
    return protocol_error(caught.value)


def schema_of(answer: Any) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(answer.schema.arrow_schema))


def rows_of(answers: list[Any]) -> pa.Table:
    return pa.concat_tables(rows_in(answer.data) for answer in answers)


def test_every_call_of_the_protocol_has_a_handler(catalog: CatalogClient) -> None:
    methods = CatalogService(catalog).methods
    assert {method.name: method.kind for method in methods.values()} == CALLS
    assert {f"/{SERVICE}/{name}" for name in CALLS} == set(methods)
    for name, method in methods.items():
        assert method.request.DESCRIPTOR.full_name == f"rerun.cloud.v1alpha1.{method.name}Request", name
        assert method.response.DESCRIPTOR.full_name == f"rerun.cloud.v1alpha1.{method.name}Response", name


def test_what_no_handler_answers_is_told_as_such(catalog: CatalogClient) -> None:
    grpc = pytest.importorskip("grpc")
    with start(CatalogService(catalog)) as server, grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        for path in (f"/{SERVICE}/OfALaterRelease", "/opentelemetry.proto.collector.trace.v1.TraceService/Export"):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(path)(b"", timeout=20)
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_the_server_says_who_it_is_and_what_it_can(call: Caller, tmp_path: Path) -> None:
    version = call("Version")
    assert version.version.startswith("chunkmill ")
    assert list(version.features) == ["per_segment_index_values"]
    told = call("WhoAmI")
    assert (told.can_read, told.can_write) == (True, True)
    assert set(told.capabilities.capabilities) == {
        "catalog:write:register:file",
        "catalog:write:staging",
        "dataset:find_chunks",
    }
    sizes = [len(answer.payload) for answer in call("DoBandwidthTest", num_bytes=2**21 + 1)]
    assert sizes == [2**20, 2**20, 1]
    assert refused(call, "DoBandwidthTest", num_bytes=2**26).code is Status.INVALID_ARGUMENT


def test_a_dataset_is_read_by_its_id_or_name(call: Caller, catalog: CatalogClient, dataset: DatasetEntry) -> None:
    told = call("ReadDatasetEntry").dataset
    assert told.details.name == "drives"
    assert (told.dataset_handle.dataset_kind, told.dataset_handle.store_kind) == (1, 1)
    assert told.dataset_handle.dataset_url == dataset.manifest_url
    hidden = [dataset.blueprint_dataset(), dataset.make_asset_dataset()]
    kinds = [Caller(catalog, one)("ReadDatasetEntry").dataset.dataset_handle for one in hidden if one is not None]
    assert [(kind.dataset_kind, kind.store_kind) for kind in kinds] == [(2, 2), (3, 1)]
    by_name = Caller(catalog, **{"x-rerun-entry-name-bin": "drives"})
    assert by_name("ReadDatasetEntry").dataset.details == told.details
    assert refused(Caller(catalog), "ReadDatasetEntry").code is Status.INVALID_ARGUMENT


def test_schemas_are_those_of_the_rows(call: Caller, dataset: DatasetEntry) -> None:
    assert schema_of(call("GetDatasetSchema")) == dataset.arrow_schema()
    segments = rows_of(call("ScanSegmentTable"))
    assert schema_of(call("GetSegmentTableSchema")) == segments.schema
    layers = rows_of(call("ScanDatasetManifest"))
    assert schema_of(call("GetDatasetManifestSchema")) == layers.schema
    assert layers["rerun_registration_status"].to_pylist() == ["done"] * len(SEGMENTS)


def test_layers_of_the_manifest_are_chosen_by_name(call: Caller, dataset: DatasetEntry, tmp_path: Path) -> None:
    dataset.register(recording(tmp_path, "one"), layer_name="extra", executor="inline").wait()

    def chosen(**fields: Any) -> set[tuple[str, str]]:
        rows = rows_of(call("ScanDatasetManifest", columns=["rerun_segment_id", "rerun_layer_name"], **fields))
        return {tuple(row.values()) for row in rows.to_pylist()}

    base = {(name, "base") for name in SEGMENTS}
    assert chosen() == {*base, ("one", "extra")}
    assert chosen(layer_name_filter={"scan_only": {"layer_names": ["extra", "x"]}}) == {("one", "extra")}
    assert chosen(layer_name_filter={"skip": {"layer_names": ["extra"]}}) == base
    assert chosen(
        layer_name_filter={"scan_only": {"layer_names": ["base"]}}, segment_id_filter={"skip": {"segment_ids": ["one"]}}
    ) == base - {("one", "base")}


def test_schemas_are_given_by_their_ids(call: Caller) -> None:
    ids = rows_of(call("ScanDatasetManifest", columns=["rerun_schema_sha256"]))["rerun_schema_sha256"].to_pylist()
    (told,) = call("GetSchemas", schema_ids=[{"sha256": id_} for id_ in (ids[0], bytes(32))])
    assert told.schema_id.sha256 == ids[0]
    assert "/a:c" in schema_of(told).names
    assert call("GetSchemas") == []
    wrong = refused(call, "GetSchemas", schema_ids=[{"sha256": b"abc"}])
    assert (wrong.code, "expected 32 bytes, got 3" in wrong.text) == (Status.INVALID_ARGUMENT, True)
    many = refused(call, "GetSchemas", schema_ids=[{"sha256": bytes(32)}] * 1025)
    assert many.code is Status.INVALID_ARGUMENT


def test_tasks_that_ended_well_are_told(call: Caller, tmp_path: Path) -> None:
    source = {"storage_url": recording(tmp_path, "new").as_uri(), "typ": 1}
    registered = rows_in(call("RegisterWithDataset", data_sources=[source]).data)
    (task,) = set(registered["rerun_task_id"].to_pylist())
    (row,) = rows_in(call("QueryTasks", ids=[{"id": task}]).data).to_pylist()
    assert (row["task_id"], row["exec_status"], row["msgs"]) == (task, "success", None)


def test_a_config_of_object_stores_is_refused_where_it_would_count(call: Caller, tmp_path: Path) -> None:
    place, config = recording(tmp_path, "new").as_uri(), {"typ": 1, "object_store_config": "mine"}
    told = refused(call, "RegisterWithDataset", data_sources=[{"storage_url": "s3://bucket/new.rrd", **config}])
    assert (told.code, "object_store_config" in told.text) == (Status.UNIMPLEMENTED, True)
    call("RegisterWithDataset", data_sources=[{"storage_url": place, **config}])


def test_the_sdk_maintains_a_dataset(dataset: DatasetEntry, client: Any, tmp_path: Path) -> None:
    theirs = client.get_dataset("drives")
    (tmp_path / "more").mkdir()
    for name in SEGMENTS:  # a version and a small file for each
        dataset.register(recording(tmp_path / "more", name), layer_name="more", copy=True, executor="inline").wait()
    before = {name: content(dataset, name) for name in SEGMENTS}
    folder = RecordingsFolder(os.fspath(dataset))
    versions = len(folder.files.all_numbers())
    theirs.do_maintenance(optimize_indexes=True, compact_fragments=True)
    newest = folder.newest()
    assert newest is not None and newest.operation == "compact"
    with pytest.raises(ValueError, match="younger than 7 days"):
        theirs.do_maintenance(cleanup_before=datetime.now(UTC))
    theirs.do_maintenance(cleanup_before=datetime.now(UTC) - timedelta(days=8))
    assert len(folder.files.all_numbers()) >= versions
    time.sleep(0.01)
    theirs.do_maintenance(cleanup_before=datetime.now(UTC), unsafe_allow_recent_cleanup=True)
    assert len(folder.files.all_numbers()) < versions
    assert {name: content(dataset, name) for name in SEGMENTS} == before


def test_the_sdk_maintains_a_whole_lake(catalog: CatalogClient, client: Any, tmp_path: Path) -> None:
    uploads = tmp_path / "lake" / "uploads"
    uploads.mkdir()
    old = uploads / ".a.draft"
    old.write_bytes(b"cut")
    os.utime(old, (time.time() - 8 * 86400,) * 2)
    gone = catalog.create_dataset("gone")
    gone.register(recording(tmp_path, "gone"), copy=True, executor="inline").wait()
    place = Path(os.fspath(gone))
    gone.delete()
    client.do_global_maintenance()
    assert not old.exists()
    assert place.exists()  # for a week
    assert sorted(client.get_dataset("drives").segment_ids()) == sorted(SEGMENTS)


def content(dataset: DatasetEntry, segment: str) -> list[Any]:
    chunks = dataset.segment_store(segment).stream().to_chunks()
    return sorted((chunk.entity_path, repr(chunk.to_record_batch().to_pydict())) for chunk in chunks)
