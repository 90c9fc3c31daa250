"""The workers that Spark's daemon forks."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time

import pytest

_ENDED = """
import socket, sys
from pyspark import daemon
from chunkmill.engine.spark.worker_daemon import ending_quietly
ours, sparks = socket.socketpair()
sparks.close()
sys.exit(ending_quietly(daemon.worker)(ours, True))
"""


def test_a_worker_whose_socket_spark_has_closed_ends_without_a_word() -> None:
    environment = {**os.environ, "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1"}  # as Spark sets it
    ended = subprocess.run([sys.executable, "-c", _ENDED], env=environment, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("", "")
    assert ended.returncode != 0


_FREED = """
import resource
from chunkmill.engine.limits import keep_freed_memory
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        held = [b"x" * 300_000 for _ in range(20)]
        del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults())
keep_freed_memory()
faults()
print(faults())
"""


@pytest.mark.skipif("glibc" not in platform.libc_ver(), reason="another C library keeps memory as it likes")
def test_memory_that_chunks_leave_is_handed_out_again_without_page_faults() -> None:
    ran = subprocess.run([sys.executable, "-c", _FREED], capture_output=True, text=True, check=True)
    before, after = map(int, ran.stdout.split())
    assert after < before / 10


ORPHAN = """
import os, time
from chunkmill.engine.spark.worker_daemon import die_with_the_daemon
if os.fork() == 0:
    die_with_the_daemon()
    print("asleep", flush=True)
    time.sleep(60)
    print("outlived", flush=True)
    os._exit(0)
time.sleep(1)
os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a signal that only Linux has")
def test_a_worker_does_not_outlive_its_daemon() -> None:
    began = time.monotonic()
    ran = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, check=True, timeout=120)
    assert ran.stdout == "asleep\n"
    assert time.monotonic() - began < 50
