"""A slice of ``lake_hour.py``: three quarters of a minute, with a kill of each process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rerun.catalog", reason="the SDK of Rerun asks the served lake")


@pytest.mark.slow
def test_a_lake_is_whole_whoever_is_killed_while_everybody_uses_it(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = [sys.executable, "lake_hour.py", "--minutes", "0.75", "--kills", "10", "--executor", "inline"]
    ran = subprocess.run(
        [*command, "--page", str(page)], capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    )
    assert ran.returncode == 0 and "nothing is wrong" in ran.stdout, ran.stdout + ran.stderr
    assert "10 kills" in ran.stdout and "restarts" in page.read_text()
