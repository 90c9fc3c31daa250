"""The older API gives what Rerun 0.27 gave: each of its recorded calls is asked again, or is another on purpose.

The recorded answers are ``../shared/golden/query/api_0.27.3.json``, where that is; the calls are here.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import datafusion
import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.catalog import CatalogClient as CurrentClient
from chunkmill.engine.catalog.v0_27 import (
    AlreadyExistsError,
    CatalogClient,
    DataframeQueryView,
    DataFusionTable,
    DatasetEntry,
    EntryId,
    EntryKind,
    NotFoundError,
    TableInsertMode,
    Task,
    Tasks,
    VectorDistanceMetric,
)
from places import SHARED
from small_recordings import rrd_at

RECORDED = SHARED / "golden" / "query" / "api_0.27.3.json"
COLUMNS = pa.schema([("a", pa.int64()), ("b", pa.string())])


class Lake:
    """A catalog with a dataset of three partitions, and a table, as the recorded calls had."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client = CatalogClient(folder / "lake")
        self.dataset = self.client.create_dataset("ds")
        self.uris = {name: rrd_at(folder / f"{name}.rrd", name).as_uri() for name in ("s1", "s2")}
        self.registered = self.dataset.register(self.uris["s1"])
        self.tasks = self.dataset.register_batch([self.uris["s2"], self.uris["s2"]], recording_layers=["base", "x"])
        self.tasks.wait(60)
        self.table = self.client.create_table_entry("t", COLUMNS, (folder / "tables").as_uri())

    def rows(self) -> list[dict[str, Any]]:
        return self.client.get_table_entry(name="t").df().to_pylist()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(tmp_path_factory.mktemp("older"))


HIDDEN = "__bp_"


def shown(entries: list[Any]) -> list[str]:
    return sorted(repr(entry) for entry in entries if not entry.name.startswith(HIDDEN))


def check_lists(lake: Lake) -> None:
    client = lake.client
    found = client.entries()
    assert isinstance(found, datafusion.DataFrame)
    assert found.schema().names == ["id", "name", "entry_kind", "created_at", "updated_at"]
    assert {row["entry_kind"] for row in found.to_pylist()} == {1, 3, 5}
    assert [(row["name"], len(row)) for row in client.datasets().to_pylist()] == [("ds", 4)]
    assert sorted(row["name"] for row in client.tables().to_pylist()) == ["__entries", "t"]
    assert client.tables().schema().names == ["id", "name", "created_at", "updated_at"]
    tables = ["Entry(Table, '__entries')", "Entry(Table, 't')"]
    assert shown(client.all_entries()) == ["Entry(Dataset, 'ds')", *tables]
    assert [entry.kind for entry in client.all_entries() if entry.name.startswith(HIDDEN)] == [
        EntryKind.BLUEPRINT_DATASET
    ]
    assert shown(client.dataset_entries()) == ["Entry(Dataset, 'ds')"]
    assert shown(client.table_entries()) == tables


def check_names(lake: Lake) -> None:
    names = lake.client.entry_names()
    assert [name for name in names if not name.startswith(HIDDEN)] == ["__entries", "ds", "t"] and len(names) == 4
    assert lake.client.dataset_names() == ["ds"] and lake.client.table_names() == ["__entries", "t"]


def check_getting(lake: Lake) -> None:
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        lake.client.get_dataset("ds")  # type: ignore[misc]
    found = lake.client.get_dataset(name="ds")
    assert found == lake.client.get_dataset_entry(id=str(found.id)) == "ds" and found == found.id != "t"
    assert (repr(found), str(found)) == ("Entry(Dataset, 'ds')",) * 2
    with pytest.raises(LookupError, match="nope"):
        lake.client.get_dataset(name="nope")
    for wrong in ({}, {"name": "ds", "id": str(found.id)}):
        with pytest.raises(ValueError, match="must be provided"):
            lake.client.get_dataset(**wrong)
    with pytest.raises(TypeError):
        hash(found)


def check_register(lake: Lake) -> None:
    assert lake.registered == "s1"
    with pytest.raises(AlreadyExistsError):
        lake.dataset.register(lake.uris["s1"])
    assert lake.dataset.register(lake.uris["s1"], recording_layer="again", timeout_secs=60) == "s1"


