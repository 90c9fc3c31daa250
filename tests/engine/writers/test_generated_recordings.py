"""Exports of generated recordings beside an oracle: every value and every account."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from chunkmill import UsageError
from chunkmill.engine.writers.lerobot import write_lerobot
from generated_recordings import MS, RULES, expected, generated


def check(seed: int, where: Path) -> str:
    """Export a recording and compare it; returns what became of it."""
    case = generated(seed)
    episodes = expected(case)
    if any(episode.is_error for episode in episodes):
        with pytest.raises(UsageError, match="no value within its tolerance"):
            write_lerobot({"a": case.stream}, where, case.spec, executor="inline")
        return "error"
    written = [episode for episode in episodes if episode.account["written"]]
    if not written:
        with pytest.raises(UsageError, match="there is no episode to write"):
            write_lerobot({"a": case.stream}, where, case.spec, executor="inline")
        return "nothing"
    write_lerobot({"a": case.stream}, where, case.spec, executor="inline")
    accounts = json.loads((where / "meta/chunkmill.json").read_text())["episodes"]
    assert [{key: a[key] for key in episodes[0].account} for a in accounts] == [e.account for e in episodes]
    rows = pq.read_table(where / "data/chunk-000/file-000.parquet")
    lengths = [episode.account["written"] for episode in written]
    assert rows["episode_index"].to_pylist() == np.repeat(range(len(written)), lengths).tolist()
    for name, rule in RULES.items():
        mine = np.array(rows[name].to_pylist())
        oracles = np.concatenate([episode.values[name] for episode in written])
        if rule in ("latest", "nearest"):
            assert np.array_equal(mine, oracles), name
        else:
            assert np.allclose(mine, oracles, rtol=0, atol=1e-9), name
    return "written"


@pytest.mark.parametrize("seed", range(8))
def test_values_and_accounts_are_those_of_the_oracle(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path / "set")


@pytest.mark.slow
def test_500_recordings(tmp_path: Path) -> None:
    ends = [check(seed, tmp_path / str(seed)) for seed in range(500)]
    assert ends.count("written") > 200
    assert min(ends.count("error"), ends.count("nothing")) > 10


def test_recordings_have_what_goes_wrong() -> None:
    cases = [generated(seed) for seed in range(60)]
    steps = [np.diff(times) for case in cases for times in case.times.values()]
    assert any((step < 0).any() for step in steps)  # a clock steps back
    assert any((step == 0).any() for step in steps)
    assert any((step > 300 * MS).any() for step in steps)
