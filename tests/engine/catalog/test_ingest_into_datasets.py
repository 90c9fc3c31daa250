"""``chunkmill ingest … --into LAKE --dataset NAME`` brings recordings into a dataset of a catalog."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunk_making import made
from chunkmill.engine import LazyChunkStream
from chunkmill.engine.catalog import CatalogClient, DatasetEntry, NotFoundError
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.errors import SchemaConflictError, UsageError
from chunkmill.engine.ingest import FileQuarantine, Ingest, IngestQuery
from chunkmill.engine.locations import located
from chunkmill.engine.recordings import RecordingsFolder, StoreWriter
from chunkmill.engine.store import RecordingStore
from click.testing import CliRunner, Result
from small_recordings import ingest as bring_in
from small_recordings import rrd_at


def ingest(landing: Path, *arguments: object) -> Result:
    fixed = ["--once", "--settle", "0s", "--executor", "inline", "--quiet"]
    return CliRunner().invoke(commands, ["ingest", str(landing), *map(str, arguments), *fixed])


def test_recordings_come_into_a_dataset_that_is_made_or_there(tmp_path: Path) -> None:
    rrd_at(tmp_path / "landing" / "a.rrd", "a")
    done = ingest(tmp_path / "landing", "--into", tmp_path / "lake", "--dataset", "drives")
    assert done.exit_code == 0, done.output
    rrd_at(tmp_path / "landing" / "b.rrd", "b")
    assert ingest(tmp_path / "landing", "--into", tmp_path / "lake", "--dataset", "drives").exit_code == 0
    client = CatalogClient(tmp_path / "lake")
    assert client.dataset_names() == ["drives"]
    assert client.get_dataset("drives").segment_ids() == ["a", "b"]
    without = ingest(tmp_path / "landing", "--into", tmp_path / "lake")
    assert without.exit_code == 2 and "is a catalog" in without.output and "--dataset" in without.output
    assert not (tmp_path / "lake" / "versions").exists()


def test_a_dataset_is_one_of_a_catalog(tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    nowhere = ingest(tmp_path / "landing", "--dataset", "drives", "--rrds", tmp_path / "rrds")
    assert nowhere.exit_code == 2 and "--into" in nowhere.output
    odd = ingest(tmp_path / "landing", "--into", tmp_path / "lake", "--dataset", "a/b")
    assert odd.exit_code == 2 and "invalid character '/'" in odd.output


def test_an_ingested_file_that_is_registered_as_another_layer_stays(tmp_path: Path) -> None:
    dataset = CatalogClient(tmp_path / "lake").create_dataset("drives")
    landed = rrd_at(tmp_path / "landing" / "a.rrd", "a")
    bring_in(tmp_path / "landing", [], dataset)
    dataset.register(str(landed), layer_name="again").wait()
    dataset.register(str(landed), layer_name="copied", copy=True).wait()
    (row,) = dataset.segment_table().to_arrow_table().to_pylist()
    assert row["rerun_layer_names"] == ["base", "again", "copied"]
    assert len(dataset.segment_store("a")) == 3


def test_types_of_an_adopted_store_are_in_nobodys_way_who_has_other_columns(tmp_path: Path) -> None:
    chunks = {
        "one": made([0]),
        "other": made([0], datatype=pa.list_(pa.int64()), value=(1,)),
        "fits": made([0], components="d"),
        "third": made([0], datatype=pa.list_(pa.string()), value=("x",)),
    }
    for name, chunk in chunks.items():
        path = tmp_path / ("landing" if name in ("one", "other") else "files") / f"{name}.rrd"
        path.parent.mkdir(exist_ok=True)
        LazyChunkStream.from_iter([chunk]).write_rrd(path, application_id="tests", recording_id=name)
    bring_in(tmp_path / "landing", [], tmp_path / "store")
    dataset = CatalogClient(tmp_path / "lake").create_dataset("drives", url=tmp_path / "store")
    assert sorted(dataset.segment_ids()) == ["one", "other"]
    with pytest.raises(SchemaConflictError, match=r"does not equal .*in column '/a:c'"):
        dataset.schema()
    handle = dataset.register([str(tmp_path / "files" / "fits.rrd"), str(tmp_path / "files" / "third.rrd")])
    assert [result.is_success for result in handle.iter_results()] == [True, False]
    dataset.unregister(segments_to_drop="other")
    assert [column.name for column in dataset.schema().component_columns()] == ["/a:c", "/a:d"]


# --- the rules of a dataset


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    (tmp_path / "landing").mkdir()
    return tmp_path / "landing"


@pytest.fixture
def drives(tmp_path: Path) -> DatasetEntry:
    return CatalogClient(tmp_path / "lake").create_dataset("drives")


def speeds(path: Path, values: list[Any]) -> Path:
    """A Parquet file with one column, whose recording has the name of the file."""
    pq.write_table(pa.table({"speed": values}), path)
    os.utime(path, (time.time() - 60,) * 2)
    return path


def start(landing: Path, dataset: Any, **options: Any) -> IngestQuery:
    return Ingest(landing, into=dataset, settle=0, executor="inline", optimize=None, **options).start(once=True)


def test_a_file_of_another_type_goes_into_quarantine(landing: Path, drives: DatasetEntry) -> None:
    """With the others of its batch, and after them; once the conflict is gone it is taken."""
    speeds(landing / "a.parquet", [1.0])
    speeds(landing / "b.parquet", ["fast"])
    speeds(landing / "c.parquet", [2.0])
    query = start(landing, drives)
    assert query.await_termination(60)
    (batch,) = query.recent
    assert [result.outcome for result in batch.files] == ["added", "quarantined", "added"]
    (held,) = FileQuarantine(located(drives)).rows()
    assert held.path == str(landing / "b.parquet") and held.code == "chunkmill.schema-conflict"
    message = held.message
    assert (
        message.startswith("schema incompatibility on segment '")
        and "layer 'base': Schema error: Fail to merge" in message
    )
    assert "the from data_type = Utf8 does not equal Float64" in message
    assert len(drives.segment_ids()) == 2 and drives.schema()
    drives.unregister(segments_to_drop=drives.segment_ids())
    FileQuarantine(located(drives)).request_retry()
    assert start(landing, drives).await_termination(60)
    assert len(drives.segment_ids()) == 1


def test_a_plain_store_takes_any_types(landing: Path, tmp_path: Path) -> None:
    speeds(landing / "a.parquet", [1.0])
    speeds(landing / "b.parquet", ["fast"])
    assert start(landing, tmp_path / "store").await_termination(60)
    assert len(list(RecordingStore.open(tmp_path / "store"))) == 2


def test_a_file_may_change_its_types_with_its_content(landing: Path, drives: DatasetEntry) -> None:
    speeds(landing / "a.parquet", [1.0])
    assert start(landing, drives).await_termination(60)
    speeds(landing / "a.parquet", ["fast"])
    query = start(landing, drives)
    assert query.await_termination(60)
    assert [result.outcome for result in query.recent[-1].files] == ["replaced"]


def test_what_is_registered_meanwhile_counts(
    landing: Path, drives: DatasetEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Registered after the batch was looked through, and before its commit."""
    speeds(landing / "a.parquet", [1.0])
    speeds(landing / "b.parquet", [1])
    other = speeds(tmp_path / "other.parquet", ["fast"])
    commit, registered = StoreWriter.commit, list[str]()

    def late(self: StoreWriter, *arguments: Any, **options: Any) -> Any:
        if not registered:
            registered.append("once")
            drives.register(str(other), executor="inline").wait(60)
        return commit(self, *arguments, **options)

    monkeypatch.setattr(StoreWriter, "commit", late)
    query = start(landing, drives)
    assert query.await_termination(60)
    assert [result.outcome for result in query.recent[-1].files] == ["quarantined", "quarantined"]
    assert drives.segment_ids() == ["other"]


def test_a_dataset_that_was_deleted_ends_the_ingestion(landing: Path, drives: DatasetEntry, executor: str) -> None:
    ingest = Ingest(landing, into=drives, settle=0, executor=executor)
    query = ingest.start(every=0.1)
    drives.delete()
    speeds(landing / "a.parquet", [1.0])
    text = "the dataset of this ingestion was deleted"
    with pytest.raises(NotFoundError, match=text):
        query.await_termination(120)
    assert not RecordingsFolder(ingest.home).files.numbers()
    with pytest.raises(NotFoundError, match=text):
        ingest.start()


def test_a_catalog_is_no_store(landing: Path, drives: DatasetEntry, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is a catalog.*CatalogClient"):
        Ingest(landing, into=tmp_path / "lake")
    assert drives.segment_ids() == []
