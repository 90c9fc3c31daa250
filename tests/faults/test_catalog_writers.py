"""A slice of ``catalog_writers.py``, and that it finds commits that overwrite those of others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BOTH = """
from catalog_writers import main
main(["--processes", "3", "--operations", "40"])
main(["--processes", "3", "--operations", "12", "--unsafe"])
"""


def test_what_processes_did_to_a_catalog_at_once_has_a_serial_order_unless_commits_overwrite_others() -> None:
    command = [sys.executable, "-c", BOTH]
    here = Path(__file__).parent
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=here)
    safe, _, unsafe = ran.stdout.partition("1 passed, 0 failed")
    assert "nothing is wrong" in safe, ran.stdout + ran.stderr
    assert "the versions of entries are [1, 1" in unsafe and "0 passed, 1 failed" in unsafe, ran.stdout + ran.stderr
