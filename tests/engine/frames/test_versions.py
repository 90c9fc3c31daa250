"""Readers of a version, while others write: they see it to the end, or an error says that it is gone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from chunk_making import made
from chunkmill.engine import LazyChunkStream
from chunkmill.engine.catalog import CatalogClient, DatasetEntry
from chunkmill.engine.errors import ReadError


def rrd_at(path: Path, segment: str, value: float) -> str:
    chunks = [made(range(3), value=(value,)), made([9], entity="/b", value=(value,))]
    LazyChunkStream.from_iter(chunks).write_rrd(path, application_id="a", recording_id=segment, executor="inline")
    return str(path)


def vacuum(dataset: DatasetEntry) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    dataset.do_maintenance(cleanup_before=later, unsafe_allow_recent_cleanup=True)


@pytest.mark.parametrize("copy", [False, True])
def test_a_reader_sees_its_version_until_that_is_vacuumed(tmp_path: Path, copy: bool) -> None:
    dataset = CatalogClient(tmp_path / "lake").create_dataset("a")
    old = [rrd_at(tmp_path / f"{i}.rrd", f"s{i}", i) for i in range(3)]
    dataset.register(old, copy=copy, executor="inline").wait()
    frame = dataset.reader("t")
    before = frame.to_arrow_table()
    new = [rrd_at(tmp_path / f"new-{i}.rrd", f"s{i}", 10.0 + i) for i in range(2)]
    dataset.register(new, copy=copy, executor="inline").wait()
    dataset.unregister(segments_to_drop="s2")
    assert frame.to_arrow_table() == before
    dataset.do_maintenance(compact_fragments=True)
    assert frame.to_arrow_table() == before
    assert dataset.reader("t").count() == 8
    vacuum(dataset)
    with pytest.raises(ReadError, match="a vacuum removed this file") as caught:
        frame.to_arrow_table()
    assert ", in segment s" in str(caught.value) and "Repeat the query on the newest version" in str(caught.value)
    assert caught.value.path is not None and not Path(caught.value.path).exists()
    assert dataset.reader("t").count() == 8


@pytest.mark.parametrize("is_vacuumed", [False, True])
def test_a_file_that_the_newest_version_needs_and_that_is_not_there_is_damage(
    tmp_path: Path, is_vacuumed: bool
) -> None:
    dataset = CatalogClient(tmp_path / "lake").create_dataset("a")
    dataset.register(rrd_at(tmp_path / "0.rrd", "s", 1.0), copy=True, executor="inline").wait()
    if is_vacuumed:
        vacuum(dataset)
    (shard,) = (Path(dataset) / "shards").iterdir()
    shard.unlink()
    with pytest.raises(ReadError, match="cannot be opened: No such file"):
        dataset.reader("t").to_arrow_table()
    (manifest,) = (Path(dataset) / "manifests").iterdir()
    manifest.unlink()
    with pytest.raises(ReadError, match="The store is damaged"):
        dataset.reader("t").to_arrow_table()


def test_a_shard_that_a_vacuum_removed_is_told_as_such(tmp_path: Path) -> None:
    dataset = CatalogClient(tmp_path / "lake").create_dataset("a")
    dataset.register(rrd_at(tmp_path / "0.rrd", "s", 1.0), copy=True, executor="inline").wait()
    frame = dataset.reader("t")
    (manifest,) = (Path(dataset) / "manifests").iterdir()
    dataset.unregister(segments_to_drop="s")
    kept = manifest.read_bytes()
    vacuum(dataset)
    manifest.write_bytes(kept)
    with pytest.raises(ReadError, match="a vacuum removed this file"):
        frame.to_arrow_table()
