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
def test_a_forged_bag_takes_little(worker: Worker, tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.bag"
    path.write_bytes(FORGED[name]())
    strict, recovered = worker.read("bag", path), worker.read("recovered_bag", path)
    for answer in (strict, recovered):
        assert answer["outcome"] in ("read", "refused"), answer
        assert answer["seconds"] < SECONDS and answer["mib"] < MIB, answer
    if strict["outcome"] == "refused":
        assert strict["path"] == str(path) and strict["hint"] and strict["offset"] is not None, strict
        assert recovered["outcome"] == "refused" or recovered["warned"], recovered


def test_there_are_twenty() -> None:
    assert len(FORGED) >= 20
