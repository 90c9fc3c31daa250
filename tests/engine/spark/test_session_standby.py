"""The daemon of the workers, without Spark, in fresh interpreters: what it imports before it forks is the point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from chunkmill.engine.spark.session_conf import DAEMON_MODULE
from chunkmill.engine.spark.worker_daemon import STANDBY_SOCKET, STANDBY_VARIABLE, end_standby, start_standby

pytestmark = pytest.mark.skipif(os.name != "posix", reason="workers fork on POSIX only")

LISTING = """
import os, sys, threading
from chunkmill.engine.spark.worker_daemon import import_ahead
import_ahead()
print(len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else threading.active_count())
print(" ".join(sorted(sys.modules)))
"""
COMPUTING = """
import os
from chunkmill.engine.spark.worker_daemon import import_ahead
import_ahead()
for _ in range(4):
    child = os.fork()
    if child == 0:
        import pyarrow as pa, pyarrow.compute as pc
        table = pa.table({"k": list(range(100_000)) * 2})
        assert table.group_by("k").aggregate([("k", "count")]).num_rows == 100_000
        assert pc.sum(table["k"]).as_py() == 9_999_900_000
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
print("done")
"""


def run_python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def ask_for_a_daemon(environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """What Spark does with its first task."""
    return subprocess.Popen(
        [sys.executable, "-m", DAEMON_MODULE, "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHON_WORKER_FACTORY_SECRET": "s", **environment},
    )


def port_of(daemon: subprocess.Popen[bytes]) -> int:
    assert daemon.stdout is not None
    return int.from_bytes(daemon.stdout.read(4), "big")


def end_of(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


def test_the_imports_start_no_thread_and_leave_the_heavy_ones_out():
    threads, modules = run_python(LISTING).splitlines()
    assert threads == "1"
    loaded = set(modules.split())
    assert {"pyarrow", "pyarrow.compute", "numpy", "pandas", "pyspark.worker"} <= loaded
    assert not {"lance", "rerun"} & loaded


def test_arrow_computes_in_the_forks():
    assert run_python(COMPUTING).strip() == "done"


def test_the_one_that_stands_by_becomes_the_daemon(tmp_path):
    where = tmp_path / STANDBY_SOCKET
    standby = start_standby(DAEMON_MODULE, "", where)
    asker = ask_for_a_daemon({STANDBY_VARIABLE: str(where)})
    assert 0 < port_of(asker) < 65536
    assert not where.exists()
    assert standby.poll() is None
    assert asker.poll() is None
    assert end_of(asker) == (0, b"")
    standby.wait(60)
    end_standby(standby)


def test_its_end_is_the_end_of_the_small_process_too(tmp_path):
    where = tmp_path / STANDBY_SOCKET
    standby = start_standby(DAEMON_MODULE, "", where)
    asker = ask_for_a_daemon({STANDBY_VARIABLE: str(where)})
    port_of(asker)
    asker.send_signal(signal.SIGTERM)
    standby.wait(60)
    assert end_of(asker)[0] == 0
    end_standby(standby)


@pytest.mark.parametrize("gone", [True, False])
def test_where_none_stands_by_the_small_process_is_the_daemon(tmp_path, gone):
    where: Path = tmp_path / STANDBY_SOCKET
    if gone:
        end_standby(start_standby(DAEMON_MODULE, "", where))
    daemon = ask_for_a_daemon({STANDBY_VARIABLE: str(where)})
    assert 0 < port_of(daemon) < 65536
    assert end_of(daemon)[1] == b""


@pytest.mark.heavy
def test_one_that_is_never_asked_ends_with_the_driver(tmp_path):
    standby = start_standby(DAEMON_MODULE, "", tmp_path / STANDBY_SOCKET)
    time.sleep(0.1)
    assert standby.stdin is not None
    standby.stdin.close()
    assert standby.wait(60) == 0