def check_tasks(lake: Lake) -> None:
    tasks, task = lake.tasks, lake.tasks[0]
    assert isinstance(tasks, Tasks) and isinstance(task, Task) and len(tasks) == 1 and [*tasks] == [task]
    assert task.id.startswith("task_") and len(task.id) == 37 and repr(task) == f"Task({task.id})"
    tasks.wait(60)
    task.wait(60)
    with pytest.raises(IndexError, match="Index out of range"):
        tasks[9]


def check_status_table(lake: Lake) -> None:
    found = lake.tasks.status_table()
    assert isinstance(found, DataFusionTable) and found.name
    table = found.df().to_arrow_table()
    assert not any(table.schema.field(name).nullable for name in ("task_id", "exec_status", "attempts"))
    (row,) = table.to_pylist()
    assert (row["task_id"], row["exec_status"], row["msgs"], row["attempts"]) == (lake.tasks[0].id, "success", None, 1)
    broken = lake.folder / "broken.rrd"
    broken.write_bytes(b"RRF2 and no more")
    tasks = lake.dataset.register_batch([broken.as_uri()])
    with pytest.raises(ValueError, match=r"broken\.rrd"):
        tasks.wait(60)
    (row,) = tasks.status_table().to_arrow_reader().read_all().to_pylist()
    assert row["exec_status"] == "failed" and "broken.rrd" in row["msgs"]


def check_missing_file(lake: Lake) -> None:
    with pytest.raises(NotFoundError):
        lake.dataset.register_batch([(lake.folder / "none.rrd").as_uri()])


def check_prefix(lake: Lake) -> None:
    rrd_at(lake.folder / "below" / "s1.rrd", "s1")
    prefix = (lake.folder / "below").as_uri()
    tasks = lake.dataset.register_prefix(prefix, "pp")
    assert isinstance(tasks, Tasks)
    tasks.wait(60)
    with pytest.raises(AlreadyExistsError):
        lake.dataset.register_prefix(prefix, "pp")


def check_partitions(lake: Lake) -> None:
    assert sorted(lake.dataset.partition_ids()) == ["s1", "s2"]
    table = lake.dataset.partition_table()
    assert isinstance(table, DataFusionTable)
    rows = {row["rerun_partition_id"]: row for row in table.to_arrow_reader().read_all().to_pylist()}
    assert rows["s2"]["rerun_layer_names"] == ["base", "x"] and table.df().schema().names[0] == "rerun_partition_id"


def check_manifest(lake: Lake) -> None:
    manifest = lake.dataset.manifest()
    assert manifest.df().schema().names[:9] == [
        "rerun_layer_name",
        "rerun_partition_id",
        "rerun_storage_url",
        "rerun_layer_type",
        "rerun_registration_time",
        "rerun_last_updated_at",
        "rerun_num_chunks",
        "rerun_size_bytes",
        "rerun_schema_sha256",
    ]
    assert manifest.df().count() == sum(map(len, lake.dataset.partition_table().df().to_pydict()["rerun_layer_names"]))


def check_url(lake: Lake) -> None:
    url = lake.dataset.partition_url
    place = f"{lake.client.url}/dataset/{lake.dataset.id}?partition_id=s1"
    assert url("s1") == place and url("s1", "frame", 1, 10) == f"{place}&time_range=frame@1..10"
    start = datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert url("s1", "t", start, start).endswith("t@1970-01-01T00:00:01.5Z..1970-01-01T00:00:01.5Z")
    assert url("s1", "t").endswith("t@1677-09-21T00:12:43.145224193Z..2262-04-11T23:47:16.854775807Z")
    assert url("s1", "d", timedelta(seconds=1)).startswith(f"{place}&time_range=d@+1s..+106751d")
    assert url("s1", "frame", end=5).endswith("frame@-9223372036854775807..5")
    with pytest.raises(ValueError, match="`timeline` must also be specified"):
        url("s1", start=1)


