"""What the export writes of bags and MCAPs, LeRobot's own loader reads and a policy trains on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

INTERPRETER = os.environ.get("CHUNKMILL_LEROBOT_PYTHON", "")
"""A Python that has lerobot 0.4.4; ``.ci/torch`` makes an environment of its own."""


@pytest.mark.heavy
def test_sources_become_datasets(tmp_path: Path) -> None:
    pytest.importorskip("av")
    from lerobot_slice import bag, databases, mcap

    frames = {}
    for make in (bag, mcap, databases):
        where = make(tmp_path)
        accounts = json.loads((where / "meta/chunkmill.json").read_text())["episodes"]
        assert all(a["wanted"] == a["written"] + a["dropped"] for a in accounts)
        frames[where.name] = [(a["written"], a["reencoded"]) for a in accounts]
    # Of the arm's two videos, the one in H.264 is copied.
    assert frames == {"turtle": [(161, 0), (161, 0)], "car": [(469, 0)], "arm": [(89, 89), (90, 90)]}


@pytest.mark.slow
@pytest.mark.skipif(not INTERPRETER, reason="CHUNKMILL_LEROBOT_PYTHON names no Python with lerobot")
def test_lerobot_reads_and_trains(tmp_path: Path) -> None:
    from lerobot_slice import run

    facts = run(INTERPRETER, tmp_path)
    assert {each["dataset"]: each["episodes"] for each in facts} == {"turtle": 2, "car": 1, "arm": 2}
    assert all(each["loss"][1] < each["loss"][0] for each in facts)
