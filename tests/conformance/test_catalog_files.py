"""Files that Spark wrote by every way, beside one written inline, in one dataset of the server of this rerun-sdk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import catalog_files
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_server_takes_all_files_and_they_answer_alike(data: Path, tmp_path: Path, spark: SparkSession) -> None:
    pytest.importorskip("datafusion", reason="Rerun's catalog needs rerun-sdk[catalog]")
    catalog_files.written(tmp_path, data / "demo.mcap", "spark")
    command = [sys.executable, catalog_files.__file__, str(tmp_path), "--ask"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"differ": []' in done.stdout
