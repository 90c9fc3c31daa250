"""The ways to run Spark on one machine: in this process, in one JVM, in several, and behind Spark Connect."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

DEPLOYMENTS: Final = ("inline", "local[1]", "local[2]", "local-cluster", "standalone", "connect")
_PATIENCE: Final = 120.0


@dataclass
class Deployment:
    """What a driver has to know: the master's URL and its environment; and the processes that run beside it."""

    master: str
    environment: dict[str, str] = field(default_factory=dict)
    processes: list[int] = field(default_factory=list)


@contextmanager
def deployed(name: str, work: Path) -> Iterator[Deployment]:
    """Start what a deployment needs; its logs go to ``work``."""
    if name == "standalone":
        with standalone(work) as found:
            yield found
    elif name == "connect":
        with connect(work) as found:
            yield found
    else:
        yield Deployment("local-cluster[2,1,1024]" if name == "local-cluster" else name)


@contextmanager
def standalone(work: Path) -> Iterator[Deployment]:
    """A standalone master with two workers of one core on loopback."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    master = ["spark-class", f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = ["spark-class", f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g"]
    with _running(master, work / "master.log") as process:
        wait_for_port(port, process)
        first = [*worker, "--work-dir", str(work / "worker-1"), "--webui-port", "0", url]
        second = [*worker, "--work-dir", str(work / "worker-2"), "--webui-port", "0", url]
        with _running(first, work / "worker-1.log") as one, _running(second, work / "worker-2.log") as two:
            _wait_for_text(work / "worker-1.log", "Successfully registered")
            _wait_for_text(work / "worker-2.log", "Successfully registered")
            yield Deployment(url, {"PYSPARK_PYTHON": sys.executable}, [process.pid, one.pid, two.pid])


@contextmanager
def connect(work: Path) -> Iterator[Deployment]:
    """A Spark Connect server with two cores on loopback."""
    port = free_port()
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    conf = {"spark.connect.grpc.binding.port": port, "spark.connect.grpc.binding.address": "127.0.0.1"}
    settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    command = ["spark-submit", "--class", server, "--master", "local[2]", "--conf", "spark.ui.enabled=false", *settings]
    with _running(command, work / "connect.log") as process:
        wait_for_port(port, process)
        yield Deployment(f"sc://127.0.0.1:{port}", {}, [process.pid])


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program of pip's pyspark, on the Java that chunkmill finds, for as long as the block runs."""
    import pyspark
    from chunkmill.engine.spark.jvm import find_java
    from chunkmill.engine.spark.launch import launchable

    home = Path(pyspark.__file__).parent
    java = log.with_suffix(".java")
    shutil.rmtree(java, ignore_errors=True)
    environment = {
        **os.environ,
        "JAVA_HOME": str(launchable(find_java(), java)),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as out:
        words = [str(home / "bin" / command[0]), *command[1:]]
        process = subprocess.Popen(words, env=environment, stdout=out, stderr=out, cwd=log.parent)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return when somebody listens on a port of loopback; ``TimeoutError`` when ``process`` ends before."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"nothing listens on port {port}")


def _wait_for_text(log: Path, text: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        if text in log.read_text(errors="replace"):
            return
        time.sleep(0.2)
    raise TimeoutError(f"{log} does not say {text!r}")
