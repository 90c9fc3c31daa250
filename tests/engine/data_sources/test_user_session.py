"""The data sources in sessions that pyspark alone has made, where Spark finds them by their names."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from chunkmill.engine.spark.jvm import find_java
from chunkmill.engine.spark.launch import launchable
from chunkmill.readers import FORMATS, McapReader
from places import REPOSITORY

SCRIPT = Path(__file__).with_name("user_session.py")
IMU = "mcap/rerun__rosbag2_2025_09_10-13_03_56_0.mcap"


def test_there_is_a_module_for_each_name() -> None:
    found = {}
    for path in (REPOSITORY / "spark_names").glob("pyspark_*.py"):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found[path.stem] = module.DefaultSource.name()
    names = [*FORMATS, "dataset", "table"]
    assert found == {"pyspark_chunkmill": "chunkmill", **{f"pyspark_chunkmill_{n}": f"chunkmill.{n}" for n in names}}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("deployment", os.environ.get("CHUNKMILL_DEPLOYMENTS", "local[2]").split())
def test_it_works_without_a_call(deployment: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if deployment == "connect" and importlib.util.find_spec("grpc_status") is None:
        pytest.skip("Spark Connect needs grpcio-status: pip install 'pyspark[connect]'")
    # A wheel has these modules beside the packages; one that is installed for editing does not show them to Spark.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPOSITORY / "spark_names"), str(REPOSITORY / "benchmarks")]))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("JAVA_HOME", str(launchable(find_java(), tmp_path / "java")))
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    from deployments import deployed

    with deployed(deployment, tmp_path) as made:
        (tmp_path / "out").mkdir()
        command = [sys.executable, str(SCRIPT), made.master, str(data / IMU), str(tmp_path / "out")]
        done = subprocess.run(
            command, env={**os.environ, **made.environment}, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    rows = sum(c.num_rows for c in McapReader(data / IMU).stream().to_chunks(executor="inline"))
    values = len(McapReader(data / IMU).values().to_arrow("/imu", executor="inline"))
    assert found == {"rows": rows, "values": values, "written": True, "stored": [["a", rows]]}
