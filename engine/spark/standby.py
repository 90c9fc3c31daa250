"""A worker daemon that stands by: started beside the JVM, its imports done, when Spark asks for a daemon.

Spark starts the daemon of the Python workers with its first task, and waits for it. What it starts here is a small
process that hands its standard streams and its environment over a Unix socket to one that has been importing since
the session began; that one becomes the daemon. Where none stands by (a cluster, a second daemon, one that has died)
the small process does the work itself.

The two live and die together: the daemon ends when Spark closes its standard input, the small process when the
daemon has closed the socket.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import FrameType

STANDBY_VARIABLE = "CHUNKMILL_STANDBY"
"""The environment variable that names the socket of the process that stands by."""

STANDBY_SOCKET = "standby"
"""The name of the socket in the session's folder."""

_FRAME_LIMIT = 1 << 20
_FOR_WORKERS = {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"), "PYTHONUNBUFFERED": "YES"}
"""What Spark gives its workers and Python reads once, when it starts."""

_STREAMS = (0, 1, 2)


def start_standby(module: str, path: str, where: Path) -> subprocess.Popen[bytes]:
    """Start a process that stands by.

    Parameters
    ----------
    module
        The daemon's module; it is run with ``--standby``.
    path
        ``PYTHONPATH`` of the workers.
    where
        The socket to make, in a folder that nobody else can enter.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(where))
        listener.listen(1)
        # A process group of its own, so that Ctrl-C is the driver's alone.
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
    """End it, whether it still stands by or has become the daemon, then with all its workers; and wait."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def take_over(listener_number: int) -> bool:
    """Wait in the process that stands by, and become the daemon that Spark has asked for; False when nobody asks.

    The driver holds the other end of our standard input: when that ends first, so do we.
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
    # The socket stays open, and tells by its end that this process has ended.
    asker.detach()
    return True


def hand_over() -> bool:
    """Make the process that stands by the daemon, and wait as long as it lives; False where none stands by."""
    where = os.environ.pop(STANDBY_VARIABLE, None)
    if where is None:
        return False
    request = {"environment": dict(os.environ), "arguments": sys.argv[1:], "folder": os.getcwd()}  # noqa: PTH109
    body = json.dumps(request).encode()
    # Spark's signal to end has to wait until there is somebody to pass it on to.
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
