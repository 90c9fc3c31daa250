"""Bags from a bucket, into a catalog by copy, and through Spark in splits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bag_bytes import recording
from chunkmill.engine.catalog import CatalogClient
from chunkmill.readers import BagReader, detect_format
from comparison import cells

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_bag_is_registered_by_copy(tmp_path: Path) -> None:
    path = tmp_path / "drive.bag"
    path.write_bytes(recording("lz4", publishers=1))
    client = CatalogClient(tmp_path / "lake")
    dataset = client.create_dataset("drives")
    dataset.register(str(path)).wait()
    (segment,) = dataset.segment_ids()
    assert segment == "drive"


def test_a_bag_of_splits_on_spark(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "drive.bag"
    path.write_bytes(recording("bz2", count=300))
    monkeypatch.setattr("chunkmill.readers.mcap.plan.SPLIT_BYTES", 4096)
    monkeypatch.setattr("chunkmill.readers.bag.reader.SPLIT_BYTES", 4096)
    stream = BagReader(path).stream()
    assert len(BagReader(path).source().splits()) > 4
    assert cells(stream.to_chunks(executor="spark")) == cells(stream.to_chunks(executor="inline"))
    assert detect_format(path).name == "bag"
