"""The display of a run: the bar while inputs are converted, the line on each, and what ``--stats`` prints."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.progress import Task as RichTask
from rich.table import Column, Table
from rich.text import Text

from ..execution import ProgressState
from ..reports import RunReport
from ..units import duration, part_of_size, size


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


_MEANINGS = {
    "plan": "sources opened and divided",
    "start": "until the first task began",
    "read": "from the source, decompressed and checked",
    "decode": "made into columns",
    "operate": "filters, lenses, functions",
    "encode": "made into compressed messages",
    "write": "to parts, made durable",
    "other": "the rest of the tasks",
    "commit": "parts joined and committed",
}


def print_stats(report: RunReport, chosen: str = "") -> None:
    """Print the report on stderr; ``chosen``: why it ran where it did, if that was left open."""
    console = Console(stderr=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("phase")
    table.add_column("seconds", justify="right")
    table.add_column("", justify="right")
    table.add_column("")
    total = sum(seconds for _, seconds in report.shares()) or 1.0
    for name, seconds in report.shares():
        table.add_row(name, f"{seconds:.3f}", f"{100 * seconds / total:.0f} %", _MEANINGS[name])
    console.print(table)
    for line in [*_lines(report), *([f"executor {report.executor}; {chosen}"] if chosen else [])]:
        console.print(line, highlight=False, soft_wrap=True)


def _lines(report: RunReport) -> list[str]:
    """Figures below the table.

    >>> for line in _lines(RunReport(2, 18, 3513, 782_496, 1_204_000, 1.25, bytes_passed=700_000)):
    ...     print(line)
    2 tasks in 1.2 s, together 0.00 s; the longest took 0.0 times the median
    782.5 kB -> 1.2 MB, of them 700.0 kB passed through undecoded; 3,513 rows in 18 chunks
    """
    tasks = (
        f"{report.splits:,} tasks in {duration(report.seconds)}, together {duration(report.task_seconds)}; "
        f"the longest took {report.skew:.1f} times the median"
    )
    data = (
        f"{size(report.bytes_in)} -> {size(report.bytes_out)}, of them {size(report.bytes_passed)} passed through "
        f"undecoded; {report.rows:,} rows in {report.chunks:,} chunks"
    )
    return [tasks, data]
