"""The staging folder of a run: parts lie there until the one commit, and nothing is left when the run ends.

It stands beside the destination, so that the commit's rename stays within one file system, and carries the name of
its owner, so that what a killed run left behind is cleared away by the next one onto the same destination.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import time
from pathlib import Path
from types import TracebackType

from ..failing import writing

_MARK = ".chunkmill-"
_OWNER = "owner.json"
_FAILED = "failed"
_GRACE_SECONDS = 60.0


class Staging:
    """A folder for the parts of one run; removed when the ``with`` block ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def beside(cls, destination: Path) -> Staging:
        """A new staging folder beside ``destination``; folders of dead runs onto it are removed first."""
        prefix = f".{destination.name}{_MARK}"
        for left in destination.parent.glob(f"{_escaped(prefix)}*"):
            if _is_abandoned(left):
                shutil.rmtree(left, ignore_errors=True)
        return cls._make(destination.parent / f"{prefix}{secrets.token_hex(6)}", destination)

    @classmethod
    def within(cls, scratch: Path) -> Staging:
        """A new staging folder in a scratch folder, for results that stay there."""
        with writing(str(scratch)):
            scratch.mkdir(parents=True, exist_ok=True)
        return cls._make(scratch / f"run{_MARK}{secrets.token_hex(6)}", scratch)

    @classmethod
    def _make(cls, folder: Path, destination: Path) -> Staging:
        with writing(str(destination)):
            folder.mkdir(parents=False)
            owner = {"host": socket.gethostname(), "pid": os.getpid(), "started": _start_time(os.getpid())}
            (folder / _OWNER).write_text(json.dumps(owner))
        return cls(folder)

    def mark_failed(self, group: int = 0) -> None:
        """Tell the tasks of a group that have not begun that they need not."""
        try:
            (self.folder / f"{_FAILED}-{group}").touch()
        except OSError:
            return  # a full disk: the other tasks find out by themselves

    def has_failed(self, group: int = 0) -> bool:
        """Whether a task of this group failed."""
        return (self.folder / f"{_FAILED}-{group}").exists()

    def remove(self) -> None:
        """Remove the folder and all in it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Staging:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _start_time(pid: int) -> str | None:
    """When a process started, to tell it from a later one with the same number; None where that is not known."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _is_abandoned(folder: Path) -> bool:
    """Whether the run that made ``folder`` is known to be dead; a run on another host is left alone."""
    try:
        if not (folder / _OWNER).exists():
            return time.time() - folder.stat().st_mtime > _GRACE_SECONDS
        owner = json.loads((folder / _OWNER).read_text())
        if owner["host"] != socket.gethostname():
            return False
        pid = int(owner["pid"])
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, KeyError):
        return False
    return bool(owner.get("started") != _start_time(pid))
