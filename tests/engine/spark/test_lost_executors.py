"""Why an application failed, on a standalone master whose executors are killed, or have not what tasks need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import DATA, REPOSITORY

SCRIPT = """
import os, signal, sys, time
from chunkmill.engine import get_session
from chunkmill.engine.errors import ChunkmillError
from chunkmill.readers import McapReader

how, work, source = sys.argv[1:]

def of_workers(pid):
    try:
        return os.readlink(f"/proc/{pid}/cwd").startswith(f"{work}/worker-")
    except OSError:
        return False

def killing(chunk):
    if how == "killed":  # as a machine without memory kills the executors, which are JVMs
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if of_workers(pid) and b"CoarseGrainedExecutorBackend" in open(f"/proc/{pid}/cmdline", "rb").read():
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(30)
    return chunk

get_session(conf={"spark.task.maxFailures": "1", "spark.executor.memory": "512m"})
try:
    stream = McapReader(source).stream().map(killing)
    stream.write_rrd(f"{work}/out.rrd", application_id="tests", recording_id="one", executor="spark")
except ChunkmillError as error:
    print(type(error).__name__, error)
"""

BARE = Path(sys.base_prefix) / "bin" / "python3"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("how", "python", "expected"),
    [
        ("killed", sys.executable, ("SessionError", "was lost: Command exited with code 137", "memoryOverhead")),
        (
            "none",
            "/nope/python3",
            ("SessionStartError", "cannot be started: /nope/python3 does not exist", "PYSPARK_PYTHON"),
        ),
        ("bare", str(BARE), ("SessionStartError", "chunkmill", "PYSPARK_PYTHON")),
    ],
)
def test_the_error_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, python: str, expected: tuple[str, ...]
) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    from deployments import standalone

    if how == "bare":
        found = subprocess.run([BARE, "-c", "import chunkmill"], capture_output=True, check=False, cwd=tmp_path)
        if found.returncode == 0:
            pytest.skip("the Python of this environment has chunkmill itself")
    (tmp_path / "scratch").mkdir()
    (tmp_path / "script.py").write_text(SCRIPT)
    with standalone(tmp_path) as made:
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": python,
            "CHUNKMILL_MASTER": made.master,
            "CHUNKMILL_SCRATCH": str(tmp_path / "scratch"),
        }
        words = [sys.executable, "-W", "ignore", "script.py", how, str(tmp_path), str(DATA / "demo.mcap")]
        done = subprocess.run(
            words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=400
        )
    assert all(text in done.stdout for text in expected), done.stdout + done.stderr[-3000:]
    assert not (tmp_path / "out.rrd").exists()
