"""Clusters of several processes on this machine, and Spark Connect, write what one process writes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from places import REPOSITORY

SCRIPT = REPOSITORY / "benchmarks" / "scale.py"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("deployment", ["standalone", "connect"])
def test_a_deployment_writes_what_one_process_writes(deployment: str, tmp_path: Path) -> None:
    if deployment == "connect" and importlib.util.find_spec("grpc_status") is None:
        pytest.skip("Spark Connect needs grpcio-status: pip install 'pyspark[connect]'")
    command = [sys.executable, str(SCRIPT), "--recordings", "4", "--size-mb", "0", "--work", str(tmp_path)]
    done = subprocess.run([*command, "inline", deployment], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()[1:]]
    assert [line[0] for line in lines] == ["inline", deployment]
    assert len({line[-1] for line in lines}) == 1
    assert lines[0][-2] == "96"


def test_a_bucket_gets_what_a_folder_gets_by_uploads_alone(tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    found = []
    for store in ([], ["--s3"]):
        command = [sys.executable, str(SCRIPT), "--recordings", "2", "--size-mb", "12", "--work", str(tmp_path)]
        done = subprocess.run([*command, *store, "inline"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.append([line.split()[-2:] for line in done.stdout.splitlines()[1:] if line.startswith("inline")])
    assert found[0] == found[1]
    asked = done.stdout.splitlines()[-1]
    assert "UploadPartCopy" in asked
    assert "CompleteMultipartUpload" in asked
    assert "CopyObject" not in asked
