"""Hidden datasets of served ones: assets that segments share, and blueprints of another dataset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunk_making import made
from chunkmill.engine import LazyChunkStream
from chunkmill.engine.catalog import CatalogClient, EntryId, EntryKind
from chunkmill.engine.catalog.segments import SegmentProperties
from chunkmill.engine.catalog.server import CatalogService, ProtocolError, ServiceOptions, Status, protocol_error, start
from chunkmill.engine.catalog.server.protocol import entry_id_message, entry_id_of, rows_in
from chunkmill.engine.errors import AlreadyExistsError, ChunkmillError, RegistrationError, UsageError
from chunkmill.engine.rrd import RrdWriter, StoreEntry
from served import Caller, recording

UNKNOWN = EntryId("18EA4A1B0FE91A1258a013124bd3e6ec")


def asset(folder: Path, name: str) -> Path:
    """An RRD whose only chunk is static."""
    path = folder / "files" / f"{name}.rrd"
    LazyChunkStream.from_iter([made([0], timelines=())]).write_rrd(path, application_id="tests", recording_id=name)
    return path


def blueprint(folder: Path, name: str) -> Path:
    path = folder / "files" / f"{name}.rbl"
    store = StoreEntry("blueprint", "tests", name)
    with RrdWriter(path) as writer:
        writer.begin_store(store)
        writer.append(store, made([0], timelines=(), entity="/viewport"))
        writer.finish()
    return path


def refused(function: Any, *args: Any, **kwargs: Any) -> ProtocolError:
    with pytest.raises((ProtocolError, ChunkmillError)) as caught:
        function(*args, **kwargs)
    return protocol_error(caught.value)


def told_of(call: Caller, segment: str | None) -> list[str]:
    fields = {} if segment is None else {"segment_id": {"id": segment}}
    answers = call("GetAssetsForSegment", **fields)
    return [one.id for answer in answers for one in answer.asset_segment_ids]


def test_a_dataset_that_a_client_makes_has_assets_unless_it_knows_none(catalog: CatalogClient) -> None:
    before = catalog.entry_names(include_hidden=True)
    for version, is_known in (("rerun-py/0.33.1", False), ("rerun-py/0.36.2", True), ("rerun-py/0.41.0", True)):
        call = Caller(catalog, **{"x-rerun-client-version": version})
        made = call("CreateDatasetEntry", name=version.partition("/")[2]).dataset
        assert made.dataset_details.HasField("asset_dataset") is is_known
        call("DeleteEntry", id=made.details.id)
    assert catalog.entry_names(include_hidden=True) == before


@pytest.fixture
def client(catalog: CatalogClient, tmp_path: Path) -> Iterator[Any]:
    rerun_catalog = pytest.importorskip("rerun.catalog")
    with start(CatalogService(catalog, ServiceOptions(readable=[str(tmp_path / "files")]))) as running:
        yield rerun_catalog.CatalogClient(running.url)


def test_the_sdk_registers_assets(catalog: CatalogClient, client: Any, tmp_path: Path) -> None:
    dataset = client.get_dataset("drives")
    if not hasattr(dataset, "add_segments_to_asset"):
        pytest.skip("this release of the SDK knows no properties of assets")
    assert (dataset.assets(), dataset.assets_for_segment("one")) == ([], [])
    assert dataset.register_asset(asset(tmp_path, "all").as_uri()) == "all"
    dataset.register_asset(asset(tmp_path, "some").as_uri(), mode="opt_in", segments=["one"])
    dataset.register_asset(asset(tmp_path, "most").as_uri(), segments=["one"])
    assert sorted(dataset.assets()) == ["all", "most", "some"]
    assert sorted(dataset.assets_for_segment("one")) == ["all", "some"]
    assert sorted(dataset.assets_for_segment("two")) == ["all", "most"]
    dataset.add_segments_to_asset("some", ["two"])
    dataset.remove_segments_from_asset("all", ["two"])
    assert sorted(dataset.assets_for_segment("two")) == ["most", "some"]
    hidden = dataset.asset_dataset()
    assert (str(hidden.kind), hidden.name) == ("EntryKind.ASSET_DATASET", f"__as_{dataset.id}")
    assert hidden.name in [entry.name for entry in client.entries(include_hidden=True)]
    chunks = dataset.segment_store("one", include_assets=True).stream().to_chunks()
    assert len(chunks) == 3  # its own, and one of each of two assets
    with pytest.raises(ValueError, match="only accept static chunks, but asset 'driven' contains temporal data"):
        dataset.register_asset(recording(tmp_path, "driven").as_uri())
    own = catalog.get_dataset("drives")
    assert own.assets_for_segment("two") == dataset.assets_for_segment("two")
    dataset.unregister_asset("most")
    assert own.assets() == ["all", "some"]
    dataset.delete()
    assert catalog.datasets(include_hidden=True) == []


def test_assets_go_with_the_segments_that_their_properties_name(catalog: CatalogClient, tmp_path: Path) -> None:
    dataset = catalog.get_dataset("drives")
    call = Caller(catalog, dataset)
    assert call("GetAssetsForSegment", segment_id={"id": "one"}) == []
    dataset.register_asset(asset(tmp_path, "not_two"), segments=["two"])
    for name in ("plain", "odd", "scalar"):
        dataset.make_asset_dataset().register(asset(tmp_path, name)).wait()
    hidden = dataset.make_asset_dataset()
    properties, texts = SegmentProperties(hidden), pa.list_(pa.string())
    odd = {"property:asset:mode": pa.array([[5]]), "property:asset:segments": pa.array([["one"]], texts)}
    properties.replace("odd", properties.of("odd"), pa.record_batch(odd))
    scalar = {"property:asset:mode": ["OptIn"], "property:asset:segments": ["one"]}
    properties.replace("scalar", properties.of("scalar"), pa.record_batch(scalar))
    assert sorted(told_of(call, "one")) == ["not_two", "plain", "scalar"]
    assert sorted(told_of(call, "two")) == ["odd", "plain", "scalar"]
    assert sorted(told_of(call, None)) == ["plain", "scalar"]
    (answer,) = call("GetAssetsForSegment", segment_id={"id": "one"})
    assert entry_id_of(answer.assets_entry) == hidden.id
    told = refused(Caller(catalog, hidden), "GetAssetsForSegment")
    assert (told.code, told.text) == (
        Status.INVALID_ARGUMENT,
        "assets can only be queried on recording datasets, this is a Asset dataset",
    )


def test_assets_are_few(catalog: CatalogClient, tmp_path: Path) -> None:
    dataset = catalog.get_dataset("drives")
    hidden = dataset.make_asset_dataset()
    assert dataset.make_asset_dataset() == hidden
    hidden.register([asset(tmp_path, f"a{i}") for i in range(11)], executor="inline").wait()
    with pytest.raises(RegistrationError, match="already holds the maximum of 12 assets"):
        hidden.register([asset(tmp_path, f"b{i}") for i in range(2)], executor="inline").wait()
    assert len(dataset.assets()) == 12
    hidden.register(asset(tmp_path, "a0"), executor="inline").wait()  # in the place of the one that is there
    with pytest.raises(UsageError, match="has no assets"):
        hidden.make_asset_dataset()


def test_details_are_replaced_but_for_hidden_datasets_that_are_not_told(catalog: CatalogClient, tmp_path: Path) -> None:
    dataset, other = catalog.get_dataset("drives"), catalog.create_dataset("other")
    call = Caller(catalog, dataset)
    shared = other.blueprint_dataset()
    assert shared is not None
    for name in ("wide", "table"):
        other.register_blueprint(blueprint(tmp_path, name), set_default=False)
    details = {
        "blueprint_dataset": entry_id_message(shared.id),
        "default_blueprint_segment": {"id": "wide"},
        "default_segment_table_blueprint_segment": {"id": "table"},
    }

    def updated(details: dict[str, Any], **headers: str) -> Any:
        later = Caller(catalog, dataset, **headers)
        return later("UpdateDatasetEntry", id=entry_id_message(dataset.id), dataset_details=details).dataset

    told = updated(details).dataset_details
    assert entry_id_of(told.blueprint_dataset) == shared.id
    assert (told.default_blueprint_segment.id, told.default_segment_table_blueprint_segment.id) == ("wide", "table")
    made_assets = dataset.asset_dataset()
    assert made_assets is not None and entry_id_of(told.asset_dataset) == made_assets.id
    assert (dataset.blueprints(), dataset.default_blueprint()) == (["wide", "table"], "wide")
    old = {name: details[name] for name in ("blueprint_dataset", "default_blueprint_segment")}
    kept = updated(old, **{"x-rerun-client-version": "rerun-py/0.33.1"}).dataset_details
    assert kept == told  # it knows neither assets nor blueprints of tables
    cleared = updated({"blueprint_dataset": details["blueprint_dataset"]}).dataset_details
    assert not cleared.default_blueprint_segment.id and not cleared.default_segment_table_blueprint_segment.id
    assert updated({}).dataset_details == cleared
    for wrong, text in (
        ({"default_blueprint_segment": {"id": "wide"}}, "default dataset blueprint requires a blueprint dataset"),
        ({"blueprint_dataset": entry_id_message(UNKNOWN)}, "dataset blueprint dataset does not exist: Entry id"),
        ({"blueprint_dataset": entry_id_message(other.id)}, "dataset blueprint dataset must be a blueprint dataset"),
        ({"asset_dataset": entry_id_message(UNKNOWN)}, "asset dataset does not exist: Entry id"),
        ({"asset_dataset": entry_id_message(shared.id)}, "asset dataset must be an asset dataset"),
    ):
        refusal = refused(updated, wrong)
        assert refusal.code is Status.INVALID_ARGUMENT
        assert text in refusal.text
    assert refused(updated, {**details, "default_blueprint_segment": {"id": "nobody"}}).code is Status.NOT_FOUND
    assert entry_id_of(call("ReadDatasetEntry").dataset.dataset_details.blueprint_dataset) == shared.id
    (manifest,) = Caller(catalog, shared)("ScanSegmentTable", columns=["rerun_segment_id"])
    assert rows_in(manifest.data)["rerun_segment_id"].to_pylist() == ["wide", "table"]

    assets = catalog.create_dataset("third").make_asset_dataset()
    assert (
        entry_id_of(updated({"asset_dataset": entry_id_message(assets.id)}).dataset_details.asset_dataset) == assets.id
    )
    # a dataset takes along what was made for it, and not what it borrowed
    dataset.delete()
    assert {entry.id for entry in catalog.datasets(include_hidden=True)} >= {shared.id, assets.id}
    assert made_assets.id not in {entry.id for entry in catalog.datasets(include_hidden=True)}
    other.delete()
    assert {entry.name for entry in catalog.datasets()} == {"third"}
    assert len(catalog.datasets(include_hidden=True)) == 3


def test_a_table_borrows_blueprints(catalog: CatalogClient, tmp_path: Path) -> None:
    table = catalog.create_table("tab", pa.schema([("id", pa.int64())]))
    dataset = catalog.get_dataset("drives")
    shared = dataset.blueprint_dataset()
    assert shared is not None
    details = {"blueprint_dataset": entry_id_message(shared.id), "default_blueprint_segment": {"id": "later"}}
    told = Caller(catalog)("UpdateTableEntry", id=entry_id_message(table.id), table_details=details).table.table_details
    assert entry_id_of(told.blueprint_dataset) == shared.id
    table.delete()
    assert dataset.blueprint_dataset() == shared


def test_a_dataset_has_the_id_that_was_asked_for(catalog: CatalogClient) -> None:
    call = Caller(catalog)
    made = call("CreateDatasetEntry", name="mine", id=entry_id_message(UNKNOWN)).dataset
    assert entry_id_of(made.details.id) == UNKNOWN == catalog.get_dataset("mine").id
    drives = catalog.get_dataset("drives")
    table = catalog.create_table("tab", pa.schema([("id", pa.int64())]))
    for taken in (UNKNOWN, drives.id, table.id, EntryId("0" * 32)):
        told = refused(call, "CreateDatasetEntry", name="more", id=entry_id_message(taken))
        assert (told.code, f"Entry id '{taken}' already exists" in told.text) == (Status.ALREADY_EXISTS, True)
    drives.delete()  # its data still exists, and is nobody else's
    with pytest.raises(AlreadyExistsError, match="its data still exists"):
        catalog.create_dataset("again", id=drives.id)
    with pytest.raises(AlreadyExistsError):
        catalog.create_dataset("mine", exist_ok=True, id=EntryId.new())
    assert catalog.create_dataset("mine", exist_ok=True, id=UNKNOWN).kind is EntryKind.DATASET
