"""Entries of a catalog: making, naming, finding and deleting them, by one client and by many."""

from __future__ import annotations

import getpass
import json
import shutil
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine import RecordingStore
from chunkmill.engine.catalog import (
    AlreadyExistsError,
    CatalogClient,
    EntryId,
    EntryKind,
    NotFoundError,
    Server,
    maintenance,
)
from chunkmill.engine.catalog.entries import EntryRow
from chunkmill.engine.catalog.entry_log import KEPT_VERSIONS, CatalogVersion
from chunkmill.engine.errors import SourceMissingError
from chunkmill.engine.execution import LocalFolder
from chunkmill.engine.storage import VersionFiles
from chunkmill.engine.storage.folder import Folder
from small_recordings import ingest, rrd_at


@pytest.fixture
def client(tmp_path: Path) -> CatalogClient:
    return CatalogClient(tmp_path / "lake")


def test_a_catalog_begins_empty_and_is_made_with_its_first_entry(client: CatalogClient, tmp_path: Path) -> None:
    assert client.entries() == []
    with pytest.raises(NotFoundError, match=r"'drives'\. The catalog is empty, or does not exist; check its path\."):
        client.get_dataset("drives")
    assert not (tmp_path / "lake").exists()
    dataset = client.create_dataset("drives")
    assert CatalogClient(f"file://{tmp_path}/lake").entry_names() == ["drives"]
    assert client.get_dataset("drives") == dataset == client.get_dataset(id=dataset.id)
    assert client.get_dataset(id=str(dataset.id).lower()) == dataset
    assert (dataset.kind, dataset.segment_ids(), dataset.blueprints()) == (EntryKind.DATASET, [], [])


def test_hidden_entries_are_listed_where_they_are_asked_for(client: CatalogClient) -> None:
    dataset = client.create_dataset("drives")
    hidden = dataset.blueprint_dataset()
    assert hidden is not None and hidden.kind is EntryKind.BLUEPRINT_DATASET
    assert hidden.name == f"__bp_{dataset.id}" and hidden.blueprint_dataset() is None
    assert client.entry_names() == ["drives"]
    assert client.entry_names(include_hidden=True) == [hidden.name, "__entries", "drives"]
    assert client.dataset_names(include_hidden=True) == [hidden.name, "drives"]
    assert client.table_names() == []


def test_the_system_table_has_every_entry(client: CatalogClient) -> None:
    dataset = client.create_dataset("drives")
    table = client.get_table("__entries")
    rows = {row["name"]: row for row in table.reader().to_arrow_table().to_pylist()}
    assert rows["drives"]["id"] == dataset.id.as_bytes() and rows["drives"]["entry_kind"] == 1
    assert {row["entry_kind"] for row in rows.values()} == {1, 3, 5}
    assert table.reader().schema() == table.arrow_schema() == table.to_arrow_reader().schema


def test_a_renamed_entry_is_found_by_its_new_name_alone(client: CatalogClient) -> None:
    dataset = client.create_dataset("drives")
    before = dataset.updated_at
    dataset.set_name("trips")
    assert dataset.name == "trips" and dataset.updated_at >= before
    with pytest.raises(LookupError, match="No dataset found with name 'drives'"):
        client.get_dataset("drives")
    client.create_dataset("drives")
    with pytest.raises(AlreadyExistsError, match="Entry name 'drives' already exists"):
        dataset.update(name="drives")
    dataset.update()
    assert dataset.name == "trips"


def test_a_deleted_entry_takes_its_blueprints_along_and_nothing_else_works(client: CatalogClient) -> None:
    dataset = client.create_dataset("drives")
    dataset.delete()
    assert client.entry_names(include_hidden=True) == ["__entries"]
    assert dataset.name == "drives"
    for call in (dataset.delete, dataset.segment_ids, dataset.blueprints, lambda: dataset.set_name("x")):
        with pytest.raises(NotFoundError, match=f"Entry id '{dataset.id}' not found"):
            call()


