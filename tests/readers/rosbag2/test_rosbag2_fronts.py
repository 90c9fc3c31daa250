"""Recordings of rosbag2 in commands, ingestion, catalogs and Spark."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chunkmill.engine import Ingest, LazyChunkStream, RecordingStore
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.data_sources import register as register_sources
from chunkmill.readers import Rosbag2Reader, RrdReader, inspect
from click.testing import CliRunner
from comparison import cells
from rosbag2_making import compress, metadata, some, write_bag, write_database, write_mcap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_databases_that_land_are_recordings(tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    write_database(landing / "a.db3", some(20))
    compress(write_database(landing / "b.db3", some(30)))
    (landing / "c.db3").write_bytes(b"SQLite format 3\0 and no more")
    Ingest(landing, into=tmp_path / "lake", settle=0, executor="inline").start(once=True).await_termination()
    rows = sorted(entry.rows for entry in RecordingStore.open(tmp_path / "lake"))
    assert len(rows) == 2 and rows[1] - rows[0] == 10


def test_a_folder_is_registered_as_one_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "inline")
    folder = write_bag(tmp_path / "in" / "drive", [some(20), some(20)])
    alone = write_database(tmp_path / "in" / "alone.db3", some(20))
    dataset = CatalogClient(tmp_path / "lake").create_dataset("drives")
    assert dataset.register([str(folder), str(alone)], copy=True).wait(60).segment_ids == ["drive", "alone"]
    shutil.rmtree(folder)
    chunks = list(dataset.segment_store("drive"))
    assert sum(c.num_rows for c in chunks if c.entity_path == "/chatter" and not c.is_static) == 20
    other = CatalogClient(tmp_path / "lake").create_dataset("others")
    write_bag(folder, [some(20), some(20)])
    assert sorted(other.register_prefix(str(tmp_path / "in")).wait(60).segment_ids) == ["alone", "drive"]


def test_types_are_a_flag(tmp_path: Path) -> None:
    path = write_database(tmp_path / "old.db3", some(20), schema=3)
    out = tmp_path / "out.rrd"
    arguments = ["convert", str(path), "-o", str(out), "--types", "humble", "--topics", "point", "--executor", "inline"]
    done = CliRunner().invoke(commands, arguments)
    assert done.exit_code == 0, done.stderr
    assert "geometry_msgs.msg.Point:message" in {c.component for c in cells(RrdReader(out).stream())}
    refused = CliRunner().invoke(commands, ["convert", str(path), "-o", str(out), "--types", "/nowhere"])
    assert refused.exit_code != 0 and "neither a folder nor the name of a distribution" in refused.stderr


def test_folders_are_recordings_and_other_folders_are_not(tmp_path: Path) -> None:
    write_bag(tmp_path / "in" / "bag", [some(20), some(20)])
    mcaps = tmp_path / "in" / "mcaps"
    mcaps.mkdir()
    for i in (0, 1):
        write_mcap(mcaps / f"mcaps_{i}.mcap", some(20))
    (mcaps / "metadata.yaml").write_text(metadata(["mcaps_0.mcap", "mcaps_1.mcap"], storage="mcap"))
    plain = tmp_path / "in" / "plain"
    plain.mkdir()
    (plain / "metadata.yaml").write_text("a: 1\n")
    write_mcap(plain / "x.mcap", some(20))
    write_database(plain / "y.db3", some(20))
    done = CliRunner().invoke(
        commands, ["convert", str(tmp_path / "in"), "-o", str(tmp_path / "o"), "--executor", "inline"]
    )
    assert done.exit_code == 0, done.stderr
    made = sorted(str(p.relative_to(tmp_path / "o")) for p in (tmp_path / "o").rglob("*.rrd"))
    assert made == ["bag.rrd", "mcaps.rrd", "plain/x.rrd", "plain/y.rrd"]
    assert inspect(mcaps).facts["files"] == 2


def test_spark_reads_parts_and_splits(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_bag(tmp_path / "in" / "drive", [some(200), some(200, 10**10)])
    compress(folder / "drive_1.db3")
    register_sources(spark)
    monkeypatch.setattr("chunkmill.readers.rosbag2.reader.SPLIT_BYTES", 8 * 1024)
    source = Rosbag2Reader(folder).source()
    assert len(source.splits()) > 4
    inline = Rosbag2Reader(folder).stream().to_chunks(executor="inline")
    assert cells(Rosbag2Reader(folder).stream().to_chunks(executor="spark")) == cells(inline)
    frame = spark.read.format("chunkmill.rosbag2").option("payload", "true").load(str(folder))
    assert {c.entity for c in cells(LazyChunkStream.from_spark(frame).to_chunks(executor="inline"))} == {
        c.entity for c in cells(inline)
    }
    topic = spark.read.format("chunkmill.rosbag2").option("topic", "/point").load(str(folder))
    assert topic.count() == 200