def check_blueprints(lake: Lake) -> None:
    hidden = lake.dataset.blueprint_dataset()
    assert isinstance(hidden, DatasetEntry) and repr(hidden).startswith("Entry(BlueprintDataset, '__bp_")
    assert lake.dataset.blueprint_dataset_id() == hidden.id and isinstance(hidden.id, EntryId)
    assert hidden.blueprint_dataset() is None and hidden.blueprint_dataset_id() is None
    assert lake.dataset.default_blueprint_partition_id() is None
    with pytest.raises(NotFoundError):
        lake.dataset.set_default_blueprint_partition_id("zz")
    lake.dataset.set_default_blueprint_partition_id(None)


def check_schema(lake: Lake) -> None:
    schema = lake.dataset.schema()
    assert repr(schema.index_columns()[0]).startswith("Index(timeline:")
    wanted = {"column_for", "column_for_selector", "component_columns", "index_columns"}
    assert wanted <= set(dir(schema)) and lake.dataset.arrow_schema() == schema.to_arrow().with_metadata(
        lake.dataset.arrow_schema().metadata
    )


def check_download(lake: Lake) -> None:
    assert len(list(lake.dataset.download_partition("s1").stream())) >= 1
    with pytest.raises(NotFoundError):
        lake.dataset.download_partition("none")


def check_view(lake: Lake) -> None:
    index = lake.dataset.schema().index_columns()[0].name
    view = lake.dataset.dataframe_query_view(index=index, contents="/**")
    assert isinstance(view, DataframeQueryView) and isinstance(view.df(), datafusion.DataFrame)
    reader = view.filter_partition_id("s1").to_arrow_reader()
    assert isinstance(reader, pa.RecordBatchReader) and reader.schema.names[0] == "rerun_partition_id"
    assert reader.schema == view.filter_partition_id("s1").df().schema() and reader.read_all().num_rows == 3
    with pytest.raises(NotFoundError, match="Partition 'nope' not found"):
        view.filter_partition_id("s1", "nope").df()


def check_table(lake: Lake) -> None:
    assert repr(lake.table) == "Entry(Table, 't')" and lake.table == lake.client.get_table(name="t")
    assert lake.table.storage_url.startswith((lake.folder / "tables").as_uri())
    assert lake.client.ctx.sql("select count(*) as n from t").to_pylist() == [{"n": len(lake.rows())}]


def check_table_names(lake: Lake) -> None:
    assert {"df", "to_arrow_reader", "storage_url", "__datafusion_table_provider__"} <= set(dir(lake.table))
    assert lake.table.to_arrow_reader().schema.names == COLUMNS.names


def check_writes(lake: Lake) -> None:
    client, before = lake.client, len(lake.rows())
    client.append_to_table("t")
    client.append_to_table("t", a=[1, 2], b=["x", "y"])
    client.append_to_table("t", a=3)
    batch = pa.record_batch([pa.array([4]), pa.array(["z"])], COLUMNS)
    client.write_table("t", batch, TableInsertMode.APPEND)
    assert len(lake.rows()) == before + 4
    client.write_table("t", [[batch], [batch]], TableInsertMode.OVERWRITE)
    assert lake.rows() == [{"a": 4, "b": "z"}] * 2


def check_modes(_: Lake) -> None:
    assert {mode.name: mode.value for mode in TableInsertMode}.items() >= {"APPEND": 1, "OVERWRITE": 2}.items()


def check_unequal(lake: Lake) -> None:
    with pytest.raises(ValueError, match="Columns have mismatched number of rows"):
        lake.client.append_to_table("t", a=[1, 2], b=["x"])


def check_unknown_column(lake: Lake) -> None:
    with pytest.raises(KeyError, match="Column zz does not exist in schema"):
        lake.client.append_to_table("t", zz=[1])


def check_unknown_table(lake: Lake) -> None:
    batch = pa.record_batch([pa.array([4])], ["a"])
    with pytest.raises(NotFoundError, match="Table with name nope not found"):
        lake.client.write_table("nope", batch, TableInsertMode.APPEND)


