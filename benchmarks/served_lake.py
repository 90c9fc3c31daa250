"""Servers in processes of their own, for benchmarks to call."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

SCRIPTS = Path(sys.executable).parent
WAIT = 60


class Served(NamedTuple):
    """A server that runs: its address, its process, and the seconds until it took a connection."""

    url: str
    process: int
    seconds: float


@contextmanager
def served(log: Path, *command: str | Path) -> Iterator[Served]:
    """The server that a command starts, given a free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    began = time.perf_counter()
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)], stdout=out, stderr=out, start_new_session=True
        )
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if process.poll() is not None or time.perf_counter() > began + WAIT:
                    raise RuntimeError(log.read_text()) from None
                time.sleep(0.02)
        yield Served(f"rerun+http://127.0.0.1:{port}", process.pid, time.perf_counter() - began)
    finally:
        os.killpg(process.pid, signal.SIGTERM)  # Rerun's command starts its server as a child, and leaves it
        process.wait(WAIT)
