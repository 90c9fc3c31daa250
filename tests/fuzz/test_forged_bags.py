"""Forged bags: each is refused or read within bounds of time and memory, as it is and by recovery."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_bags import FORGED
from fuzz_recordings import Worker

SECONDS = 10.0
MIB = 600


@pytest.fixture(scope="module")
def worker():
    with Worker() as started:
        yield started


@pytest.mark.parametrize("name", FORGED)
@pytest.mark.parametrize("kind", ["bag", "recovered_bag"])
def test_a_forged_bag_takes_little(worker: Worker, tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / "x.bag"
    path.write_bytes(FORGED[name]())
    answer = worker.read(kind, path)
    assert answer["outcome"] in ("read", "refused"), answer
    assert answer["seconds"] < SECONDS and answer["mib"] < MIB, answer
    if answer["outcome"] == "refused":
        assert answer["path"] == str(path) and answer["hint"] and answer["offset"] is not None, answer
    elif kind == "recovered_bag":
        assert answer["warned"], answer
