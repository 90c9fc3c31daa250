"""A slice of ``signal_moments.py``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("signal_moments.py")


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("executor", "commands", "kind", "target"),
    [
        ("inline", "convert-file,compact", "TERM", "group"),
        ("inline", "ingest", "INT", "process"),
        ("spark", "convert-folder", "INT", "group"),
        ("spark", "convert-file", "TERM", "process"),
    ],
)
def test_a_command_ends_soon_and_the_next_run_completes(executor: str, commands: str, kind: str, target: str) -> None:
    told = ["--moments", "1", "--kinds", kind, "--targets", target, "--seconds", "10"]  # others may use the machine
    command = [sys.executable, str(SCRIPT), "--executors", executor, "--commands", commands, *told]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{commands.count(',') + 1} passed, 0 failed" in ran.stdout
