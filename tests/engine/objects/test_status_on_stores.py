"""How an ingestion into a bucket stands."""

from __future__ import annotations

import shutil
from pathlib import Path

from chunkmill.engine.execution.lease import Lease
from chunkmill.engine.ingest import Ingest
from chunkmill.engine.ingest.metrics import StatusReader
from chunkmill.engine.locations import located


def test_an_ingestion_into_a_bucket_is_told_with_its_checkpoint(bucket: str, tmp_path: Path, data: Path) -> None:
    home, checkpoint, landing = f"{bucket}/lake", tmp_path / "checkpoint", tmp_path / "landing"
    landing.mkdir()
    shutil.copy(data / "demo.mcap", landing / "a.mcap")
    ingest = Ingest(landing, into=home, checkpoint=checkpoint, executor="inline", settle=0)
    ingest.start(once=True).await_termination(60)
    shutil.copy(data / "demo.mcap", landing / "b.mcap")

    found = StatusReader(located(home), checkpoint).read()

    assert not found.problems
    assert (found.version, found.batches, found.files, found.recordings) == (1, 1, {"added": 1}, 1)
    assert found.lag is not None and (found.lag.waiting, found.lag.running) == (1, 0)
    assert found.holder is None


def test_before_the_first_commit_the_writer_is_told(bucket: str) -> None:
    home = located(f"{bucket}/lake")
    with Lease.take(home) as lease:
        found = StatusReader(home).read()
        assert (found.version, found.holder) == (0, lease.holder)
    assert not found.problems
