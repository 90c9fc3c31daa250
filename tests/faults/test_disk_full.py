"""A slice of ``disk_full.py``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("disk_full.py")


def test_without_room_the_error_is_clear_and_with_room_it_goes_on() -> None:
    ran = subprocess.run([sys.executable, str(SCRIPT), "--cases", "1"], capture_output=True, text=True, check=False)
    found = re.search(r"^(\d+) passed, 0 failed", ran.stdout, re.MULTILINE)
    assert found, ran.stdout + ran.stderr
    assert int(found[1]) in (2, 4)  # without the right to mount, half of the kinds are left out
    assert "refused" in ran.stdout
