"""The progress of a run while it goes on, seen from its staging folder: the same for every executor."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from ..errors import ReadError
from ..reports import RunReport
from .folders import OPEN_SUFFIX, ObjectFolder
from .staging import DONE_SUFFIX, PART_SUFFIX, Staging
from .work import Task


@dataclass(frozen=True, slots=True)
class ProgressState:
    """The state of a run. Bytes done are source bytes of finished splits; bytes written are those in parts."""

    splits_done: int
    splits_total: int
    bytes_done: int
    bytes_total: int
    chunks: int
    bytes_written: int
    seconds: float


class ProgressListener(Protocol):
    """Is told how a run goes; called from one thread at a time."""

    def started(self, total_splits: int, total_bytes: int) -> None:
        """The plan is made and tasks begin."""
        ...

    def advanced(self, done: ProgressState) -> None:
        """Some splits finished, or bytes were written, since the last call."""
        ...

    def finished(self, result: RunReport) -> None:
        """The output is committed."""
        ...


_PERIOD = 0.1
_REMOTE_PERIOD = 1.0


@contextmanager
def watching(staging: Staging | None, tasks: Sequence[Task], listener: ProgressListener | None) -> Iterator[None]:
    """Tell ``listener`` how the tasks get on for as long as the block runs."""
    if listener is None or staging is None:
        yield
        return
    listener.started(len(tasks), sum(t.size for t in tasks))
    watch = _Watch(staging, tasks, listener)
    thread = threading.Thread(target=watch.run, name="chunkmill-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watch.stop.set()
        thread.join()
        watch.look()


class _Watch:
    def __init__(self, staging: Staging, tasks: Sequence[Task], listener: ProgressListener) -> None:
        self.stop = threading.Event()
        self._staging = staging
        self._sizes = [t.size for t in tasks]
        self._listener = listener
        self._done: dict[str, dict[str, int]] = {}
        self._started = time.monotonic()

    def run(self) -> None:
        is_remote = isinstance(self._staging.folder, ObjectFolder)
        while not self.stop.wait(_REMOTE_PERIOD if is_remote else _PERIOD):
            self.look()

    def look(self) -> None:
        """Count the parts and tell the listener."""
        open_bytes = 0
        try:
            for name in self._staging.folder.names():
                if name.endswith(DONE_SUFFIX):
                    if name not in self._done:
                        self._done[name] = json.loads(self._staging.folder.get(name) or b"{}")
                elif name.endswith(PART_SUFFIX + OPEN_SUFFIX):
                    open_bytes += self._staging.folder.size(name)
        except (OSError, ValueError, ReadError):
            return  # a file came or went while we looked; the next look sees it
        done = [d for d in self._done.values() if d]
        tasks = {d["task"] for d in done}
        self._listener.advanced(
            ProgressState(
                splits_done=len(tasks),
                splits_total=len(self._sizes),
                bytes_done=sum(self._sizes[t] for t in tasks),
                bytes_total=sum(self._sizes),
                chunks=sum(d["chunks"] for d in done),
                bytes_written=sum(d["bytes"] for d in done) + open_bytes,
                seconds=time.monotonic() - self._started,
            )
        )
