"""A slice of ``mcap_points.py``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SAFE = ("mcap.part:torn:2", "mcap.write:enospc:2", "mcap.rename:kill:2")


def ran(*arguments: str) -> str:
    """What the script prints."""
    command = [sys.executable, str(HERE / "mcap_points.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_a_file_is_complete_or_as_it_was_wherever_its_writing_is_cut() -> None:
    unsafe = "mcap.rename:kill:3:unsafe"
    said = ran("--case", ",".join([*SAFE, unsafe]))
    assert f"{len(SAFE)} passed, 1 failed" in said, said
    assert f"FAILED {unsafe}" in said and "neither as before nor as after" in said


def test_a_file_without_space_is_as_it_was_and_complete_with_space() -> None:
    said = ran("full", "--cases", "4")
    passed = re.search(r"^(\d+) passed, 0 failed; seed 1, refused (\d+)", said, re.MULTILINE)
    assert passed, said
    assert int(passed[1]) in (4, 8) and int(passed[2]) > 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_point_in_every_way() -> None:
    said = ran()
    assert re.search(r"^\d\d passed, 0 failed", said, re.MULTILINE), said