CHECKS = {
    "Lists": (check_lists, "entries() datasets() tables() all_entries dataset_entries table_entries"),
    "Names": (check_names, "names"),
    "Getting": (check_getting, "get_positional get_dataset ds_repr get_nope"),
    "Register": (check_register, "register register_again"),
    "Tasks": (check_tasks, "batch Tasks Tasks.wait() Task.wait T[9]"),
    "Status": (check_status_table, "status_table"),
    "Missing file": (check_missing_file, "batch_err"),
    "Prefix": (check_prefix, "prefix"),
    "Partitions": (check_partitions, "partition_ids partition_table"),
    "Manifest": (check_manifest, "manifest manifest_rows"),
    "Url": (check_url, "partition_url"),
    "Blueprints": (check_blueprints, "bp_id bp default_bp set_bp"),
    "Schema": (check_schema, "index_columns schema_type"),
    "Download": (check_download, "dl"),
    "View": (check_view, "view"),
    "Table": (check_table, "create_table_entry storage_url"),
    "Table's names": (check_table_names, "tb_dir to_arrow_reader"),
    "Writes": (
        check_writes,
        "append_to_table append_scalar write_table_append write_table_replace write_table_overwrite",
    ),
    "Modes": (check_modes, "modes"),
    "Unequal columns": (check_unequal, "append_mism"),
    "Unknown column": (check_unknown_column, "append_unk"),
    "Unknown table": (check_unknown_table, "write_missing_table"),
}
"""The checks, and the recorded calls that each asks again."""


@pytest.mark.parametrize("name", CHECKS)
def test_recorded_calls_are_answered(lake: Lake, name: str) -> None:
    CHECKS[name][0](lake)


@pytest.mark.wide
@pytest.mark.skipif(not RECORDED.exists(), reason="the recorded answers are not at hand")
def test_every_recorded_call_is_asked() -> None:
    recorded = {call["call"].replace(" ", "_") for call in json.loads(RECORDED.read_text())}
    asked = [label for _, labels in CHECKS.values() for label in labels.split()]
    assert recorded == set(asked) and len(asked) == len(recorded) == 47


@pytest.mark.wide
@pytest.mark.skipif(not RECORDED.exists(), reason="the recorded answers are not at hand")
@pytest.mark.parametrize(
    ("label", "ask"),
    [
        ("entries()", lambda lake: lake.client.entries()),
        ("status_table", lambda lake: lake.tasks.status_table().df()),
        ("partition_table", lambda lake: lake.dataset.partition_table().df()),
        ("manifest", lambda lake: lake.dataset.manifest().df()),
    ],
)
def test_columns_have_the_recorded_types(lake: Lake, label: str, ask: Any) -> None:
    told = next(call["result"] for call in json.loads(RECORDED.read_text()) if call["call"] == label)
    wanted = re.findall(r"(?:^|>, )(\w+: [\w\[\]<>: ]+)(?=\n|, \[|$)", told, re.MULTILINE)
    columns = [
        f"{field.name}: {field.type}{'' if field.nullable else ' not null'}"
        for field in ask(lake).to_arrow_table().schema
    ]
    assert len(wanted) >= 5 and wanted == columns[: len(wanted)]


def test_both_apis_have_one_catalog_open(lake: Lake) -> None:
    dataset = CurrentClient(lake.folder / "lake").get_dataset("ds")
    assert sorted(dataset.segment_ids()) == sorted(lake.dataset.partition_ids())
    assert lake.dataset.created_at == dataset.created_at and lake.dataset.updated_at >= lake.dataset.created_at
    assert lake.dataset.catalog is lake.client and lake.dataset.manifest_url == dataset.manifest_url


def test_entries_are_renamed_and_deleted(tmp_path: Path) -> None:
    client = CatalogClient(tmp_path)
    dataset = client.create_dataset("one")
    dataset.update(name="two")
    assert client.dataset_names() == ["two"] == [dataset.name]
    client.do_global_maintenance()
    dataset.delete()
    assert client.dataset_names() == [] and client.datasets().count() == 0


def test_search_has_its_older_names(lake: Lake) -> None:
    assert lake.dataset.list_indexes() == []
    for call in (
        lambda d: d.create_fts_index(column="/a:nope", time_index="frame"),
        lambda d: d.create_vector_index(column="/a:nope", time_index="frame"),
        lambda d: d.search_fts("word", "/a:text"),
        lambda d: d.search_vector([1.0], "/a:vector", 3),
        lambda d: d.delete_indexes("/a:nope"),
    ):
        with pytest.raises(LookupError):
            call(lake.dataset)
    with pytest.raises(ValueError, match="Unknown vector distance metric: foo"):
        lake.dataset.create_vector_index(column="/a:v", time_index="frame", distance_metric="foo")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="only one of num_partitions"):
        lake.dataset.create_vector_index(column="/a:v", time_index="t", num_partitions=2, target_partition_num_rows=9)
    assert VectorDistanceMetric.of("dot") is VectorDistanceMetric.Dot


