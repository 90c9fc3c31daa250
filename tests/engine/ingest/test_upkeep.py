"""What an ingestion does for its store between batches."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from chunkmill.engine import Ingest, RecordingStore
from chunkmill.engine.errors import UsageError
from landed_files import rows_by_source, rrd_at, run_once


def landed(folder: Path, count: int) -> None:
    for at in range(count):
        rrd_at(folder / f"{at}.rrd", f"r{at}", value=float(at), age=1000 - at)


def test_small_shards_are_joined_every_so_many_batches(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    landed(tmp_path / "landing", 6)
    with caplog.at_level(logging.INFO, "chunkmill.ingest"):
        run_once(tmp_path / "landing", into=tmp_path / "lake", max_files_per_trigger=1, compact_every=3)
    store = RecordingStore.open(tmp_path / "lake")
    assert [v.operation for v in store.versions()] == ["ingest"] * 3 + ["compact"] + ["ingest"] * 3 + ["compact"]
    assert rows_by_source(tmp_path / "lake") == {f"{at}.rrd": 3 for at in range(6)}
    assert len({shard for entry in store for shard in entry.shards}) == 1
    assert "compacted: 3 shards -> 1" in caplog.text
    landed(tmp_path / "landing", 7)
    assert [f.file.path[-5:] for b in run_once(tmp_path / "landing", into=tmp_path / "lake") for f in b.files]
    assert len(rows_by_source(tmp_path / "lake")) == 7


def test_what_killed_runs_left_goes_with_the_first_batch(tmp_path: Path) -> None:
    landed(tmp_path / "landing", 1)
    lake = tmp_path / "lake"
    for name in ("shards/left.rrd", "manifests/left.arrows", "tables/left.arrow", ".batch.chunkmill-0123/part.rrd"):
        (lake / name).parent.mkdir(parents=True, exist_ok=True)
        (lake / name).write_bytes(b"left")
    run_once(tmp_path / "landing", into=lake)
    assert not [path for path in lake.rglob("*") if "left" in path.name or ".chunkmill-" in path.name]
    assert [v.operation for v in RecordingStore.open(lake).versions()] == ["ingest", "vacuum"]
    landed(tmp_path / "landing", 2)
    run_once(tmp_path / "landing", into=lake)
    assert [v.operation for v in RecordingStore.open(lake).versions()] == ["ingest", "vacuum", "ingest"]
    assert rows_by_source(lake) == {"0.rrd": 3, "1.rrd": 3}


def test_what_is_damaged_stops_no_ingestion(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    landed(tmp_path / "landing", 2)
    lake = tmp_path / "lake"
    run_once(tmp_path / "landing", into=lake, max_files_per_trigger=1)
    for manifest in (lake / "manifests").iterdir():
        manifest.write_bytes(b"damaged")
    rrd_at(tmp_path / "landing" / "2.rrd", "r2", value=2.0)
    run_once(tmp_path / "landing", into=lake, compact_every=1)
    assert "is left as it is" in caplog.text
    assert len(RecordingStore.open(lake)) == 3


def test_at_least_one_batch(tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    with pytest.raises(UsageError, match="compact_every"):
        Ingest(tmp_path / "landing", into=tmp_path / "lake", compact_every=0)
