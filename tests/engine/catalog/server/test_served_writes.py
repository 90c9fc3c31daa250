"""What clients change in a served lake: registration, tables, upkeep, and what they may not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunk_making import made
from chunkmill import Chunk
from chunkmill.engine.catalog import CatalogClient, EntryKind
from chunkmill.engine.catalog.server import (
    CatalogService,
    ProtocolError,
    ServiceOptions,
    Status,
    protocol_error,
)
from chunkmill.engine.catalog.server.protocol import cloud, entry_id_message, part_of, rows_in, schema_message
from chunkmill.engine.errors import AlreadyExistsError, ChunkmillError
from served import SEGMENTS, Caller, recording

SCHEMA = pa.schema([pa.field("id", pa.int64(), metadata={"rerun:is_table_index": "true"}), ("v", pa.string())])


def refusal(function: Any, *args: Any, **kwargs: Any) -> ProtocolError:
    with pytest.raises((ProtocolError, ChunkmillError)) as caught:
        function(*args, **kwargs)
    return protocol_error(caught.value)


def source(path: Path, **more: Any) -> dict[str, Any]:
    return {"storage_url": path.as_uri(), "typ": 1, **more}


def test_registration_tells_of_each_file_in_order(catalog: CatalogClient, tmp_path: Path) -> None:
    dataset = catalog.create_dataset("more")
    call = Caller(catalog, dataset)
    bad = tmp_path / "bad.rrd"
    bad.write_bytes(b"nothing of the kind")
    files = [recording(tmp_path, "b"), bad, recording(tmp_path, "a")]
    rows = rows_in(call("RegisterWithDataset", data_sources=[source(path) for path in files], on_duplicate=3).data)
    assert rows["rerun_segment_id"].to_pylist() == ["b", "", "a"]
    assert rows["rerun_storage_url"].to_pylist() == [path.as_uri() for path in files]
    assert sorted(dataset.segment_ids()) == ["a", "b"]
    (response,) = call("QueryTasksOnCompletion", ids=[{"id": id_} for id_ in rows["rerun_task_id"].to_pylist()])
    states = {row["task_id"]: row for row in rows_in(response.data).to_pylist()}
    assert [states[id_]["exec_status"] for id_ in rows["rerun_task_id"].to_pylist()] == ["success", "failed", "success"]
    assert "not an RRD" in states[rows["rerun_task_id"][1].as_py()]["msgs"]


def test_a_layer_that_is_there_fails_the_request_of_old_clients_and_of_new_ones_that_file(
    catalog: CatalogClient, tmp_path: Path
) -> None:
    dataset = catalog.create_dataset("more")
    files = [source(recording(tmp_path, name)) for name in ("a", "b", "c", "d", "e")]
    Caller(catalog, dataset)("RegisterWithDataset", data_sources=[files[1], files[4]])
    old = Caller(catalog, dataset, **{"x-rerun-client-version": "rerun-py/0.36.2"})
    refused = refusal(old, "RegisterWithDataset", data_sources=files, on_duplicate=3)
    assert refused.code is Status.ALREADY_EXISTS
    assert sorted(dataset.segment_ids()) == ["b", "e"]
    new = Caller(catalog, dataset, **{"x-rerun-client-version": "rerun-py/0.41.0"})
    rows = rows_in(new("RegisterWithDataset", data_sources=files, on_duplicate=3).data)
    assert rows["rerun_segment_id"].to_pylist() == ["a", "", "c", "d", ""]
    assert sorted(dataset.segment_ids()) == ["a", "b", "c", "d", "e"]
    (response,) = new("QueryTasksOnCompletion", ids=[{"id": id_} for id_ in rows["rerun_task_id"].to_pylist()])
    texts = [row["msgs"] for row in rows_in(response.data).to_pylist() if row["exec_status"] == "failed"]
    assert len(texts) == 2
    assert all("Layer 'base' already exists" in text for text in texts)


def test_the_manifest_is_told_as_clients_know_it(catalog: CatalogClient) -> None:
    for version, may_be_null in (("rerun-py/0.33.1", False), ("rerun-py/0.41.0", True)):
        call = Caller(catalog, catalog.get_dataset("drives"), **{"x-rerun-client-version": version})
        (response,) = call("ScanDatasetManifest")
        schema = pa.ipc.read_schema(pa.py_buffer(call("GetDatasetManifestSchema").schema.arrow_schema))
        assert rows_in(response.data).schema == schema
        assert schema.field("rerun_num_chunks").nullable is may_be_null


def test_what_became_of_a_task_is_known_to_every_server(catalog: CatalogClient, tmp_path: Path) -> None:
    call = Caller(catalog, catalog.get_dataset("drives"))
    bad = tmp_path / "bäd.rrd"
    bad.write_bytes(b"nothing of the kind" * 1000)
    rows = rows_in(call("RegisterWithDataset", data_sources=[source(bad), source(recording(tmp_path, "new"))]).data)
    failed, done = rows["rerun_task_id"].to_pylist()
    (removed,) = call("UnregisterFromDataset", segments_to_drop=[{"id": "new"}])
    later = Caller(CatalogClient(tmp_path / "lake"))  # another server, which was told of none of them
    ids = [failed, done, removed.task_id.id, failed[:-3], "task_00000000DEADBEEF", "task_failed_~", ""]
    (response,) = later("QueryTasksOnCompletion", ids=[{"id": id_} for id_ in ids])
    table = rows_in(response.data)
    assert table == rows_in(later("QueryTasks", ids=[{"id": id_} for id_ in ids]).data)
    states = {row["task_id"]: (row["exec_status"], row["msgs"]) for row in table.to_pylist()}
    assert states[failed][0] == "failed"
    assert "not an RRD" in states[failed][1]
    assert "bäd.rrd" in states[failed][1]
    assert states[done] == states[removed.task_id.id] == ("success", None)
    for unknown in ids[3:]:
        assert states[unknown][0] == "failed", unknown
    assert "its outcome is unknown" in states["task_00000000DEADBEEF"][1]
    call("CancelTasks", ids=[{"id": failed}])  # all that was told has ended


def test_a_prefix_registers_what_lies_below(catalog: CatalogClient, tmp_path: Path) -> None:
    dataset = catalog.create_dataset("more")
    call = Caller(catalog, dataset)
    call("RegisterWithDataset", data_sources=[source(tmp_path / "files", prefix=True, layer="extra")])
    assert sorted(dataset.segment_ids()) == sorted(SEGMENTS)
    (tmp_path / "empty").mkdir()
    told = refusal(call, "RegisterWithDataset", data_sources=[source(tmp_path / "empty", prefix=True)])
    assert told.code is Status.INVALID_ARGUMENT
    assert "no rrd files found in" in told.text


def test_only_allowed_places_are_opened(catalog: CatalogClient, tmp_path: Path) -> None:
    inside, outside = tmp_path / "files", tmp_path / "secret"
    outside.mkdir()
    recording(outside, "hidden").rename(outside / "hidden.rrd")
    (inside / "link.rrd").symlink_to(outside / "hidden.rrd")
    call = Caller(catalog, catalog.get_dataset("drives"))
    call.service = CatalogService(catalog, ServiceOptions(readable=[str(inside)]))
    for path in (
        outside / "hidden.rrd",
        inside / "link.rrd",
        inside / ".." / "secret" / "hidden.rrd",
        Path("/etc/passwd"),
    ):
        told = refusal(call, "RegisterWithDataset", data_sources=[{"storage_url": f"file://{path}", "typ": 1}])
        assert told.code is Status.PERMISSION_DENIED
    told = refusal(call, "RegisterWithDataset", data_sources=[source(inside, prefix=True)])
    assert told.code is Status.PERMISSION_DENIED
    call.service = CatalogService(catalog)
    told = refusal(call, "RegisterWithDataset", data_sources=[source(recording(tmp_path, "new"))])
    assert told.code is Status.PERMISSION_DENIED
    details = {"type_url": "/rerun.cloud.v1alpha1.LanceTable"}
    details["value"] = cloud("LanceTable")(table_url=outside.as_uri()).SerializeToString()
    told = refusal(call, "CreateTableEntry", name="t", provider_details=details, schema=schema_message(SCHEMA))
    assert told.code is Status.PERMISSION_DENIED
    assert "hidden" not in catalog.get_dataset("drives").segment_ids()


def written(segment: str | None, chunk: Chunk, **more: str) -> dict[str, Any]:
    """A message with a chunk of a segment."""
    batch = chunk.to_record_batch()
    metadata = {**batch.schema.metadata, **({"rerun:segment_id": segment} if segment else {}), **more}
    part = part_of(batch.replace_schema_metadata(metadata))
    return {"chunk": {"encoder_version": 1, "payload": part.payload}}


def test_chunks_are_written_as_new_segments_all_or_none(catalog: CatalogClient) -> None:
    dataset = catalog.create_dataset("written")
    call = Caller(catalog, dataset)
    chunks = [made(range(3)), made(range(3, 5)), made(range(2), entity="/b")]
    told = [written(name, chunk) for name, chunk in zip(("x", "y", "x"), chunks, strict=True)]
    call.upload("WriteChunks", told)
    assert dataset.segment_ids() == ["x", "y"]
    found = {chunk.id: chunk.to_record_batch() for chunk in dataset.segment_store("x").stream().to_chunks()}
    assert set(found) == {chunks[0].id, chunks[2].id}
    assert found[chunks[2].id].to_pydict() == chunks[2].to_record_batch().to_pydict()
    with pytest.raises(AlreadyExistsError):
        call.upload("WriteChunks", [written("z", made(range(2))), written("y", made(range(2)))])
    old = written(None, made(range(2)), **{"rerun:partition_id": "old"})
    for wrong, text in (
        ([old, written(None, made(range(1)))], "without 'rerun:segment_id' metadata"),
        ([old, {}], "no chunk in WriteChunksRequest"),
        ([old, {"chunk": {"encoder_version": 1, "payload": b"no batch"}}], "not a whole Arrow stream"),
        (
            [
                {
                    "chunk": {
                        "encoder_version": 1,
                        "payload": part_of(
                            pa.table({"a": [1]}).replace_schema_metadata({"rerun:segment_id": "s", "rerun:id": "x"})
                        ).payload,
                    }
                }
            ],
            "error decoding chunk",
        ),
    ):
        assert text in refusal(call.upload, "WriteChunks", wrong).text
    assert dataset.segment_ids() == ["x", "y"]
    call.upload("WriteChunks", [old])
    call.upload("WriteChunks", [])
    assert dataset.segment_ids() == ["x", "y", "old"]


def test_what_a_killed_server_has_received_is_removed_by_the_next(
    catalog: CatalogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHUNKMILL_SCRATCH", str(tmp_path / "scratch"))
    program = "from chunkmill.engine.execution import Staging; Staging.in_scratch()"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert len(list((tmp_path / "scratch").iterdir())) == 1
    call = Caller(catalog, catalog.create_dataset("written"))
    call.upload("WriteChunks", [written("x", made(range(3)))])
    assert list((tmp_path / "scratch").iterdir()) == []


def test_chunks_that_are_written_are_bounded(catalog: CatalogClient) -> None:
    dataset = catalog.create_dataset("written")
    call = Caller(catalog, dataset)
    call.service = CatalogService(catalog, ServiceOptions(most_upload_bytes=4096))
    told = refusal(call.upload, "WriteChunks", [written("x", made(range(10))) for _ in range(10)])
    assert told.code is Status.OUT_OF_RANGE
    assert dataset.segment_ids() == []


def test_layers_are_removed(catalog: CatalogClient) -> None:
    call = Caller(catalog, catalog.get_dataset("drives"))
    assert refusal(call, "UnregisterFromDataset").code is Status.INVALID_ARGUMENT
    (response,) = call("UnregisterFromDataset", segments_to_drop=[{"id": "two"}])
    assert response.task_id.id
    assert sorted(catalog.get_dataset("drives").segment_ids()) == ["one", "three"]


def test_a_table_is_made_written_and_read(catalog: CatalogClient) -> None:
    call = Caller(catalog)
    made = call("CreateTableEntry", name="tab", schema=schema_message(SCHEMA)).table
    id_ = {"id": {"time_ns": made.details.id.id.time_ns, "inc": made.details.id.id.inc}}
    call.headers["x-rerun-entry-id"] = str(catalog.get_table("tab").id)

    def write(mode: int, *parts: dict[str, list[Any]]) -> None:
        call.upload("WriteTable", [{"dataframe_part": part_of(pa.table(p)), "insert_mode": mode} for p in parts])

    def read() -> list[tuple[Any, ...]]:
        found = [rows_in(response.dataframe_part) for response in call("ScanTable", table_id=id_)]
        return sorted(tuple(row.values()) for table in found for row in table.to_pylist())

    write(1, {"id": [1, 2], "v": ["a", "b"]}, {"id": [3], "v": ["c"]})
    write(3, {"id": [2, 4], "v": ["B", "d"]})
    assert read() == [(1, "a"), (2, "B"), (3, "c"), (4, "d")]
    write(2, {"id": [9], "v": ["z"]})
    assert read() == [(9, "z")]
    with pytest.raises(ProtocolError, match="insert mode 5"):
        write(5, {"id": [9], "v": ["y"]})
    with pytest.raises(ProtocolError, match="different columns"):
        call.upload("WriteTable", [{"dataframe_part": part_of(pa.table(p))} for p in ({"id": [1]}, {"v": ["a"]})])
    assert read() == [(9, "z")]


def test_the_table_of_entries_is_told_as_clients_know_it(catalog: CatalogClient) -> None:
    table = next(entry for entry in catalog.tables(include_hidden=True) if entry.name == "__entries")
    id_ = entry_id_message(table.id)
    for version, kind in (("rerun-py/0.33.1", pa.int32()), ("rerun-py/0.41.0", pa.uint8())):
        call = Caller(catalog, **{"x-rerun-client-version": version})
        (response,) = call("ScanTable", table_id=id_)
        rows = rows_in(response.dataframe_part)
        assert rows.schema.field("entry_kind").type == kind
        assert pa.ipc.read_schema(pa.py_buffer(call("GetTableSchema", table_id=id_).schema.arrow_schema)) == rows.schema
        assert int(EntryKind.DATASET) in rows["entry_kind"].to_pylist()


def test_maintenance_keeps_what_is_there(catalog: CatalogClient) -> None:
    dataset = catalog.get_dataset("drives")
    call = Caller(catalog, dataset)
    before = {name: len(list(dataset.segment_store(name).stream().to_chunks())) for name in SEGMENTS}
    call("DoMaintenance", compact_fragments=True)
    assert {name: len(list(dataset.segment_store(name).stream().to_chunks())) for name in SEGMENTS} == before
    assert refusal(call, "DoMaintenance", cleanup_before={"seconds": 2**60}).code is Status.INVALID_ARGUMENT


def test_every_call_that_writes_says_so(catalog: CatalogClient) -> None:
    writing = {method.name for method in CatalogService(catalog).methods.values() if method.writes}
    assert writing == {
        "AbortMultipartUpload",
        "CancelTasks",
        "CompleteMultipartUpload",
        "CreateDatasetEntry",
        "CreateIndex",
        "CreateTableEntry",
        "DeleteEntry",
        "DeleteIndexes",
        "DeleteSegmentProperties",
        "DoGlobalMaintenance",
        "DoMaintenance",
        "GetMultipartUploadPartGrants",
        "GetWriteAccessGrant",
        "RegisterTable",
        "RegisterWithDataset",
        "SetSegmentProperties",
        "UnregisterFromDataset",
        "UpdateDatasetEntry",
        "UpdateEntry",
        "UpdateTableEntry",
        "WriteChunks",
        "WriteTable",
    }
