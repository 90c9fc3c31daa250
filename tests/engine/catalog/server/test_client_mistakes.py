"""Mistakes of clients: a status that says so, a text that says what differs, and nothing of the server's inside."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.catalog import CatalogClient, DatasetEntry, TableEntry
from chunkmill.engine.catalog.server import Access, CatalogService, ProtocolError, ServiceOptions, Status
from chunkmill.engine.catalog.server.datasets import error_of
from chunkmill.engine.catalog.server.lake import without_places
from chunkmill.engine.catalog.server.protocol import SERVICE, cloud, part_of, rows_in, schema_message
from chunkmill.engine.catalog.server.reception import Reception
from chunkmill.engine.errors import UnfitRowsError, WriteError
from chunkmill.engine.ingest import logging_to

KEY = {"rerun:is_table_index": "true"}
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False, KEY), pa.field("v", pa.string()), pa.field("n", pa.int32(), False)]
)
ROW = pa.table({"id": [1], "v": ["a"], "n": pa.array([1], pa.int32())}, SCHEMA)
UNION = pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])])
TWICE = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])


class Client:
    """Calls through the reception that all transports have, with its log."""

    def __init__(self, catalog: CatalogClient, folder: Path) -> None:
        self.folder = folder
        service = CatalogService(catalog, ServiceOptions(readable=[str(folder)]))
        self._methods = service.methods
        self._reception = Reception(Access(), shown=service.shown)
        self.log = ""

    def call(self, name: str, entry: Any, *fields: dict[str, Any]) -> list[Any]:
        """The answers to a call."""
        method = self._methods[f"/{SERVICE}/{name}"]
        requests = [method.request(**some).SerializeToString() for some in fields]
        headers = {} if entry is None else {"x-rerun-entry-id": str(entry.id)}
        with logging_to(log := io.StringIO()):
            try:
                found = list(self._reception.run(method, iter(requests), headers))
            finally:
                self.log = log.getvalue()
        return [method.response.FromString(data) for data in found]

    def refused(self, name: str, entry: Any, *fields: dict[str, Any]) -> tuple[Status, str]:
        """How a call ended, of which nothing is to be in the log, and no place of the server in the text."""
        with pytest.raises(ProtocolError) as caught:
            self.call(name, entry, *fields)
        assert self.log == ""
        self.check(caught.value.text)
        return caught.value.code, caught.value.text

    def check(self, text: str) -> None:
        """See that no place of the server is in a text, except in a URL that the client has named."""
        text = text.replace(self.folder.parent.as_uri(), "")
        assert str(self.folder) not in text
        assert str(self.folder.parent) not in text
        assert "/chunkmill/" not in text


@pytest.fixture
def client(catalog: CatalogClient, tmp_path: Path) -> Client:
    return Client(catalog, tmp_path)


@pytest.fixture
def table(catalog: CatalogClient) -> TableEntry:
    table = catalog.create_table("t", SCHEMA)
    table.append(ROW)
    return table


def written(mode: int, *tables: pa.Table) -> list[dict[str, Any]]:
    return [{"dataframe_part": part_of(one), "insert_mode": mode} for one in tables]


@pytest.mark.parametrize("mode", [1, 3, 4])
@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        (pa.table({"id": ["x"]}), ["`id` should have type int64", "string"]),
        (pa.table({"id": [1], "zz": [1]}), ["unexpected=[zz]", "id, v, n"]),
        (pa.table({"id": [5], "n": [1 << 40]}), ["`n` should have type int32", "int64"]),
        (pa.table({"id": [5], "n": pa.array([None], pa.int32())}), ["'n' has nulls"]),
        (pa.table({"id": pa.array([None], pa.int64()), "n": pa.array([1], pa.int32())}), ["'id' has nulls"]),
        (pa.table({"id": [[1]]}), ["`id` should have type int64", "list"]),
        (pa.table({"u": UNION}), ["unexpected=[u]"]),
        (TWICE, ["two columns with the name 'id'"]),
    ],
)
def test_rows_that_do_not_fit_their_table(
    client: Client, table: TableEntry, mode: int, rows: pa.Table, parts: Sequence[str]
) -> None:
    code, text = client.refused("WriteTable", table, *written(mode, rows))
    assert code is Status.INVALID_ARGUMENT
    assert all(part in text for part in parts), text
    assert table.to_arrow_reader().read_all().to_pylist() == ROW.to_pylist()


def test_locally_they_are_an_error_of_their_own(table: TableEntry) -> None:
    for wrong in (pa.table({"id": ["x"]}), pa.table({"zz": [1]}), pa.table({"id": [1]})):
        with pytest.raises(UnfitRowsError) as caught:
            table.append(wrong)
        assert isinstance(caught.value, WriteError)
        assert isinstance(caught.value, ValueError)
    with pytest.raises(ValueError, match="two columns with the name 'id'"):
        table.overwrite(TWICE)


def test_messages_of_one_write_that_differ(client: Client, table: TableEntry) -> None:
    for other, text in (
        (pa.table({"id": [2], "v": ["b"]}), "'n' is missing"),
        (ROW.append_column("more", [[1]]), "'more' is new"),
        (ROW.set_column(1, "v", [[2]]), "'v' is int64, and was string"),
    ):
        code, said = client.refused("WriteTable", table, *written(1, ROW, other))
        assert code is Status.INVALID_ARGUMENT
        assert text in said


@pytest.mark.parametrize(
    "columns", [pa.table({"u": UNION}).schema, pa.table({"s": pa.StructArray.from_arrays([UNION], ["u"])}).schema]
)
def test_columns_that_no_table_has(client: Client, columns: pa.Schema) -> None:
    given = {"name": "new", "schema": schema_message(columns)}
    code, text = client.refused("CreateTableEntry", None, given)
    assert (code, "dense_union" in text) == (Status.INVALID_ARGUMENT, True)


def at(place: Any) -> dict[str, Any]:
    value = cloud("LanceTable")(table_url=str(place)).SerializeToString()
    return {"type_url": "/rerun.cloud.v1alpha1.LanceTable", "value": value}


@pytest.mark.parametrize("place", ["file", "file/below", "x" * 300, "nothing/here"])
def test_places_where_no_table_is_or_can_be(client: Client, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("x")
    named = {"name": "new", "provider_details": at(tmp_path / place)}
    made, _ = client.refused("RegisterTable", None, named)
    assert made in (Status.NOT_FOUND, Status.INVALID_ARGUMENT, Status.DATA_LOSS)
    if not place.startswith("nothing"):
        made, _ = client.refused("CreateTableEntry", None, {**named, "schema": schema_message(SCHEMA)})
        assert made is Status.INVALID_ARGUMENT


def test_places_where_a_table_is_already(client: Client, table: TableEntry) -> None:
    given = {"name": "again", "schema": schema_message(SCHEMA), "provider_details": at(table.storage_url)}
    code, text = client.refused("CreateTableEntry", None, given)
    assert code is Status.ALREADY_EXISTS
    assert "lake/tables/" in text


@pytest.mark.parametrize("name", ["bad.rrd", "cut.rrd", "two.rrd"])
def test_files_that_are_not_registered_say_why(
    client: Client, dataset: DatasetEntry, tmp_path: Path, name: str
) -> None:
    files = tmp_path / "files"
    (files / "bad.rrd").write_bytes(b"none")
    (files / "cut.rrd").write_bytes((files / "two.rrd").read_bytes()[:900])
    source = {"storage_url": (files / name).as_uri(), "typ": 1}
    (found,) = client.call("RegisterWithDataset", dataset, {"data_sources": [source], "on_duplicate": 3})
    (task,) = rows_in(found.data)["rerun_task_id"].to_pylist()
    reason = error_of(task)
    assert reason is not None
    assert f"files/{name}" in reason
    client.check(reason)


@pytest.mark.parametrize("url", ["nope.rrd", "", "x" * 400 + ".rrd"])
def test_files_that_are_not_there(client: Client, dataset: DatasetEntry, tmp_path: Path, url: str) -> None:
    source = {"storage_url": (tmp_path / "files" / url).as_uri(), "typ": 1}
    code, _ = client.refused("RegisterWithDataset", dataset, {"data_sources": [source]})
    assert code in (Status.NOT_FOUND, Status.INVALID_ARGUMENT)


def test_keys_of_chunks_that_stand_twice(client: Client, dataset: DatasetEntry) -> None:
    twice = pa.Table.from_arrays([pa.array([b"x"]), pa.array([b"y"])], names=["chunk_key"] * 2)
    code, text = client.refused("FetchChunks", dataset, {"chunk_infos": [part_of(twice)]})
    assert code is Status.INVALID_ARGUMENT
    assert "two columns with the name 'chunk_key'" in text


def test_a_damaged_file_of_the_lake_is_named_without_its_place(
    client: Client, dataset: DatasetEntry, tmp_path: Path
) -> None:
    plans = client.call("QueryDataset", dataset, {"select_all_entity_paths": True})
    for path in (tmp_path / "files").iterdir():
        path.write_bytes(b"x" * 30)
    code, text = client.refused("FetchChunks", dataset, {"chunk_infos": [plan.data for plan in plans]})
    assert code in (Status.DATA_LOSS, Status.NOT_FOUND)
    assert "files/" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/srv/lake/a: cut", "lake/a: cut"),
        ("file:///srv/lake/a: cut", "file:///srv/lake/a: cut"),
        ("'/srv/lake' and \"/srv/lake/b\"", "'lake' and \"lake/b\""),
        ("/srv/lakes/a, /other/srv/lake, /camera/image", "/srv/lakes/a, /other/srv/lake, /camera/image"),
        ("/srv/lake-2/a (/srv/lake)", "/srv/lake-2/a (lake)"),
    ],
)
def test_places_in_texts(text: str, shown: str) -> None:
    assert without_places(text, ["/srv/lake"]) == shown
