"""Slices of ``catalog_writers.py``, ``dataset_points.py`` and ``dataset_full.py``, and that unsafe commits are found.

All in one process, which imports what the forks of all need.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import catalog_writers, dataset_full, dataset_points
catalog_writers.main(["--processes", "3", "--operations", "30"])
catalog_writers.main(["--processes", "3", "--operations", "10", "--unsafe"])
dataset_points.main(["--case", "version.publish:exception:2,schema.write:torn:1,version.publish:exception:2:forget"])
dataset_full.main(["--cases", "1", "--kinds", "file-size,handles"])
"""


def test_a_catalog_has_a_serial_order_and_is_whole_wherever_it_is_cut_unless_commits_are_unsafe() -> None:
    here = Path(__file__).parent
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, cwd=here)
    safe, _, rest = ran.stdout.partition("1 passed, 0 failed")
    unsafe, _, points = rest.partition("0 passed, 1 failed")
    assert "nothing is wrong" in safe, ran.stdout + ran.stderr
    assert "the versions of entries are [" in unsafe, ran.stdout + ran.stderr
    assert "FAILED version.publish:exception:2:forget" in points, ran.stdout + ran.stderr
    assert "2 passed, 1 failed" in points and "2 passed, 0 failed" in points, ran.stdout + ran.stderr
