"""The daemon from which Spark's Python workers fork; it has done the imports of every task before.

Spark starts it as ``python -m chunkmill.engine.spark.worker_daemon pyspark.worker``. A worker then begins with its
modules in memory, shared with all others, instead of importing them itself.

Nothing here may start a thread: a fork copies only the forking thread. pyarrow's allocator and numpy's BLAS are
configured not to start threads on import; pyarrow's pools start with the first computation, in the worker.

Spark starts the daemon with its first task, and waits for it. So a standby process is started with the JVM, and has
done its imports when Spark needs the daemon. Spark then starts a small process, which passes its standard streams and
environment through a Unix socket to the standby process. This becomes the daemon. Without a standby process (on a
cluster, for a second daemon, after a crash), the small process becomes the daemon itself. The two end together: the
daemon when Spark closes its standard input, the small process when the daemon closes the socket.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Protocol

from ..limits import keep_freed_memory

_QUIET_IMPORTS = {
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_SET_PARENT_DEATH_SIGNAL = 1
"""A number of Linux's ``prctl``."""

_NEEDED = (
    "pyspark.worker",
    "numpy",
    "pandas",  # pyspark imports it with the first batch of mapInArrow
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.ipc",
    "lz4.block",
    "zstandard",
    "chunkmill.engine.execution.work",
    "chunkmill.engine.execution.sink",
    "chunkmill.engine.stream.operators",
    "chunkmill.engine.rrd",
    "chunkmill.readers",
    "chunkmill.readers.mcap",
    "chunkmill.lenses.ros2",
)

STANDBY_VARIABLE = "CHUNKMILL_STANDBY"
"""The environment variable with the socket of the standby process."""

STANDBY_SOCKET = "standby"
"""The name of the socket in the session's folder."""

_FRAME_LIMIT = 1 << 20
_FOR_WORKERS = {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"), "PYTHONUNBUFFERED": "YES"}
"""Variables that Spark sets for its workers, and Python only reads at its start."""

_STREAMS = (0, 1, 2)


def start_standby(module: str, path: str, where: Path) -> subprocess.Popen[bytes]:
    """Start a standby process.

    Parameters
    ----------
    module
        The daemon's module; it is run with ``--standby``.
    path
        ``PYTHONPATH`` of the workers.
    where
        The socket to make, in a folder that only this user can access.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(where))
        listener.listen(1)
        # Its own process group, so that Ctrl-C only reaches the driver.
        return subprocess.Popen(  # noqa: S603 - our interpreter, our module
            [sys.executable, "-m", module, "--standby", str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_FOR_WORKERS, "PYTHONPATH": path},
            pass_fds=(listener.fileno(),),
            process_group=0,
        )


def end_standby(process: subprocess.Popen[bytes]) -> None:
    """End the process (on standby, or the daemon with all its workers), and wait."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def take_over(listener_number: int) -> bool:
    """Wait on standby, and become the daemon on Spark's request; return False if none comes.

    The driver holds the other end of our standard input. If the input ends first, so does this process.
    """
    import select

    with socket.socket(fileno=listener_number) as listener:
        ready, _, _ = select.select([0, listener.fileno()], [], [])
        if listener.fileno() not in ready:
            return False
        asker, _ = listener.accept()
    size = int.from_bytes(_exactly(asker, 4), "big")
    if size > _FRAME_LIMIT:
        return False
    given, numbers, _, _ = socket.recv_fds(asker, 1, len(_STREAMS))
    if not given or len(numbers) != len(_STREAMS):
        return False
    request = json.loads(_exactly(asker, size))
    for stream, number in zip(_STREAMS, numbers, strict=True):
        os.dup2(number, stream)
        os.close(number)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[1:] = request["arguments"]
    os.chdir(request["folder"])
    asker.sendall(os.getpid().to_bytes(4, "big"))
    # The socket stays open: its end shows that this process has ended.
    asker.detach()
    return True


def hand_over() -> bool:
    """Make the standby process the daemon, and wait until it ends; return False without one."""
    where = os.environ.pop(STANDBY_VARIABLE, None)
    if where is None:
        return False
    request = {"environment": dict(os.environ), "arguments": sys.argv[1:], "folder": os.getcwd()}  # noqa: PTH109
    body = json.dumps(request).encode()
    # Spark's signal to end has to wait until it can be passed on.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asker:
        try:
            asker.connect(where)
            Path(where).unlink(missing_ok=True)
            asker.sendall(len(body).to_bytes(4, "big"))
            socket.send_fds(asker, [b"\0"], list(_STREAMS))
            asker.sendall(body)
            daemon = int.from_bytes(_exactly(asker, 4), "big")
            _relay(daemon)
        except (OSError, EOFError):
            return False
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        for stream in _STREAMS:
            os.close(stream)
        try:
            asker.recv(1)
        except OSError:
            return True
    return True


def _relay(daemon: int) -> None:
    """Pass on the signal by which Spark ends its daemon."""

    def pass_on(number: int, _: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(daemon, number)

    signal.signal(signal.SIGTERM, pass_on)


def _exactly(stream: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = stream.recv(size - len(received))
        if not piece:
            raise EOFError
        received += piece
    return received


class Worker(Protocol):
    """The function that serves tasks from a socket until the command to end."""

    def __call__(self, sock: socket.socket, authenticated: bool) -> int:
        """Return the exit code."""
        ...


def import_ahead() -> None:
    """Import the modules of every task; a missing or failing one is left to the task that needs it."""
    for key, value in _QUIET_IMPORTS.items():
        os.environ.setdefault(key, value)
    keep_freed_memory()
    # Spark puts its core jar on the path; searching it takes longer than the imports.
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(".jar")]
    for name in _NEEDED:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001, S112 - a broken module must break its task, with a message, not the daemon
            continue
    gc.collect()
    gc.freeze()


def die_with_the_daemon() -> None:
    """Make the system kill this worker when its daemon ends: a killed daemon cannot end its workers.

    A worker that sleeps in a user's function would outlive the run.
    """
    with contextlib.suppress(OSError, AttributeError):  # a system other than Linux
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))


def ending_quietly(worker: Worker) -> Worker:
    """Wrap a worker so that it ends quietly when Spark closes its socket, as it does after a minute without work.

    pyspark's own worker tries to report its end to Spark, and prints a traceback, as the socket is closed.
    """

    def run(sock: socket.socket, authenticated: bool) -> int:
        die_with_the_daemon()
        try:
            return worker(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    return run


def main() -> None:
    """Run pyspark's daemon after the imports, here or in the standby process."""
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
