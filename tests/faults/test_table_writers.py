"""Slices of ``table_writers.py`` and ``table_points.py``, and that they find what is not safe."""

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


def test_all_who_write_to_a_table_at_once_are_versions_of_it() -> None:
    said = ran("table_writers.py", "--operations", "6", "--kills", "3")
    assert "2 passed, 0 failed" in said, said


def test_turns_may_be_missed_and_the_order_may_not() -> None:
    said = ran("table_writers.py", "--operations", "2", "--without", "turns")
    assert "2 passed, 0 failed" in said, said
    said = ran("table_writers.py", "--operations", "2", "--without", "turns,order")
    assert "1 passed, 1 failed" in said and "several rows of a key: {'one':" in said, said


SAFE = ("lance.rows:kill:4", "lance.merge:kill:2", "lance.commit:kill:1", "lance.create:kill:2", "lance.compact:kill:1")
WRONG = ("lance.rows:kill:6:unsafe", "lance.remove:kill:5")


def test_a_table_is_at_one_version_or_the_next_wherever_it_is_cut() -> None:
    said = ran("table_points.py", "--case", ",".join([*SAFE, *WRONG]))
    assert f"{len(SAFE)} passed, {len(WRONG)} failed" in said, said
    assert "after 6 steps there is {'a': []}" in said and "lance.remove was not reached so often" in said, said
