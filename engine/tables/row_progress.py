"""The progress of a run over its stages, in rows."""

from __future__ import annotations

import time
from dataclasses import replace

from ..execution import ProgressListener, ProgressState, RunOptions
from ..reports import RunReport


class RowProgress:
    """Tells a listener of all stages of a run as of one, whose size is the ``rows`` that it computes.

    ``steps`` are the rows that its stages go through: more where few of them are asked for, or several functions
    are called.
    """

    def __init__(self, listener: ProgressListener, rows: int, steps: int) -> None:
        self._listener = listener
        self._rows = rows
        self._steps = max(steps, 1)
        self._passed = 0
        self._tasks = self._earlier_tasks = 0
        self._began = time.monotonic()
        listener.started(0, rows)

    def started(self, total_splits: int, total_bytes: int) -> None:
        """Another stage begins."""
        del total_bytes
        self._earlier_tasks, self._tasks = self._tasks, self._tasks + total_splits

    def advanced(self, done: ProgressState) -> None:
        """A stage went on, whose sizes are rows."""
        rows = min((self._passed + done.bytes_done) * self._rows // self._steps, self._rows)
        seconds = time.monotonic() - self._began
        tasks = self._earlier_tasks + done.splits_done
        self._listener.advanced(
            replace(
                done,
                splits_done=tasks,
                splits_total=self._tasks,
                bytes_done=rows,
                bytes_total=self._rows,
                seconds=seconds,
            )
        )

    def finished(self, result: RunReport) -> None:
        """Nothing: the run has no report of its own."""

    def passed(self, rows: int) -> None:
        """Count rows that a stage is done with."""
        self._passed += rows


def rows_shown(run: RunOptions, rows: int, steps: int) -> RunOptions:
    """The same options, whose listener is told of all stages of a run as of one, as :class:`RowProgress` does."""
    return run if run.progress is None else replace(run, progress=RowProgress(run.progress, rows, steps))
