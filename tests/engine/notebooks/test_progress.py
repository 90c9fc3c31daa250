"""The progress of a run: drawn where somebody watches, never elsewhere, and gone when the run is."""

from __future__ import annotations

import io
import sys
import threading
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from chunkmill import Chunk, ComponentColumn, LazyChunkStream
from chunkmill.engine.execution import ProgressState, progress_shown
from chunkmill.engine.execution.progress_bar import NotebookBar, ProgressBar


def chunks(count: int = 3) -> list[Chunk]:
    return [Chunk.from_columns(f"/e{i}", [], [ComponentColumn("v", [1.0])]) for i in range(count)]


class Listener:
    def __init__(self) -> None:
        self.states: list[ProgressState] = []
        self.splits = 0

    def started(self, total_splits: int, total_bytes: int) -> None:
        self.splits = total_splits

    def advanced(self, done: ProgressState) -> None:
        self.states.append(done)

    def finished(self, result: object) -> None:
        raise AssertionError("no report is made of chunks in memory")


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A kernel whose displays are collected, in the order in which they come."""
    shown: list[str] = []

    def display(html: Any, display_id: bool) -> Any:
        shown.append(html)
        return SimpleNamespace(update=shown.append)

    ipython = ModuleType("IPython")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())
    ipython.display = ModuleType("IPython.display")
    ipython.display.HTML, ipython.display.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    return shown


def test_a_program_is_shown_nothing_unless_it_asks() -> None:
    with progress_shown(None) as listener:
        assert listener is None
    with progress_shown(False) as listener:
        assert listener is None
    with progress_shown(True) as listener:
        assert isinstance(listener, ProgressBar)
    mine = Listener()
    with progress_shown(mine) as listener:
        assert listener is mine


def test_what_is_no_listener_is_refused() -> None:
    with pytest.raises(TypeError, match="progress: expected True, False, None or a ProgressListener, got 'bar'"):
        LazyChunkStream.from_iter(chunks()).to_chunks(executor="inline", progress="bar")


def test_a_session_is_shown_a_bar_unless_it_says_no(notebook: list[str]) -> None:
    with progress_shown(None) as listener:
        assert isinstance(listener, NotebookBar)
    with progress_shown(False) as listener:
        assert listener is None
    assert notebook == [], "what takes no time is not drawn"


def test_a_notebook_sees_a_bar_and_then_a_line(notebook: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with NotebookBar("<drive>", delay=0.01) as bar:
        bar.started(2, 100)
        bar.advanced(ProgressState(1, 2, 50, 100, 7, 0, 1.0))
        deadline = time.monotonic() + 20
        while not notebook and time.monotonic() < deadline:
            time.sleep(0.01)
    assert "width:50.00%" in notebook[0]
    assert "1/2 splits 50/100 B 7 chunks" in notebook[0]
    assert "&lt;drive&gt;: done in" in notebook[-1]
    assert "7 chunks" in notebook[-1]
    assert "<drive>" not in "".join(notebook)


def test_a_run_that_fails_leaves_no_bar(notebook: list[str]) -> None:
    def slow(chunk: Chunk) -> Chunk:
        deadline = time.monotonic() + 20
        while not notebook and time.monotonic() < deadline:
            time.sleep(0.01)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        LazyChunkStream.from_iter(iter(chunks())).map(slow).to_chunks(executor="inline")
    assert "to_chunks: stopped after" in notebook[-1]
    assert "chunkmill-notebook" not in {thread.name for thread in threading.enumerate()}


def test_chunks_in_this_process_are_counted() -> None:
    mine = Listener()
    assert len(LazyChunkStream.from_iter(chunks(5)).to_chunks(executor="inline", progress=mine)) == 5
    last = mine.states[-1]
    assert (last.splits_done, last.splits_total, last.chunks) == (mine.splits, mine.splits, 5)
    assert last.bytes_done == last.bytes_total


def test_a_terminal_is_left_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with ProgressBar("drive", delay=30.0) as bar:
        bar.started(1, 10)
    assert screen.getvalue() == "", "a short run draws nothing"
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
