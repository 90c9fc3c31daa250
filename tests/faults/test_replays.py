"""A slice of ``replay_schedules.py``, and Spark's checkpoint without its last commits."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from chunkmill.engine.ingest.ingest import Ingest
from chunkmill.engine.store import RecordingStore
from fault_world import LONG_AGO, recording
from replay_schedules import payload, run

SEED = 20_261_121


def test_commits_of_unknown_outcome_and_batches_that_come_again_change_nothing() -> None:
    outcomes: Counter[str] = Counter()
    for number in range(5):
        wrong, told = run(SEED, number)
        assert not wrong, f"python tests/faults/replay_schedules.py --seed {SEED} --only {number}\n" + "\n".join(wrong)
        outcomes.update(told)
    assert min(outcomes["done"], outcomes["unknown"], outcomes["failed"]) > 0


@pytest.mark.usefixtures("spark")
def test_a_checkpoint_without_its_last_commits_is_replayed_without_a_trace(tmp_path: Path) -> None:
    landing, lake = tmp_path / "landing", tmp_path / "lake"
    landing.mkdir()
    for number in range(4):
        recording(landing / f"{number}.rrd", number, rows=3)
        os.utime(landing / f"{number}.rrd", (LONG_AGO + number,) * 2)

    def ingest() -> None:
        ingest = Ingest(landing, into=lake, optimize=None, max_files_per_trigger=1, executor="spark")
        ingest.start(once=True).await_termination()

    ingest()
    store, there = RecordingStore.open(lake), payload(lake)
    assert (len(store), store.version.number) == (4, 4)
    commits = lake / "ingest" / "spark" / "commits"
    for lost in (1, 2, 3):
        found = sorted((p for p in commits.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
        for path in found[-lost:]:
            path.unlink()
            (commits / f".{path.name}.crc").unlink(missing_ok=True)
        ingest()
        assert RecordingStore.open(lake).version == store.version
        assert payload(lake) == there
