"""A slice of ``stream_kills.py``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("stream_kills.py")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("sink", ["store", "memory"])
def test_every_recording_is_there_once_whenever_the_query_is_killed(sink: str) -> None:
    command = [sys.executable, str(SCRIPT), "--sink", sink, "--files", "4", "--kills", "2", "--span", "2"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "4 passed, 0 failed; 2 kills" in ran.stdout
