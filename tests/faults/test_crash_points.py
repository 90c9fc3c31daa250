"""A slice of ``crash_points.py``, and that it would find sinks that are not safe."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from unsafe_sinks import FOUND_AT, SINKS

SCRIPT = Path(__file__).with_name("crash_points.py")

SLICE = (
    "landing.append:kill:1:archive",
    "landing.compact:torn:1:both",
    "part.write:exception:2:both",
    "shard.write:torn:1:both",
    "batch.quarantine:kill:1:archive",
    "version.draft:torn:1:archive",
    "version.publish:exception:1:both",
    "version.publish:enospc:3:rrds",
    "version.done:kill:3:both",
    "batch.commit:kill:1:archive",
    "source.dispose:kill:2:rrds",
    "rrd.rename:kill:2:both",
    "vacuum.versions:kill:1:both",
    "announce.write:torn:2:rival",
    "version.rebase:kill:2:rival",
)


def crash_points(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The script, to its end."""
    environment = {**os.environ, "CHUNKMILL_EXECUTOR": "inline"}
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, env=environment, check=False
    )


def passed_and_failed(ran: subprocess.CompletedProcess[str]) -> tuple[int, int]:
    """What the script counts at its end."""
    found = re.search(r"^(\d+) passed, (\d+) failed; seed", ran.stdout, re.MULTILINE)
    assert found, ran.stdout + ran.stderr
    return int(found[1]), int(found[2])


@pytest.mark.parametrize(
    "cases", [pytest.param(SLICE[::3], marks=pytest.mark.quick), SLICE[1::3] + SLICE[2::3]], ids=["a third", "the rest"]
)
def test_nothing_is_lost_or_doubled_or_half_visible_wherever_it_is_cut(cases: tuple[str, ...]) -> None:
    ran = crash_points("--case", ",".join(cases))
    assert passed_and_failed(ran) == (len(cases), 0), ran.stdout + ran.stderr
    assert ran.returncode == 0


@pytest.mark.slow
def test_a_driver_killed_on_spark_goes_on_where_it_was() -> None:
    ran = crash_points("--executor", "spark", "--points", "version.publish")
    assert passed_and_failed(ran) == (1, 0), ran.stdout + ran.stderr


def test_unsafe_sinks_and_points_that_are_never_reached_are_found() -> None:
    planted = [
        ":".join([*FOUND_AT[sink][:2], "1", "rrds" if sink == "delete_first" else "both", sink]) for sink in SINKS
    ]
    ran = crash_points("--case", ",".join([*planted, "batch.commit:kill:9:archive"]))
    assert passed_and_failed(ran) == (0, len(SINKS) + 1), ran.stdout + ran.stderr
    assert ran.returncode == 1
    for case in planted:
        assert f"again: python tests/faults/crash_points.py --executor inline --case {case}" in ran.stdout
    assert "batch.commit was reached 3 times, not 9" in ran.stdout
