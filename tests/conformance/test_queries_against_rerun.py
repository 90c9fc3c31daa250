"""A few queries here and in Rerun's server, by the script that compares thousands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import queries_against_rerun
from chunk_making import made
from chunkmill.engine import LazyChunkStream


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_generated_datasets_and_a_recording_answer_as_there(tmp_path: Path) -> None:
    pytest.importorskip("datafusion", reason="Rerun's catalog needs rerun-sdk[catalog]")
    rrd = tmp_path / "drive.rrd"
    LazyChunkStream.from_iter([made(range(3)), made([9], entity="/b")]).write_rrd(
        rrd, application_id="tests", recording_id="drive", executor="inline"
    )
    command = [sys.executable, queries_against_rerun.__file__, "--count", "12", str(rrd)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "'generated datasets': 12, " in done.stdout and "'recordings': 2" in done.stdout
    assert "others: 0" in done.stdout
