"""The bar that moves while an input is converted."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.progress import Task as RichTask
from rich.table import Column
from rich.text import Text

from ..execution.progress import ProgressState
from ..reports import RunReport
from ..units import part_of_size, size


class _Facts(ProgressColumn):
    """Splits done, bytes read, chunks made, and the rate."""

    def render(self, task: RichTask) -> Text:
        state = task.fields["state"]
        if not isinstance(state, ProgressState):
            return Text("starting")
        rate = state.bytes_done / state.seconds if state.seconds > 0 else 0.0
        return Text(
            f"{state.splits_done}/{state.splits_total} splits  {part_of_size(state.bytes_done, state.bytes_total)}  "
            f"{state.chunks:,} chunks  {size(rate)}/s",
            no_wrap=True,
        )


class ProgressBar:
    """Draws a run on stderr where that is a terminal, and nothing elsewhere.

    A ``ProgressListener``; used as a context manager around the run.
    """

    def __init__(self, label: str, *, quiet: bool = False) -> None:
        self._total = 0
        console = Console(stderr=True)
        self._drawn = console.is_terminal and not quiet
        self._rich = RichProgress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
            BarColumn(bar_width=8),
            _Facts(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID = self._rich.add_task(label, total=None, state=None)

    def __enter__(self) -> Self:
        if self._drawn:
            self._rich.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn:
            self._rich.stop()

    def started(self, total_splits: int, total_bytes: int) -> None:
        """The plan is made; the bar gets its length, in source bytes."""
        self._total = total_bytes
        state = ProgressState(0, total_splits, 0, total_bytes, 0, 0, 0.0)
        self._rich.update(self._task, total=total_bytes or None, state=state)

    def advanced(self, done: ProgressState) -> None:
        """Move the bar."""
        self._rich.update(self._task, completed=min(done.bytes_done, self._total), state=done)

    def finished(self, result: RunReport) -> None:
        """Fill the bar; a line on the result follows it."""
        self._rich.update(self._task, completed=result.bytes_in)
