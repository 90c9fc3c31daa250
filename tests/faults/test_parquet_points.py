"""Slices of ``parquet_points.py``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("parquet_points.py")
SAFE = ("parquet.part:torn:2", "parquet.manifest:exception:1", "parquet.draft:enospc:1", "parquet.publish:kill:1")


def ran(*arguments: str) -> str:
    """What the script prints."""
    done = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_a_folder_of_parquet_is_complete_or_absent_wherever_an_export_is_cut() -> None:
    unsafe = "parquet.publish:kill:1:unsafe"
    said = ran("--case", ",".join([*SAFE, unsafe]))
    assert f"{len(SAFE)} passed, 1 failed" in said, said
    assert f"FAILED {unsafe}" in said


@pytest.mark.slow
def test_every_point_in_every_way() -> None:
    said = ran()
    assert re.search(r"^[3-9]\d passed, 0 failed", said, re.MULTILINE), said


def test_an_export_without_space_leaves_nothing_and_completes_with_space() -> None:
    said = ran("full", "--cases", "3")
    passed = re.search(r"^(\d+) passed, 0 failed; seed 1, refused (\d+)", said, re.MULTILINE)
    assert passed, said
    assert int(passed[2]) > 0
