"""Many jobs as one query over what there is, which goes on where it was cut."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from ..errors import SessionError
from ..execution.stage import RunOptions
from ..failing import writing
from ..recordings.lease import Lease
from ..spark import Terminated
from .checkpoint import Checkpoint
from .files import LandedFile
from .landing_log import LandingLog

ENTRY_JOBS: Final = 64
"""Jobs of one entry: what is lost at most when a run is cut, beside what runs at that moment."""

_DONE: Final = "done.jsonl"
_WAIT: Final = 0.05
_STALE_SECONDS: Final = 7 * 86400.0

T = TypeVar("T")

Work = Callable[[Sequence[T]], Iterator[tuple[T, bool]]]
"""Does some jobs, and gives each as soon as it is done, with whether it succeeded."""


class JobQuery:
    """Runs jobs on Spark as a Structured Streaming query with an AvailableNow trigger; inline, and in a Spark Connect
    session, as a loop like it.

    ``checkpoint`` is a folder of this command alone. It has a log of the jobs, entry by entry, and a journal of those
    that succeeded; a run that was cut is gone on with by the next with the same checkpoint. When all jobs have
    succeeded it is removed.
    """

    def __init__(self, checkpoint: Path, run: RunOptions) -> None:
        self._checkpoint = Checkpoint(checkpoint)
        self._folder = checkpoint
        self._run = run
        self._error: BaseException | None = None

    def run(self, jobs: Mapping[LandedFile, T], is_there: Callable[[T], bool], work: Work[T]) -> list[T]:
        """Do the jobs that are not done; gives those that were done by an earlier run, whose results are still there.

        A job is known by its file's path, size and time of modification. Raises what ``work`` raises; then, and when
        it is interrupted, what succeeded is remembered.
        """
        with writing(str(self._folder)):
            self._folder.mkdir(parents=True, exist_ok=True)
        _remove_stale(self._folder)
        with Lease.take(self._folder, "convert"):
            known = self._journal()
            done = {file for file, job in jobs.items() if file in known and is_there(job)}
            todo = {file: job for file, job in jobs.items() if file not in done}
            failed = self._run_all(todo, work)
        if not failed or not self._journal():
            shutil.rmtree(self._folder, ignore_errors=True)
            if not any(self._folder.parent.iterdir()):
                self._folder.parent.rmdir()
        return [jobs[file] for file in jobs if file in done]

    def _run_all(self, todo: Mapping[LandedFile, T], work: Work[T]) -> int:
        """Do all jobs, and give how many failed."""
        log = LandingLog(self._checkpoint.landing)
        start = log.newest()
        files = list(todo)
        for first in range(0, len(files), ENTRY_JOBS):
            log.append(files[first : first + ENTRY_JOBS])
        failed = 0
        of_job = {id(job): file for file, job in todo.items()}
        with (self._folder / _DONE).open("a", encoding="utf-8") as journal:

            def handle(number: int, entry: Sequence[LandedFile]) -> None:
                nonlocal failed
                if number <= start:
                    return  # of a run that was cut: what was not done then is in an entry of this one
                for job, succeeded in work([todo[file] for file in entry if file in todo]):
                    failed += not succeeded
                    if succeeded:
                        file = of_job[id(job)]
                        journal.write(json.dumps([file.path, file.size, file.modified_ns]) + "\n")
                        journal.flush()

            if not self._can_stream():
                for number in range(start + 1, log.newest() + 1):
                    handle(number, log.files(number))
            elif files:
                self._run_on_spark(handle, start)
            os.fsync(journal.fileno())
        return failed

    def _can_stream(self) -> bool:
        """Whether there is a Structured Streaming query to run them: a Spark Connect server could not call us back."""
        if self._run.executor == "inline":
            return False
        from ..spark import running_session
        from .spark_query import is_connect

        return not is_connect(running_session(self._run.master, self._run.conf))

    def _run_on_spark(self, handle: Callable[[int, Sequence[LandedFile]], None], start: int) -> None:
        from .spark_query import SparkQuery

        newest = LandingLog(self._checkpoint.landing).newest()
        reached = start

        def handled(number: int, entry: Sequence[LandedFile]) -> None:
            nonlocal reached
            handle(number, entry)
            reached = max(reached, number)

        query = SparkQuery(self._checkpoint, handled, self._run, once=True, start=start)
        try:
            while not query.wait(_WAIT):
                pass
        except (KeyboardInterrupt, Terminated):
            query.interrupt()
            raise
        finally:
            query.stop()
        if reached < newest:
            raise SessionError(
                "the streaming query ended before all its jobs were done",
                hint=f"Remove {self._folder}, and run the same command again.",
            )

    def _journal(self) -> set[LandedFile]:
        """What earlier runs did; a last line that was cut counts for nothing."""
        path = self._folder / _DONE
        found: set[LandedFile] = set()
        if path.exists():
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    name, size, modified = json.loads(line)
                    found.add(LandedFile(str(name), int(size), int(modified)))
                except (ValueError, TypeError):
                    continue
        return found


def _remove_stale(folder: Path) -> None:
    """Remove checkpoints of other commands that were cut long ago, and never run again."""
    for other in folder.parent.iterdir():
        if other != folder and other.is_dir() and time.time() - other.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
