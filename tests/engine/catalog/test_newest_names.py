"""Segments, layers and assets by the names of Rerun 0.41; staged files, blueprints of tables, what a query wasted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from chunkmill import AlreadyExistsError, CatalogClient, Chunk, LazyChunkStream, NotFoundError, query_metrics
from chunkmill.engine import catalog
from chunkmill.engine.catalog import BearerTokenObjectStoreAuth, DatasetEntry, DatasetInfo, LayerInfo, TimelineInfo
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.errors import UnsupportedError, UsageError


def recorded(path: Path, recording_id: str, *, static: bool = False, entity: str = "/a", first: int = 1) -> str:
    """An RRD of one chunk, with times or without."""
    times = np.array([first, first + 1])
    lines = {"frame": pa.array(times), "clock": pa.array(times).cast(pa.timestamp("ns"))}
    values = pa.array([[1.0], [2.0]][: 1 if static else 2])
    chunk = Chunk.build(entity, {} if static else lines, [(ComponentDescriptor("x"), values)])
    stream = LazyChunkStream.from_iter([chunk])
    stream.write_rrd(path, application_id="app", recording_id=recording_id, executor="inline")
    return str(path)


@pytest.fixture
def client(tmp_path: Path) -> CatalogClient:
    return CatalogClient(tmp_path / "lake")


@pytest.fixture
def drives(client: CatalogClient, tmp_path: Path) -> DatasetEntry:
    """Two segments, of which the first has a second layer."""
    made = client.create_dataset("drives")
    made.register([recorded(tmp_path / "1.rrd", "one"), recorded(tmp_path / "2.rrd", "two", first=8)]).wait()
    made.register(recorded(tmp_path / "more.rrd", "one", entity="/b"), layer_name="more").wait()
    return made


def test_a_segment_has_a_url_layers_and_columns(drives: DatasetEntry) -> None:
    segment = drives.segment("one")
    assert (segment.id, segment.dataset, segment.url) == ("one", drives, drives.segment_url("one"))
    assert segment.layers() == {"base", "more"}
    assert {c.entity_path for c in segment.schema().component_columns()} == {"/a", "/b"}
    segment.delete_layer("more").wait()
    segment.delete_layer("more").wait(1)
    assert segment.layers() == {"base"}
    drives.unregister(segments_to_drop="one").cancel()
    for call in (segment.layers, segment.schema, lambda: drives.segment("one")):
        with pytest.raises(NotFoundError, match="Segment 'one' not found"):
            call()


def test_a_layer_has_the_segments_with_it(drives: DatasetEntry) -> None:
    layer = drives.layer("more")
    assert (layer.name, layer.dataset, layer.segment_ids()) == ("more", drives, ["one"])
    assert drives.layer("base").segment_ids() == ["one", "two"]
    drives.unregister(layers_to_drop=["more"])
    assert layer.segment_ids() == []
    with pytest.raises(ValueError, match="no layer 'more'"):
        drives.layer("more")


def test_the_facts_of_a_dataset(drives: DatasetEntry, client: CatalogClient) -> None:
    info = drives.info()
    assert (info.dataset_name, info.num_segments, info.num_entities, info.num_component_columns) == ("drives", 2, 2, 2)
    assert info.layers == {LayerInfo("base", 2), LayerInfo("more", 1)}
    assert info.size_bytes == sum(drives.segment_table().to_arrow_table()["rerun_size_bytes"].to_pylist())
    frame = TimelineInfo("frame", "sequence", 2, np.int64(1), np.int64(9))
    clock = TimelineInfo("clock", "timestamp", 2, np.datetime64(1, "ns"), np.datetime64(9, "ns"))
    assert info.timelines == {frame, clock}
    assert repr(info).startswith("DatasetInfo(drives: 2 segments, ")
    empty = client.create_dataset("empty").info()
    assert empty == DatasetInfo("empty", 0, 0, frozenset(), frozenset(), 0, 0, frozenset())


def test_assets_are_changed_and_come_with_segments(drives: DatasetEntry, tmp_path: Path) -> None:
    asset = drives.register_asset(recorded(tmp_path / "asset.rrd", "mesh", static=True, entity="/mesh"), segments=None)
    assert drives.assets_for_segment("one") == ["mesh"]
    assert {c.entity_path for c in drives.segment_store("two")} == {"/a", "/mesh"}
    assert {c.entity_path for c in drives.segment_store("two", include_assets=False)} == {"/a"}
    assert {c.entity_path for c in drives.segment("two").schema(include_assets=True).component_columns()} == {
        "/a",
        "/mesh",
    }
    drives.remove_segments_from_asset(asset, ["one", "later"])
    assert (drives.assets_for_segment("one"), drives.assets_for_segment("two")) == ([], ["mesh"])
    drives.add_segments_to_asset(asset, ["one"])
    assert (drives.assets_for_segment("one"), drives.assets_for_segment("later")) == (["mesh"], [])
    drives.register_asset(str(tmp_path / "asset.rrd"), mode="opt_in", segments=["two"])
    drives.add_segments_to_asset(asset, ["one", "two"])
    drives.remove_segments_from_asset(asset, ["two"])
    assert [drives.assets_for_segment(name) for name in ("one", "two", "later")] == [["mesh"], [], []]
    hidden = drives.asset_dataset()
    assert hidden is not None
    drives.unregister_asset(asset)
    drives.unregister_asset(asset)
    assert drives.assets() == []
    hidden.delete_segment_properties([asset, "none"])
    drives.register(str(tmp_path / "1.rrd")).wait()
    with pytest.raises(NotFoundError, match="no asset 'mesh'"):
        drives.add_segments_to_asset(asset, ["one"])
    with pytest.raises(TypeError, match="list of ids"):
        drives.add_segments_to_asset(asset, "one")


def test_files_are_staged_and_registered(client: CatalogClient, tmp_path: Path) -> None:
    made, file = client.create_dataset("drives"), Path(recorded(tmp_path / "1.rrd", "one"))
    place = client.stage(file, key="project/run-1/drive.rrd")
    assert place.startswith("file://") and place.endswith("/project/run-1/drive.rrd")
    assert made.register(place).wait().segment_ids == ["one"]
    client.stage(file.read_bytes(), key="other.rrd")
    with pytest.raises(AlreadyExistsError):
        client.stage(file, key="other.rrd")
    for key in ("", "../a.rrd", "/a.rrd", ".hidden"):
        with pytest.raises(UsageError, match="not a key"):
            client.stage(file, key=key)
    with pytest.raises(UsageError, match="not an RRD"):
        client.stage(b"else", key="else.rrd")
    with pytest.raises(OSError, match="No such file"):
        client.stage(tmp_path / "missing.rrd", key="missing.rrd")


def test_a_table_has_blueprints(client: CatalogClient, data: Path) -> None:
    table = client.create_table("notes", pa.schema([("a", pa.int64())]))
    assert table.blueprints() == []
    table.register_blueprint(str(data / "rrd/px4-rerun__both.rbl"))
    (blueprint,) = table.blueprints()
    assert table.default_blueprint() == blueprint
    drives = client.create_dataset("drives")
    drives.register_blueprint(str(data / "rrd/px4-rerun__both.rbl"), segment_table=True)
    assert (drives.default_segment_table_blueprint(), drives.default_blueprint()) == (blueprint, None)


def test_what_a_query_fetched_for_what_it_gave(drives: DatasetEntry) -> None:
    with query_metrics() as metrics:
        rows = drives.reader("frame").to_arrow_table()
    last = metrics.last_query()
    assert last is not None and last.delivered_rows == len(rows) and last.delivered_bytes > 0
    assert last.waste_ratio == last.fetch_bytes / last.delivered_bytes
    with query_metrics() as metrics:
        drives.filter_segments([]).reader("frame").to_arrow_table()
    assert all(query.waste_ratio is None for query in metrics.queries)


def test_renamed_classes_and_tokens(tmp_path: Path) -> None:
    assert catalog.RegistrationOperation is catalog.RegistrationHandle
    assert catalog.DatasetSelection is catalog.DatasetView
    assert catalog.ObjectStoreAuth is BearerTokenObjectStoreAuth
    with pytest.raises(UnsupportedError, match="credentials of the environment"):
        CatalogClient(tmp_path, object_store_auth=BearerTokenObjectStoreAuth(lambda: "token"))
