"""Slices of ``backfill_points.py`` and ``backfill_schedules.py``, and that they find what is not safe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def ran(script: str, *arguments: str) -> str:
    """What a script prints."""
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    environment = {**os.environ, "CHUNKMILL_EXECUTOR": "inline"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.stdout + done.stderr


def test_a_backfill_is_cut_at_durable_steps_and_goes_on() -> None:
    cases = "lance.commit:kill:3,job.write:torn:4,checkpoint.write:torn:9:unsafe"
    said = ran("backfill_points.py", "--case", cases)
    assert "2 passed, 1 failed" in said and "FAILED checkpoint.write:torn:9:unsafe" in said, said


def test_backfills_are_killed_while_others_write_to_the_table() -> None:
    said = ran("backfill_schedules.py", "--points", "2", "--rows", "40", "--seed", "4")
    assert "1 passed, 0 failed" in said, said


def test_commits_that_are_lost_are_found() -> None:
    said = ran("backfill_schedules.py", "--points", "0", "--rows", "20", "--unsafe", "commit")
    assert "0 passed, 1 failed" in said and "in the end c of row" in said, said
