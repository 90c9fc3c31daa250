"""Slices of the scripts that cut, kill and race backfills, and that they find what is not safe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


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


@pytest.mark.slow
def test_commits_that_are_lost_or_blind_are_found() -> None:
    said = ran("backfill_schedules.py", "--points", "0", "--rows", "20", "--unsafe", "commit")
    assert "0 passed, 1 failed" in said and "in the end c of row" in said, said
    # where two commit at the same moment, Lance tells one of them: of so many fragments that is not each
    tries = [ran("backfill_races.py", "--only", "two_functions", "--rows", "100", "--unsafe") for _ in range(5)]
    assert any("0 passed, 1 failed" in said for said in tries), tries


def test_jobs_at_once_lose_nothing_and_tell_of_each_other() -> None:
    said = ran("backfill_races.py", "--only", "one_column_twice,beside_appenders,one_load_twice", "--rows", "30")
    assert "3 passed, 0 failed" in said, said
