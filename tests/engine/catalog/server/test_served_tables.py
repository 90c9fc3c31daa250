"""Tables over the catalog protocol, by the service's handlers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.catalog import CatalogClient, TableEntry
from chunkmill.engine.catalog.server import Call, CatalogService, ProtocolError, ServiceOptions, Status, protocol_error
from chunkmill.engine.catalog.server.protocol import (
    cloud,
    entry_id_message,
    part_of,
    rows_in,
    schema_in,
    schema_message,
)
from chunkmill.engine.errors import ChunkmillError
from served import Caller

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), metadata={"rerun:is_table_index": "true"}), pa.field("text", pa.string())]
)
APPEND, OVERWRITE, REPLACE, UPDATE = 1, 2, 3, 4


@pytest.fixture
def catalog(tmp_path: Path) -> CatalogClient:
    return CatalogClient(tmp_path / "lake")


@pytest.fixture
def table(catalog: CatalogClient) -> TableEntry:
    return catalog.create_table("labels", SCHEMA)


def caller_of(catalog: CatalogClient, table: TableEntry) -> Caller:
    return Caller(catalog, **{"x-rerun-entry-id": str(table.id)})


def rows(ids: list[int], texts: list[str]) -> Any:
    return part_of(pa.record_batch([pa.array(ids), pa.array(texts)], schema=SCHEMA))


def details(url: str) -> dict[str, Any]:
    lance = cloud("LanceTable")(table_url=url).SerializeToString()
    return {"type_url": "/rerun.cloud.v1alpha1.LanceTable", "value": lance}


def refused(function: Any, *args: Any, **kwargs: Any) -> Status:
    with pytest.raises((ProtocolError, ChunkmillError)) as caught:
        function(*args, **kwargs)
    return protocol_error(caught.value).code


def scanned(call: Caller, table: TableEntry) -> pa.Table:
    found = call("ScanTable", table_id=entry_id_message(table.id))
    return pa.concat_tables(rows_in(response.dataframe_part) for response in found).sort_by("id")


def test_rows_of_an_upload_are_one_commit(catalog: CatalogClient, table: TableEntry) -> None:
    call = caller_of(catalog, table)
    call.upload(
        "WriteTable",
        [
            {"dataframe_part": rows([1], ["a"]), "insert_mode": APPEND},
            {"dataframe_part": rows([2], ["b"]), "insert_mode": APPEND},
        ],
    )
    call.upload("WriteTable", [{"dataframe_part": rows([2, 3], ["B", "c"]), "insert_mode": REPLACE}])
    assert scanned(call, table).to_pydict() == {"id": [1, 2, 3], "text": ["a", "B", "c"]}
    call.upload("WriteTable", [{"dataframe_part": rows([1, 7], ["A", "g"]), "insert_mode": UPDATE}])
    assert scanned(call, table).to_pydict() == {"id": [1, 2, 3], "text": ["A", "B", "c"]}
    assert refused(call.upload, "WriteTable", [{"dataframe_part": rows([1], ["x"]), "insert_mode": 9}]) is (
        Status.INVALID_ARGUMENT
    )
    call.upload("WriteTable", [{"dataframe_part": rows([9], ["z"]), "insert_mode": OVERWRITE}])
    assert scanned(call, table).to_pydict() == {"id": [9], "text": ["z"]}
    told = schema_in(call("GetTableSchema", table_id=entry_id_message(table.id)).schema)
    assert told.names == SCHEMA.names


def test_an_upload_that_breaks_off_writes_nothing(catalog: CatalogClient, table: TableEntry) -> None:
    call = caller_of(catalog, table)
    broken = part_of(pa.record_batch({"id": [1]}))
    broken.payload = broken.payload[:40]
    first = {"dataframe_part": rows([1], ["a"]), "insert_mode": APPEND}
    other = {"dataframe_part": part_of(pa.record_batch({"other": [1]})), "insert_mode": APPEND}
    for second in ({"dataframe_part": broken, "insert_mode": APPEND}, other, {**first, "insert_mode": OVERWRITE}):
        assert refused(call.upload, "WriteTable", [first, second]) is Status.INVALID_ARGUMENT
    assert table.reader().count() == 0


def test_an_upload_whose_client_has_gone_writes_nothing(catalog: CatalogClient, table: TableEntry) -> None:
    method = caller_of(catalog, table).service.methods["/rerun.cloud.v1alpha1.RerunCloudService/WriteTable"]
    request = method.request(dataframe_part=rows([1], ["a"]), insert_mode=APPEND)
    call = Call({"x-rerun-entry-id": str(table.id)}, is_active=lambda: False)
    assert refused(method.handler, iter([request, request]), call) is Status.CANCELLED
    assert table.reader().count() == 0


def test_a_table_is_made_where_the_client_says(catalog: CatalogClient, tmp_path: Path) -> None:
    call = Caller(catalog)
    place = tmp_path / "elsewhere" / "t"
    wanted = {"name": "t", "provider_details": details(place.as_uri()), "schema": schema_message(SCHEMA)}
    made = call("CreateTableEntry", **wanted).table
    url = cloud("LanceTable").FromString(made.provider_details.value).table_url
    assert url.rstrip("/") == place.as_uri() and (place / "_versions").is_dir()
    assert refused(call, "CreateTableEntry", **wanted) is Status.ALREADY_EXISTS
    other = {**wanted, "provider_details": details((tmp_path / "free").as_uri())}
    assert refused(call, "CreateTableEntry", **other) is Status.ALREADY_EXISTS
    assert not list((tmp_path / "free").rglob("*.manifest"))
    again = call("RegisterTable", name="again", provider_details=details(url)).table_entry
    assert again.details.name == "again" and again.provider_details == made.provider_details


def test_tables_are_opened_below_allowed_places_alone(catalog: CatalogClient, tmp_path: Path) -> None:
    call = Caller(catalog)
    call.service = CatalogService(catalog, ServiceOptions(readable=[str(tmp_path / "open")]))
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "link").symlink_to(tmp_path)
    other = tmp_path / "other"
    for url in (other.as_uri(), "file:///etc", f"{(tmp_path / 'open').as_uri()}/../other", f"{tmp_path}/open/link/x"):
        assert refused(call, "RegisterTable", name="x", provider_details=details(url)) is Status.PERMISSION_DENIED
    call("CreateTableEntry", name="y", provider_details=details(f"{tmp_path}/open/y"), schema=schema_message(SCHEMA))
    system = {"type_url": "/rerun.cloud.v1alpha1.SystemTable", "value": b""}
    assert refused(call, "RegisterTable", name="x", provider_details=system) is Status.INVALID_ARGUMENT


def test_a_table_has_blueprints_once_somebody_asks(catalog: CatalogClient, table: TableEntry) -> None:
    call = Caller(catalog)
    id_ = entry_id_message(table.id)
    assert not call("ReadTableEntry", id=id_).table.table_details.HasField("blueprint_dataset")
    names = catalog.entry_names(include_hidden=True)
    made = call("UpdateTableEntry", id=id_, table_details={}).table.table_details
    assert catalog.entry_names(include_hidden=True) == sorted([*names, f"__bp_{table.id}"])
    assert call("ReadTableEntry", id=id_).table.table_details == made
    assert table.blueprint_dataset().segment_ids() == [] and table.default_blueprint() is None
    missing = {"blueprint_dataset": entry_id_message(table.id)}
    assert refused(call, "UpdateTableEntry", id=id_, table_details=missing) is Status.INVALID_ARGUMENT
    assert call("UpdateTableEntry", id=id_, table_details={"default_blueprint_segment": {"id": "later"}})
    assert table.default_blueprint() == "later"
    call("DeleteEntry", id=made.blueprint_dataset)
    assert refused(call, "UpdateTableEntry", id=id_, table_details=made) is Status.INVALID_ARGUMENT
    assert not call("ReadTableEntry", id=id_).table.table_details.HasField("blueprint_dataset")
    call("UpdateTableEntry", id=id_, table_details={})
    call("DeleteEntry", id=id_)
    assert catalog.entry_names(include_hidden=True) == ["__entries"]


def test_the_table_of_entries_is_read_alone(catalog: CatalogClient, table: TableEntry) -> None:
    system = catalog.get_table("__entries")
    call = caller_of(catalog, system)
    made = call("ReadTableEntry", id=entry_id_message(system.id)).table
    assert made.provider_details.type_url.endswith(".SystemTable")
    assert len(call("ScanTable", table_id=entry_id_message(system.id))) == 1
    write = [{"dataframe_part": rows([1], ["a"]), "insert_mode": APPEND}]
    assert refused(call.upload, "WriteTable", write) is Status.INVALID_ARGUMENT
    assert (
        refused(call, "UpdateTableEntry", id=entry_id_message(system.id), table_details={}) is Status.INVALID_ARGUMENT
    )
