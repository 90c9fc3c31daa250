"""What an ingestion does for its store between batches."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine import Ingest, RecordingStore
from chunkmill.engine.errors import UsageError
from chunkmill.engine.ingest import Outcome
from chunkmill.engine.recordings import StoreWriter
from landed_files import outcomes, rows_by_source, rrd_at, run_once


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


def test_two_ingestions_land_in_one_store_at_once(tmp_path: Path) -> None:
    lake, sides = tmp_path / "lake", ("left", "right")
    for side in sides:
        for at in range(4):
            rrd_at(tmp_path / side / f"{side}-{at}.rrd", f"{side}-{at}")
        rrd_at(tmp_path / side / f"{side}-same.rrd", "same", value=float(len(side)))
    queries = [
        Ingest(
            tmp_path / side,
            into=lake,
            checkpoint=tmp_path / f"checkpoint-{side}",
            executor="inline",
            settle=0,
            max_files_per_trigger=1,
            compact_every=2,
        ).start(once=True)
        for side in sides
    ]
    for query in queries:
        assert query.await_termination(60)
    found = [outcome for query in queries for outcome in outcomes(list(query.recent)).values()]
    assert sorted(found) == [*[Outcome.ADDED] * 9, Outcome.QUARANTINED]
    assert {name.removesuffix(".rrd") for name in rows_by_source(lake)} > {
        f"{s}-{at}" for s in sides for at in range(4)
    }
    assert sorted(RecordingStore.open(lake).version.batches.values()) == [5, 5]


def test_a_content_that_both_have_is_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = tmp_path / "lake"
    rrd_at(tmp_path / "left" / "a.rrd", "one")
    (tmp_path / "right").mkdir()
    shutil.copy2(tmp_path / "left" / "a.rrd", tmp_path / "right" / "a.rrd")
    bring = StoreWriter._bring_in
    other: list[Any] = []

    def late(writer: StoreWriter, *args: Any) -> Any:
        monkeypatch.setattr(StoreWriter, "_bring_in", bring)
        other.extend(run_once(tmp_path / "right", into=lake, checkpoint=tmp_path / "checkpoint"))
        return bring(writer, *args)

    monkeypatch.setattr(StoreWriter, "_bring_in", late)
    mine = run_once(tmp_path / "left", into=lake)
    assert (outcomes(other), outcomes(mine)) == ({"a.rrd": Outcome.ADDED}, {"a.rrd": Outcome.DUPLICATE})
    assert len(RecordingStore.open(lake)) == 1


def test_what_is_damaged_stops_no_ingestion(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    landed(tmp_path / "landing", 2)
    lake = tmp_path / "lake"
    run_once(tmp_path / "landing", into=lake, max_files_per_trigger=1)
    for manifest in (lake / "manifests").iterdir():
        manifest.write_bytes(b"damaged")
    rrd_at(tmp_path / "landing" / "2.rrd", "r2", value=2.0)
    run_once(tmp_path / "landing", into=lake, compact_every=1)
    assert "is unchanged" in caplog.text
    assert len(RecordingStore.open(lake)) == 3


def test_at_least_one_batch(tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    with pytest.raises(UsageError, match="compact_every"):
        Ingest(tmp_path / "landing", into=tmp_path / "lake", compact_every=0)
