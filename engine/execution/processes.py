"""Processes by more than their number, so that what a dead one left can be told from what a living one uses."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_DEAD_STATES = ("Z", "X")


def this_process() -> dict[str, Any]:
    """Host, number and time of start of this process, as JSON data."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "started": start_time(os.getpid())}


def is_gone(process: Mapping[str, Any]) -> bool:
    """Whether what :func:`this_process` said elsewhere is of a process that is known to be dead.

    Of one on another host, or in another process namespace where ``process`` has one, nothing is known. Hosts need
    names of their own for that. Raises ``ValueError`` or ``KeyError`` where ``process`` is nothing of that kind.
    """
    pid = int(process["pid"])
    if not 0 < pid < 1 << 31:
        raise ValueError(f"{pid} is no number of a process")
    if process["host"] != socket.gethostname() or process.get("namespace", pid_namespace()) != pid_namespace():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # there is such a process, and it is not ours to signal
    state, started = _state_and_start(pid)
    then = process.get("started")
    return state in _DEAD_STATES or (started is not None and then is not None and started != then)


def start_time(pid: int) -> str | None:
    """When a process started, to tell it from a later one with the same number; None where that is not known."""
    return _state_and_start(pid)[1]


def pid_namespace() -> str | None:
    """The namespace in which this process's number means something: containers have their own."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None


def _state_and_start(pid: int) -> tuple[str | None, str | None]:
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return words[0], words[19]
    except (OSError, IndexError):
        return None, None
