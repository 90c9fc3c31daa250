"""A few kills of ``forget_kills.py``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("forget_kills.py")


def test_forgetting_and_copying_are_right_whenever_they_are_killed() -> None:
    paths = [str(SCRIPT.parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "CHUNKMILL_EXECUTOR": "inline", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(SCRIPT), "--kills", "4", "--seed", "7"]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)
    assert ran.returncode == 0 and " 0 failed" in ran.stdout, ran.stdout + ran.stderr
