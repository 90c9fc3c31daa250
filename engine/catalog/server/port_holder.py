"""The process that has a port, for the error that a second server gives."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_LISTENS: Final = "0A"


def port_holder(port: int) -> str:
    """The process that listens on a TCP port, as ``process 12 (python server.py)``; empty where it cannot be seen.

    Read from Linux's ``/proc``: processes of other users stay unseen, and so do all on other systems.
    """
    sockets = {f"socket:[{inode}]" for name in ("tcp", "tcp6") for inode in _listening(Path("/proc/net") / name, port)}
    if not sockets:
        return ""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(handle.readlink()) in sockets for handle in (process / "fd").iterdir()):
                words = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                return f"process {process.name} ({' '.join(words).strip()[:120]})"
        except OSError:
            continue
    return ""


def _listening(table: Path, port: int) -> list[str]:
    try:
        rows = [line.split() for line in table.read_text().splitlines()[1:]]
    except OSError:
        return []
    return [row[9] for row in rows if row[3] == _LISTENS and int(row[1].rpartition(":")[2], 16) == port]
