"""A few recordings in a catalog here and in Rerun's server, by the script that compares all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import catalog_against_rerun
import pytest
from chunk_making import made
from chunkmill.engine import LazyChunkStream


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_both_tell_the_same_of_recordings_of_all_formats(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("datafusion", reason="Rerun's catalog needs rerun-sdk[catalog]")
    rrd = tmp_path / "drive.rrd"
    LazyChunkStream.from_iter([made(range(3)), made([9], entity="/b")]).write_rrd(
        rrd, application_id="tests", recording_id="drive", executor="inline"
    )
    inputs = [rrd, data / "demo.mcap", data / "generated" / "pq_base.parquet"]
    command = [sys.executable, catalog_against_rerun.__file__, *map(str, inputs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "'compared by copy': 4, " in done.stdout or "'compared by copy': 4}" in done.stdout
    assert ", 0 others" in done.stdout


def test_what_differs_is_noted() -> None:
    found = catalog_against_rerun.Comparison()
    theirs = {"segment ids": ["a"], "manifest: a base: rerun_size_bytes": 100}
    ours = {"segment ids": ["a"], "manifest: a base: rerun_size_bytes": 101, "column c": 1}
    catalog_against_rerun.compare("one by copy", ours, theirs, found, loosely=True)
    assert found.differences == ["one by copy: column c is here alone: 1"] == found.unknown
    catalog_against_rerun.compare("one in place", ours, theirs, found, loosely=False)
    assert "rerun_size_bytes is 101 here, and 100 there" in found.unknown[-1]
