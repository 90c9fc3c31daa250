"""A slice of ``random_kills.py``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("random_kills.py")


def test_every_recording_is_there_once_whenever_the_driver_is_killed() -> None:
    command = [sys.executable, str(SCRIPT), "--executor", "inline", "--files", "16", "--kills", "2", "--pause", "0.2"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "16 passed, 0 failed" in ran.stdout
    assert "killed: driver 2" in ran.stdout
