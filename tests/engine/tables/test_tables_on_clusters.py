"""Columns and views in the ways to run Spark that ``CHUNKMILL_DEPLOYMENTS`` names."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import REPOSITORY

SCRIPT = Path(__file__).with_name("tables_session.py")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("deployment", os.environ.get("CHUNKMILL_DEPLOYMENTS", "local[2]").split())
def test_columns_are_filled_and_loaded_and_views_refreshed(
    deployment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if deployment == "connect" and importlib.util.find_spec("grpc_status") is None:
        pytest.skip("Spark Connect needs grpcio-status: pip install 'pyspark[connect]'")
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    from deployments import deployed

    with deployed(deployment, tmp_path) as made:
        environment = {**os.environ, **made.environment, "CHUNKMILL_MASTER": made.master, "CHUNKMILL_EXECUTOR": "spark"}
        done = subprocess.run(
            [sys.executable, str(SCRIPT), str(tmp_path)], env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "filled": 4000,
        "refreshed": 400,
        "halves": True,
        "names": True,
        "quarters": True,
        "again": 0,
        "jobs": ["DONE"],
    }
