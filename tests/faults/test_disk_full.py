"""Slices of ``disk_full.py``, and of what ``dataset_full.py`` does with each operation on a lake."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from file_limits import can_mount

SCRIPT = Path(__file__).with_name("disk_full.py")
OPERATIONS = Path(__file__).with_name("dataset_full.py")
WITH_LEASES = "upsert_leased,refresh,update_indexes,compact_dataset,ingest"


def ran(script: Path, *arguments: str) -> re.Match[str]:
    """What a script says at its end: how many cases passed, none of which failed."""
    command = [sys.executable, str(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"^(\d+) passed, 0 failed.*refused.*", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    return found


def test_without_room_the_error_is_clear_and_with_room_it_goes_on() -> None:
    passed = ran(SCRIPT, "--cases", "1")
    assert int(passed[1]) in (2, 4)  # without the right to mount, half of the kinds are left out


def test_an_operation_that_finds_no_space_is_clear_and_comes_through_with_space() -> None:
    """Each once, in one of the ways: the seed of a case has its name."""
    passed = ran(OPERATIONS, "--operations", "all", "--cases", "1", "--seed", "7")
    assert int(passed[1]) >= 40


def test_who_holds_a_lease_on_a_full_disk_blocks_nobody_afterwards() -> None:
    """In each of the ways, with the same process and another: both are tried with space."""
    passed = ran(OPERATIONS, "--operations", WITH_LEASES, "--cases", "6", "--seed", "2")
    assert "file size refused" in passed[0]
    assert not can_mount() or "disk and temporary files refused" in passed[0]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_operation_without_space_in_several_ways() -> None:
    ran(OPERATIONS, "--operations", "all", "--cases", "3", "--seed", "3")
