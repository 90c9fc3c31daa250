"""What an earlier build has written opens, answers and takes more: a lake, tables with a view, stores, an ingestion."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from chunkmill import CatalogClient, ChunkStore, Ingest, RecordingStore
from chunkmill.engine.ingest import BatchResult
from chunkmill.engine.tables import TableConnection, connect
from earlier_files import HERE, NOTES, recording

ARCHIVES = sorted((Path(__file__).resolve().parents[1] / "data").glob("earlier_*.tar.xz"))

GO_ON = """
from pathlib import Path
from chunkmill import Ingest

query = Ingest("/proc/self/cwd/landing", into="/proc/self/cwd/drives", executor="spark", settle=0.2).start(once=True)
assert query.await_termination(240)
for batch in query.recent:
    print(batch.number, *sorted(f"{Path(file.file.path).name}={file.outcome.value}" for file in batch.files))
"""


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"), autouse=True)
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what was written, in which the process works."""
    with tarfile.open(request.param) as tar:
        tar.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def lake() -> CatalogClient:
    return CatalogClient(HERE / "lake")


@pytest.fixture
def tables() -> TableConnection:
    return connect(HERE / "tables", executor="inline", udf_modules=["earlier_files"])


def run_once() -> dict[str, str]:
    """Ingest what has landed; return what became of each file."""
    query = Ingest(HERE / "landing", into=HERE / "drives", executor="inline", settle=0.2).start(once=True)
    assert query.await_termination(60)
    return outcomes(query.recent)


def outcomes(batches: list[BatchResult]) -> dict[str, str]:
    return {Path(file.file.path).name: file.outcome.value for batch in batches for file in batch.files}


def rows_of(store: RecordingStore) -> dict[str, int]:
    return {entry.recording_id: sum(chunk.num_rows for chunk in store.recording(entry)) for entry in store}


def test_there_is_one() -> None:
    assert ARCHIVES


def test_a_catalog_opens_and_its_files_are_whole(lake: CatalogClient) -> None:
    assert [entry.name for entry in lake.entries() if not entry.name.startswith("__")] == ["drives", "labels"]
    assert [fault for fault in lake.check() if fault.error] == []


def test_layers_are_those_that_were_written(lake: CatalogClient) -> None:
    dataset = lake.get_dataset("drives")
    layers = dataset.layer_names("monday")
    assert layers in ({"base"}, {"base", "grip"})
    columns = dataset.filter_segments("monday").reader("frame").to_pydict()
    assert columns.get("/grip:force") in (None, [[7.0]] * 3)
    assert lake.get_table("labels").reader().to_pydict()["length"] == [len(NOTES["monday"]), len(NOTES["tuesday"])]


def test_a_lake_is_copied_changed_and_forgets(lake: CatalogClient, folder: Path) -> None:
    with pytest.warns(UserWarning, match="not copied"):  # recordings that were registered in place
        lake.copy_to(HERE / "copy")
    copy = CatalogClient(HERE / "copy")
    assert copy.get_dataset("drives").reader("frame").count() == 6 and copy.check() == []
    dataset = lake.get_dataset("drives")
    dataset.tag("before")
    dataset.register([recording(HERE / "recordings" / "friday.rrd", "friday")]).wait()
    assert dataset.at("before").reader("frame").count() == 6 and dataset.reader("frame").count() == 9
    assert dataset.forget("friday").is_complete and dataset.tags().keys() == {"before"}
    report = dataset.forget("monday", force=True)
    assert report.is_complete and dataset.segment_ids() == ["tuesday"]
    shards = [path for path in (folder / "lake").rglob("*") if path.is_file() and b"Rain" in path.read_bytes()]
    assert [path for path in shards if path.parts[-3] != "labels"] == [p for p in shards if "tables" in p.parts]


def test_a_dataset_is_queried_and_takes_another_recording(lake: CatalogClient) -> None:
    dataset = lake.get_dataset("drives")
    assert sorted(dataset.segment_ids()) == ["monday", "tuesday"]
    assert dataset.reader("frame").count() == 6
    dataset.register([recording(HERE / "recordings" / "friday.rrd", "friday")]).wait()
    values = dataset.filter_contents("/signal").reader("frame").to_pydict()
    assert sorted(value[0] for value in values["/signal:value"]) == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0]


@pytest.mark.parametrize("optimized", [False, True])
def test_an_index_of_words_answers_and_takes_another_recording(lake: CatalogClient, optimized: bool) -> None:
    dataset = lake.get_dataset("drives")
    assert len(dataset.list_search_indexes()) == 1
    assert dataset.search_fts("fog", "/notes:text").count() == 2
    dataset.register([recording(HERE / "recordings" / "friday.rrd", "friday")]).wait()
    if optimized:
        dataset.do_maintenance(optimize_indexes=True)
    assert dataset.search_fts("snow", "/notes:text").to_pydict()["rerun_segment_id"] == ["friday"]
    assert dataset.search_fts("fog", "/notes:text").count() == 2