def test_a_store_is_adopted_where_it_lies(client: CatalogClient, tmp_path: Path) -> None:
    ingest(tmp_path / "landing", ["a"], tmp_path / "lake" / "old")
    dataset = client.create_dataset("drives", url=tmp_path / "lake" / "old")
    assert dataset.segment_ids() == ["a"]
    assert client.create_dataset("drives", url=tmp_path / "lake" / "old", exist_ok=True) == dataset
    with pytest.raises(AlreadyExistsError, match="already belongs to entry 'drives'"):
        client.create_dataset("again", url=tmp_path / "lake" / "old")
    with pytest.raises(SourceMissingError, match="no store"):
        client.create_dataset("none", url=tmp_path / "nowhere")
    (tmp_path / "lake").rename(tmp_path / "moved")
    assert CatalogClient(tmp_path / "moved").get_dataset("drives").segment_ids() == ["a"]


def test_ingestion_lands_in_a_dataset(client: CatalogClient, tmp_path: Path) -> None:
    dataset = client.create_dataset("drives")
    made = dataset.updated_at
    ingest(tmp_path / "landing", ["a", "b"], dataset)
    assert dataset.segment_ids() == ["a", "b"]
    assert dataset.updated_at > made
    assert RecordingStore.open(dataset).path == tmp_path / "lake" / "datasets" / str(dataset.id)
    dataset.do_maintenance(True, True, True, datetime.now(UTC), unsafe_allow_recent_cleanup=True)
    assert dataset.segment_ids() == ["a", "b"]
    client.do_global_maintenance()
    with pytest.raises(ValueError, match="unsafe_allow_recent_cleanup"):
        dataset.do_maintenance(cleanup_before=datetime.now(UTC))


def test_of_many_who_take_one_name_one_gets_it(client: CatalogClient) -> None:
    names, outcomes = [f"d{n}" for n in range(4)], []

    def take() -> None:
        for name in names:
            try:
                outcomes.append(client.create_dataset(name))
            except AlreadyExistsError:
                outcomes.append(None)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(entry.name for entry in outcomes if entry is not None) == names
    assert client.dataset_names() == names


def test_old_versions_go(client: CatalogClient, tmp_path: Path) -> None:
    dataset = client.create_dataset("drives")
    for number in range(3 * KEPT_VERSIONS):
        dataset.set_name(f"drives {number}")
    there = list((tmp_path / "lake" / "catalog" / "versions").iterdir())
    assert KEPT_VERSIONS <= len(there) < 2 * KEPT_VERSIONS
    assert client.dataset_names() == [dataset.name]


def test_a_server_is_a_catalog_for_a_while(tmp_path: Path) -> None:
    with Server() as server:
        place = Path(server.url())
        assert server.client().create_dataset("drives") in server.client().entries()
        assert server.is_running() and place.is_dir()
    assert not server.is_running() and not place.exists()
    with pytest.raises(RuntimeError, match="server is not running"):
        server.client()
    with Server(folder=tmp_path / "lake") as server:
        server.client().create_dataset("drives")
    assert CatalogClient(tmp_path / "lake").dataset_names() == ["drives"]


def test_ids_are_the_same_in_either_case() -> None:
    first = EntryId.new()
    assert EntryId(str(first).upper()) == first and hash(EntryId(str(first).lower())) == hash(first)
    assert first.as_bytes() < EntryId.new().as_bytes()


def test_the_blueprints_that_come_along_can_be_the_default(client: CatalogClient, tmp_path: Path, data: Path) -> None:
    dataset = client.create_dataset("drives")
    (tmp_path / "landing").mkdir()
    shutil.copy(data / "rrd" / "px4-rerun__both.rbl", tmp_path / "landing" / "b.rbl")
    ingest(tmp_path / "landing", ["a"], dataset)
    (blueprint,) = dataset.blueprints()
    hidden = dataset.blueprint_dataset()
    assert hidden is not None and hidden.segment_ids() == [blueprint] and dataset.segment_ids() == ["a"]
    assert dataset.default_blueprint() is None
    dataset.set_default_blueprint(blueprint)
    assert client.get_dataset("drives").default_blueprint() == blueprint
    with pytest.raises(LookupError, match="no blueprint 'nope'"):
        dataset.set_default_blueprint("nope")
    dataset.set_default_blueprint(None)
    assert dataset.default_blueprint() is None


