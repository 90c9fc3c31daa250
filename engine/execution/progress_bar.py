"""The progress of a run as a bar on a terminal, or below a notebook cell."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import TracebackType
from typing import Any, Final, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.progress import Task as RichTask
from rich.table import Column
from rich.text import Text

from ..markup import bar, panel, shown
from ..reports import RunReport
from ..units import counted, duration, part_of_size, size
from .reporting import ProgressListener, ProgressState

_SHORTEST: Final = 0.5
"""Seconds before a bar is drawn: shorter runs need none."""

_PERIOD: Final = 0.25
"""Seconds between two pictures in a notebook, which are all sent to a browser and kept."""


def facts_of(state: ProgressState | None, *, of_rows: bool = False) -> str:
    """Splits done, bytes read, chunks made, and the rate; with ``of_rows`` sizes are numbers of rows.

    >>> facts_of(ProgressState(3, 5, 63_000_000, 104_000_000, 126, 70_000_000, 2.0))
    '3/5 splits  63.0/104.0 MB  126 chunks  31.5 MB/s'
    >>> facts_of(ProgressState(3, 5, 1800, 3000, 0, 0, 2.0), of_rows=True)
    '3/5 tasks  1,800/3,000 rows  900 rows/s'
    """
    if state is None:
        return "starting"
    rate = state.bytes_done / state.seconds if state.seconds > 0 else 0.0
    if of_rows:
        tasks = f"{state.splits_done}/{state.splits_total} tasks"
        return f"{tasks}  {state.bytes_done:,}/{state.bytes_total:,} rows  {rate:,.0f} rows/s"
    return (
        f"{state.splits_done}/{state.splits_total} splits  {part_of_size(state.bytes_done, state.bytes_total)}  "
        f"{state.chunks:,} chunks  {size(rate)}/s"
    )


class _Facts(ProgressColumn):
    def __init__(self, *, of_rows: bool) -> None:
        super().__init__()
        self._of_rows = of_rows

    def render(self, task: RichTask) -> Text:
        return Text(facts_of(task.fields["state"], of_rows=self._of_rows), no_wrap=True)


class ProgressBar:
    """Draws the progress of a run on stderr, if that is a terminal.

    A ``ProgressListener``; used as a context manager around the run. Nothing is drawn in the first ``delay`` seconds.
    """

    def __init__(self, label: str, *, quiet: bool = False, delay: float = 0.0, of_rows: bool = False) -> None:
        self._total = 0
        console = Console(stderr=True)
        self._drawn = console.is_terminal and not quiet
        self._delayed = threading.Timer(delay, self._start) if delay else None
        self._rich = RichProgress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
            BarColumn(bar_width=8),
            _Facts(of_rows=of_rows),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID = self._rich.add_task(label, total=None, state=None)

    def _start(self) -> None:
        self._rich.start()

    def __enter__(self) -> Self:
        if self._drawn:
            if self._delayed is None:
                self._start()
            else:
                self._delayed.daemon = True
                self._delayed.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn:
            if self._delayed is not None:
                self._delayed.cancel()
                self._delayed.join()
            self._rich.stop()

    def started(self, total_splits: int, total_bytes: int) -> None:
        """Set the length of the bar, in source bytes."""
        self._total = total_bytes
        state = ProgressState(0, total_splits, 0, total_bytes, 0, 0, 0.0)
        self._rich.update(self._task, total=total_bytes or None, state=state)

    def advanced(self, done: ProgressState) -> None:
        """Move the bar."""
        self._rich.update(self._task, completed=min(done.bytes_done, self._total), state=done)

    def finished(self, result: RunReport) -> None:
        """Fill the bar, and print a line with the result."""
        self._rich.update(self._task, completed=result.bytes_in)


class _Display(Protocol):
    """The handle of an IPython output."""

    def update(self, obj: Any) -> None: ...


class NotebookBar:
    """Draws a run's progress below a notebook cell, and leaves a line with the result. A ``ProgressListener``."""

    def __init__(self, label: str, delay: float = _SHORTEST, *, of_rows: bool = False) -> None:
        self._label = label
        self._of_rows = of_rows
        self._delay = delay
        self._state: ProgressState | None = None
        self._handle: _Display | None = None
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._draw_all, name="chunkmill-notebook", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        if self._handle is not None:
            self._draw(self._last_line("done in" if kind is None else "stopped after"))

    def started(self, total_splits: int, total_bytes: int) -> None:
        """Begin to draw."""
        self._state = ProgressState(0, total_splits, 0, total_bytes, 0, 0, 0.0)

    def advanced(self, done: ProgressState) -> None:
        """Keep the state for the next picture."""
        self._state = done

    def finished(self, result: RunReport) -> None:
        """Do nothing: the end of the block shows the result."""

    def _draw_all(self) -> None:
        pause = self._delay
        while not self._ended.wait(pause):
            self._draw(self._picture())
            pause = _PERIOD

    def _picture(self) -> str:
        state = self._state
        part = state.bytes_done / state.bytes_total if state is not None and state.bytes_total else 0.0
        passed = duration(time.monotonic() - self._began)
        drawn = f'<div class="bar"><span class="track">{bar(part)}</span></div>'
        return panel(self._label, [], drawn, f"<p>{shown(facts_of(state, of_rows=self._of_rows))}  {passed}</p>")

    def _last_line(self, word: str) -> str:
        done = self._state
        made = (
            "" if done is None else counted(done.bytes_done, "row") if self._of_rows else counted(done.chunks, "chunk")
        )
        return panel("", [f"{self._label}: {word} {duration(time.monotonic() - self._began)}", made])

    def _draw(self, picture: str) -> None:
        shows: Any = import_module("IPython.display")
        if self._handle is None:
            self._handle = shows.display(shows.HTML(picture), display_id=True)
        else:
            self._handle.update(shows.HTML(picture))


def in_notebook() -> bool:
    """Return whether this process is a kernel, whose outputs a notebook shows."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


@contextmanager
def drawn(label: str, *, of_rows: bool = False) -> Iterator[ProgressListener]:
    """Draw a bar during the block if this process is visible: in a notebook, or on a terminal."""
    made: NotebookBar | ProgressBar = (
        NotebookBar(label, of_rows=of_rows) if in_notebook() else ProgressBar(label, delay=_SHORTEST, of_rows=of_rows)
    )
    with made:
        yield made
