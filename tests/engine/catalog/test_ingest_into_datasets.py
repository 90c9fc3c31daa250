"""``chunkmill ingest … --into LAKE --dataset NAME`` brings recordings into a dataset of a catalog."""

from __future__ import annotations

from pathlib import Path

from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.cli.commands import commands
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
    (row,) = dataset.segment_table().to_arrow_table().to_pylist()
    assert row["rerun_layer_names"] == ["base", "again"]
    assert len(dataset.segment_store("a")) == 2
