"""A slice of ``catalog_points.py``, and that it finds commits that are not safe, and points that are never reached."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("catalog_points.py")

SAFE = ("entry.draft:torn:3", "entry.publish:kill:5", "entry.publish:exception:2", "entry.prune:kill:1")


WRONG = ("entry.draft:torn:3:unsafe", "entry.prune:kill:3")


@pytest.mark.quick
def test_a_catalog_is_whole_wherever_a_change_is_cut_and_a_name_has_one_winner() -> None:
    environment = {**os.environ, "CHUNKMILL_EXECUTOR": "inline"}
    command = [sys.executable, str(SCRIPT), "--names", "4", "--case", ",".join([*SAFE, *WRONG])]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert f"{len(SAFE) + 1} passed, {len(WRONG)} failed" in ran.stdout, ran.stdout + ran.stderr
    assert [f"FAILED {case}" in ran.stdout for case in WRONG] == [True, True]
    assert "cannot be read" in ran.stdout and "entry.prune was not reached so often" in ran.stdout
