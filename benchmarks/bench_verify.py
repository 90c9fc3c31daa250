"""Verification of whole files, beside ``rerun rrd verify``: whole processes, from the start of the interpreter on.

The recording of the stated ratio has 400 MB: ``CHUNKMILL_BENCH_MB=400``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Duel

pytest.importorskip("rerun_cli")


def test_verify_of_an_rrd(benchmark: Any, duel: Duel, recording: Path, tmp_path: Path) -> None:
    """Guards that all chunks are decoded and compared by several threads, and that little is imported for it."""
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}

    def run(*command: str | Path) -> None:
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    duel.run(
        benchmark,
        lambda: run(scripts / "chunkmill", "verify", recording),
        lambda: run(scripts / "rerun", "rrd", "verify", recording),
        bar=1.0,
    )
