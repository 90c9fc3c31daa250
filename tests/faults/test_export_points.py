"""Slices of ``export_points.py`` and ``export_full.py``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("av")
pytest.importorskip("PIL.Image")

HERE = Path(__file__).parent
SAFE = ("export.part:torn:2", "export.draft:enospc:2", "export.publish:kill:2", "staging.remove:kill:2")


def ran(script: str, *arguments: str) -> str:
    """What a script prints."""
    command = [sys.executable, str(HERE / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_a_dataset_is_complete_or_as_it_was_wherever_an_export_is_cut() -> None:
    unsafe = "export.publish:kill:2:unsafe"
    said = ran("export_points.py", "--case", ",".join([*SAFE, unsafe]))
    assert f"{len(SAFE)} passed, 1 failed" in said, said
    assert f"FAILED {unsafe}" in said and "neither as before nor as after" in said


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_point_in_every_way() -> None:
    said = ran("export_points.py")
    assert re.search(r"^[4-9]\d passed, 0 failed", said, re.MULTILINE), said


def test_an_export_without_space_leaves_the_dataset_as_it_was_and_completes_it_with_space() -> None:
    said = ran("export_full.py", "--cases", "3")
    passed = re.search(r"^(\d+) passed, 0 failed; seed 1, refused (\d+)", said, re.MULTILINE)
    assert passed, said
    assert int(passed[1]) in (3, 6) and int(passed[2]) > 0
