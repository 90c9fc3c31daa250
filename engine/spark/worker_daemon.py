"""The daemon that Spark's Python workers fork from, with everything that a task needs imported before the fork.

Spark starts it as ``python -m chunkmill.engine.spark.worker_daemon pyspark.worker``. A worker then begins with
its modules in memory, shared with all others, instead of importing them itself, one after another for each core.

Nothing here may start a thread: a fork copies only the one that forks. pyarrow's allocator and numpy's BLAS would
start theirs on import and are told not to; pyarrow's pools start with the first computation, in the worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import signal
import sys
from socket import socket
from typing import Protocol

from .standby import hand_over, take_over

_QUIET_IMPORTS = {
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
"""Numbers of glibc's ``mallopt``."""

_SET_PARENT_DEATH_SIGNAL = 1
"""A number of Linux's ``prctl``."""

_NEEDED = (
    "pyspark.worker",
    "numpy",
    "pandas",  # for mapInArrow: pyspark imports it with the first batch
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.ipc",
    "lz4.block",
    "zstandard",
    "chunkmill.engine.execution.work",
    "chunkmill.engine.execution.rrd_sink",
    "chunkmill.engine.stream.operators",
    "chunkmill.engine.rrd",
    "chunkmill.readers",
    "chunkmill.readers.mcap",
    "chunkmill.lenses.ros2",
)


def keep_freed_memory() -> None:
    """Let glibc hand out again what was freed, up to 64 MiB, instead of giving it back to the system at once.

    Buffers of a few hundred kB come and go with every chunk, and each page of them cost a fault again: 74,000 in an
    optimised collect of 400 MB, now 12,000 (``benchmarks/bench_rrd.py``).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    mallopt(_MMAP_THRESHOLD, 32 << 20)
    mallopt(_TRIM_THRESHOLD, 64 << 20)


class Worker(Protocol):
    """The function that serves tasks that come through a socket, until it is told to end."""

    def __call__(self, sock: socket, authenticated: bool) -> int:
        """Its exit code."""
        ...


def import_ahead() -> None:
    """Import what every task needs; a module that is not there, or that fails, is left to the task that wants it."""
    for key, value in _QUIET_IMPORTS.items():
        os.environ.setdefault(key, value)
    keep_freed_memory()
    # Spark puts its core jar on the path; looking for modules in it costs more than importing them.
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(".jar")]
    for name in _NEEDED:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001, S112 - a broken module must break its task, with a message, not the daemon
            continue
    gc.collect()
    gc.freeze()


def die_with_the_daemon() -> None:
    """Have the system kill this worker when its daemon is gone, which may be killed before it can tell its workers.

    One that sleeps in a user's function would outlive the run.
    """
    with contextlib.suppress(OSError, AttributeError):  # another system than Linux
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))


def ending_quietly(worker: Worker) -> Worker:
    """A worker that ends when Spark has closed its socket, as it does to one that had nothing to do for a minute.

    pyspark's own tries to tell Spark why it ends, and prints a traceback, as nobody is there any more.
    """

    def run(sock: socket, authenticated: bool) -> int:
        die_with_the_daemon()
        try:
            return worker(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    return run


def main() -> None:
    """Run pyspark's daemon after the imports, here or in the process that stands by."""
    if sys.argv[1:2] == ["--standby"]:
        import_ahead()
        if not take_over(int(sys.argv[2])):
            return
    elif hand_over():
        return
    else:
        import_ahead()
    from pyspark import daemon

    daemon.worker = ending_quietly(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()
