"""The workers that Spark's daemon forks."""

from __future__ import annotations

import os
import subprocess
import sys

_ENDED = """
import socket, sys
from pyspark import daemon
from chunkmill.engine.execution.worker_daemon import ending_quietly
ours, sparks = socket.socketpair()
sparks.close()
sys.exit(ending_quietly(daemon.worker)(ours, True))
"""


def test_a_worker_whose_socket_spark_has_closed_ends_without_a_word() -> None:
    environment = {**os.environ, "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1"}  # as Spark sets it
    ended = subprocess.run([sys.executable, "-c", _ENDED], env=environment, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("", "")
    assert ended.returncode != 0