def test_the_data_of_a_deleted_dataset_goes_after_a_week(
    client: CatalogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = client.create_dataset("drives")
    ingest(tmp_path / "landing", ["a"], dataset)
    place = Path(dataset)
    dataset.delete()
    client.do_global_maintenance()
    assert place.is_dir()
    monkeypatch.setattr(maintenance, "a_week_ago", lambda: datetime.now(UTC) + timedelta(days=1))
    client.do_global_maintenance()
    assert not place.exists()
    assert client._log.read().removed == ()


def test_what_was_deleted_may_be_adopted_until_it_is_removed(
    client: CatalogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "a_week_ago", lambda: datetime.now(UTC) + timedelta(days=1))
    places = []
    for name in ("kept", "late"):
        dataset = client.create_dataset(name)
        ingest(tmp_path / name, [name], dataset)
        places.append(Path(dataset))
        dataset.delete()
    link = tmp_path / "link"
    link.symlink_to(places[0])
    kept = client.create_dataset("kept again", url=link)
    remove, tried = LocalFolder.remove, []

    def adopted_meanwhile(folder: LocalFolder) -> None:
        if folder.location == places[1]:
            with pytest.raises(SourceMissingError, match="being removed"):
                client.create_dataset("late again", url=folder.location)
            tried.append(folder)
        remove(folder)

    monkeypatch.setattr(LocalFolder, "remove", adopted_meanwhile)
    client.do_global_maintenance()
    assert len(tried) == 1 and not places[1].exists()
    assert kept.segment_ids() == ["kept"] and client.dataset_names() == ["kept again"]
    assert client._log.read().removed == ()


def test_a_store_beside_the_catalog_is_adopted_however_its_path_is_written(
    client: CatalogClient, tmp_path: Path
) -> None:
    ingest(tmp_path / "landing", ["a"], tmp_path / "store")
    client.create_dataset("first")
    dataset = client.create_dataset("drives", url=f"{client._log.root}/../store")
    assert dataset.segment_ids() == ["a"] and Path(dataset) == tmp_path / "store"
    assert CatalogClient(client.url).dataset_names() == ["drives", "first"]
    with pytest.raises(AlreadyExistsError, match="already belongs to entry 'drives'"):
        client.create_dataset("again", url=tmp_path / "store", exist_ok=True)


def test_a_name_that_is_freed_meanwhile_is_taken(client: CatalogClient, monkeypatch: pytest.MonkeyPatch) -> None:
    other = client.create_dataset("drives")
    named, asked = CatalogVersion.named, []

    def freed(version: CatalogVersion, name: str) -> EntryRow | None:
        if not asked:
            asked.append(name)
            other.delete()
            return named(client._log.read(), name)
        return named(version, name)

    monkeypatch.setattr(CatalogVersion, "named", freed)
    assert client.create_dataset("drives", exist_ok=True) != other
    assert asked == ["drives"]


def test_deprecated_names_warn_and_do_what_the_new_ones_do(client: CatalogClient) -> None:
    dataset = client.create_dataset("drives")
    calls = {
        client.all_entries: [dataset],
        client.dataset_entries: [dataset],
        client.table_entries: [],
        lambda: client.get_dataset_entry(name="drives"): dataset,
        lambda: client.get_dataset_entry(id=dataset.id): dataset,
        lambda: client.get_table_entry(name="__entries"): "__entries",
        dataset.partition_ids: [],
        lambda: dataset.partition_url(partition_id="a"): dataset.segment_url("a"),
        dataset.default_blueprint_partition_id: None,
        dataset.default_blueprint_segment_id: None,
        lambda: dataset.set_default_blueprint_partition_id(partition_id=None): None,
        lambda: dataset.set_default_blueprint_segment_id(None): None,
        lambda: CatalogClient(addr=client.url).url: client.url,
        lambda: Server(addr="::1").host(): "::1",
    }
    for call, result in calls.items():
        with pytest.warns(DeprecationWarning, match=r"Use \w+\(\) instead|is deprecated, use"):
            assert call() == result


def test_without_datafusion_there_is_no_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datafusion", None)
    with pytest.raises(ImportError, match="pip install 'datafusion>=52'"):
        CatalogClient(tmp_path)


def test_a_server_registers_what_it_is_given(tmp_path: Path) -> None:
    rrd_at(tmp_path / "runs" / "a.rrd", "a")
    file = rrd_at(tmp_path / "b.rrd", "b")
    with Server(datasets={"runs": tmp_path / "runs", "some": [file]}) as server:
        client = server.client()
        assert {entry.name: entry.segment_ids() for entry in client.datasets()} == {"runs": ["a"], "some": ["b"]}
    with pytest.raises(ValueError, match="must be a directory"):
        Server(datasets={"runs": file})
    with pytest.raises(ValueError, match="must be a RRD file"):
        Server(datasets={"runs": [tmp_path / "runs"]})


def test_changes_of_entries_are_listed_with_who_made_them(client: CatalogClient) -> None:
    assert client.list_versions().num_rows == 0
    with pytest.raises(NotFoundError, match="the catalog has no versions"):
        client.entries_at(1)
    client.create_dataset("a").set_name("b")
    client.create_table("t", pa.schema([("x", pa.int64())]))
    client.get_dataset("b").delete()
    rows = client.list_versions().to_pylist()
    assert [(row["version"], row["operation"], row["kind"], row["name"], row["earlier_name"]) for row in rows] == [
        (1, "create", "dataset", "a", None),
        (2, "rename", "dataset", "b", "a"),
        (3, "create", "table", "t", None),
        (4, "remove", "dataset", "b", None),
    ]
    assert {row["author"] for row in rows} == {getpass.getuser()}

    def names(point: Any) -> set[str]:
        return {name for name in client.entries_at(point)["name"].to_pylist() if not name.startswith("__")}

    assert [names(number) for number in (1, 2, 3, 4)] == [{"a"}, {"b"}, {"b", "t"}, {"t"}]
    assert [names(row["made_at"]) for row in rows] == [{"a"}, {"b"}, {"b", "t"}, {"t"}]
    for _ in range(3 * KEPT_VERSIONS):
        client.get_table("t").set_name("u")
        client.get_table("u").set_name("t")
    assert client.list_versions().num_rows == 4 + 6 * KEPT_VERSIONS
    with pytest.raises(NotFoundError, match="the catalog has no version 4: it was removed"):
        client.entries_at(4)
    with pytest.raises(NotFoundError, match=r"the version of the catalog at .* was removed"):
        client.entries_at(rows[0]["made_at"])
    with pytest.raises(NotFoundError, match="the catalog has no tag 'a'"):
        client.entries_at("a")


def test_a_version_of_an_earlier_release_says_nothing_of_its_changes(client: CatalogClient, tmp_path: Path) -> None:
    client.create_dataset("a")
    path = tmp_path / "lake" / "catalog" / "versions" / "00000001.json"
    data = {key: value for key, value in json.loads(path.read_text()).items() if key not in ("changes", "changed_ns")}
    path.unlink()
    del data["digest"], data["format"]
    assert VersionFiles(Folder.at(path.parent), "a catalog", "").create(1, data)
    client = CatalogClient(tmp_path / "lake")
    assert client.list_versions().num_rows == 0 and client.dataset_names() == ["a"]
    client.create_dataset("b")
    assert client.list_versions()["name"].to_pylist() == ["b"]
    with pytest.raises(NotFoundError, match="version 1 does not record when it was made"):
        client.entries_at("2026-01-01T00:00:00Z")
    assert "a" in client.entries_at(1)["name"].to_pylist()
