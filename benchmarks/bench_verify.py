"""Verification of whole files, beside ``rerun rrd verify``: whole processes, from the start of the interpreter on.

Not reached: 2.1 times the wall of a 455 MB recording (``CHUNKMILL_BENCH_MB=400``), 2.3 times its CPU, 1.00 to 0.44 s.
Python, numpy, pyarrow and the command line take 0.4 s before the first byte is read, and each of 5,600 chunks takes
0.1 ms, of which the libraries that decompress, decode and hash have 0.04.
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
    """Guards that little is imported, and that chunks are decoded in memory that is used again."""
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