def test_layers_of_a_batch_are_repeated_or_cut(tmp_path: Path) -> None:
    client = CatalogClient(tmp_path / "lake")
    uris = [rrd_at(tmp_path / f"{name}.rrd", name).as_uri() for name in "abc"]
    for name, layers, expected in (
        ("none", [], ["base"] * 3),
        ("few", ["x", "y"], ["x", "y", "y"]),
        ("many", list("uvwxyz"), ["u", "v", "w"]),
    ):
        dataset = client.create_dataset(name)
        dataset.register_batch(uris, recording_layers=layers).wait(60)
        assert dataset.manifest().df().to_pydict()["rerun_layer_name"] == expected


def test_the_current_register_takes_the_older_keywords(tmp_path: Path) -> None:
    dataset = CurrentClient(tmp_path / "lake").create_dataset("ds")
    uri = rrd_at(tmp_path / "s1.rrd", "s1").as_uri()
    with pytest.warns(DeprecationWarning, match="'recording_layer' is deprecated, use 'layer_name'"):
        assert dataset.register(uri, recording_layer="x") == "s1"  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning, match="'timeout_secs' is deprecated"):
        assert dataset.register(uri, timeout_secs=60) == "s1"  # type: ignore[call-arg]
    with (
        pytest.warns(DeprecationWarning, match="recording_layer"),
        pytest.raises(ValueError, match="only one of layer_name"),
    ):
        dataset.register(uri, layer_name="y", recording_layer="x")  # type: ignore[call-arg]
    assert dataset.manifest().to_pydict()["rerun_layer_name"] == ["x", "base"]


def test_numbers_of_numpy_bound_a_range(lake: Lake) -> None:
    index = lake.dataset.schema().index_columns()[0].name
    view = lake.dataset.dataframe_query_view(index=index, contents="/**").filter_partition_id("s2")
    values = [int(value.as_py()) for value in view.df().to_arrow_table()[index].cast(pa.int64())[1:]]
    assert view.filter_range_sequence(np.int64(values[0]), np.uint8(values[1])).df().count() == 2
    first, last = (np.float64(value / 1e9) for value in values)
    assert view.filter_range_nanos(0, 0).filter_range_secs(first, last).df().count() == 2


def test_a_view_refuses_what_it_cannot_mean(lake: Lake) -> None:
    view = lake.dataset.dataframe_query_view(index="frame", contents="/**")
    static = lake.dataset.dataframe_query_view(index=None, contents="/**")
    for wrong in (lambda: static.filter_range_sequence(1, 2), lambda: static.filter_range_secs(1, 2)):
        with pytest.raises(ValueError, match="Specify an index to filter on first"):
            wrong()
    for wrong in (
        lambda: view.filter_range_sequence(1.5, 2),  # type: ignore[arg-type]
        lambda: view.filter_partition_id("a", 1),  # type: ignore[arg-type]
        lambda: view.filter_is_not_null(3),  # type: ignore[arg-type]
        lambda: view.using_index_values([1.5]),
        lambda: view.filter_range_secs("1", "2"),  # type: ignore[arg-type]
        lambda: lake.dataset.register_batch(lake.uris["s1"]),
        lambda: lake.dataset.register_batch([lake.uris["s1"]], recording_layers="base"),
        lambda: lake.dataset.dataframe_query_view(index="frame", contents=["/**"]),  # type: ignore[arg-type]
        lambda: lake.dataset.dataframe_query_view(index="frame", contents={"/**": [1]}),  # type: ignore[list-item]
    ):
        with pytest.raises(TypeError):
            wrong()
    for bad in (lambda: view.filter_range_secs(float("nan"), 1), lambda: view.filter_index_values([1, 1])):
        with pytest.raises(ValueError, match=r"number of seconds|must be unique"):
            bad()