def test_a_table_of_a_catalog_takes_rows_and_fills_its_column(lake: CatalogClient) -> None:
    labels = lake.get_table("labels")
    labels.append(drive=["friday"], note=[NOTES["friday"]])
    computed = labels.computed(udf_modules=["earlier_files"], executor="inline")
    assert [record.status for record in computed.jobs()] == ["DONE"]
    assert computed.plan_backfill("length").total_rows_pending == 1
    computed.backfill("length")
    rows = labels.reader().to_pydict()
    assert dict(zip(rows["drive"], rows["length"], strict=True)) == {name: len(note) for name, note in NOTES.items()}


def test_a_table_is_searched_changed_and_filled(tables: TableConnection) -> None:
    rides = tables.open_table("rides")
    assert rides.search("fog").limit(10).to_arrow().num_rows == 5
    assert rides.to_arrow()["speed"].to_pylist() == [4.0, 8.0, 12.0, 16.0, 20.0]
    rides.add([{"ride": 6, "meters": 300.0, "seconds": 100.0, "note": "Snow"}])
    rides.update("ride = 1", {"seconds": 500.0})
    rides.backfill("speed", recompute_stale=True)
    rides.optimize()
    rows = rides.to_arrow().to_pydict()
    assert dict(zip(rows["ride"], rows["speed"], strict=True)) == {1: 2.0, 2: 8.0, 3: 12.0, 4: 16.0, 5: 20.0, 6: 3.0}
    assert rides.search("snow").limit(10).to_arrow()["ride"].to_pylist() == [6]


def test_a_view_knows_what_it_has_and_is_refreshed(tables: TableConnection) -> None:
    rides, fast = tables.open_table("rides"), tables.open_table("fast")
    assert not fast.plan_refresh().has_work
    assert sorted(fast.to_arrow()["ride"].to_pylist()) == [2, 3, 4, 5]
    rides.add([{"ride": 6, "meters": 2500.0, "seconds": 5000.0, "note": "Snow"}])
    rides.delete("ride = 2")
    assert fast.refresh().rows_refreshed == 1
    rows = fast.to_arrow().to_pydict()
    paces = dict(zip(rows["ride"], rows["pace"], strict=True))
    assert sorted(paces) == [3, 4, 5, 6]
    assert paces[6] == 2.0


def test_a_kept_store_has_its_versions_and_takes_another() -> None:
    kept = ChunkStore.open("kept")
    assert [sum(c.num_rows for c in ChunkStore.open("kept", version=n)) for n in (1, 2)] == [3, 7]
    kept.stream().drop(content="/notes").collect(into="kept", executor="inline")
    assert [version.number for version in ChunkStore.open("kept").versions()] == [1, 2, 3]
    assert sum(chunk.num_rows for chunk in ChunkStore.open("kept")) == 6


def test_a_store_of_recordings_is_read_and_compacted() -> None:
    store = RecordingStore.open(HERE / "drives")
    assert rows_of(store) == {"monday": 7}
    assert store.versions()[-1].number == store.version.number
    recording(HERE / "landing" / "friday.rrd", "friday")
    run_once()
    RecordingStore.open(HERE / "drives").compact()
    assert rows_of(RecordingStore.open(HERE / "drives")) == {"monday": 7, "friday": 7}


def test_an_ingestion_takes_nothing_twice_and_goes_on(folder: Path) -> None:
    assert run_once() == {}
    recording(HERE / "landing" / "friday.rrd", "friday")
    recording(HERE / "landing" / "broken.mcap", "tuesday")
    (folder / "landing" / "broken.mcap").rename(folder / "landing" / "tuesday.rrd")
    os.link(folder / "landing" / "monday.rrd", folder / "landing" / "copy.rrd")
    assert run_once() == {"friday.rrd": "added", "tuesday.rrd": "added", "copy.rrd": "duplicate"}
    assert rows_of(RecordingStore.open(HERE / "drives")) == dict.fromkeys(("monday", "friday", "tuesday"), 7)


def test_an_ingestion_on_spark_goes_on_from_its_checkpoint(folder: Path) -> None:
    recording(HERE / "landing" / "friday.rrd", "friday")
    run = subprocess.run([sys.executable, "-c", GO_ON], cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["2 friday.rrd=added"]
    commits = {path.name for path in (folder / "drives" / "ingest" / "spark" / "commits").glob("[0-9]*")}
    assert commits == {"0", "1"}
    assert rows_of(RecordingStore.open(HERE / "drives")) == {"monday": 7, "friday": 7}
