"""The progress bar: what it shows, and that it keeps quiet where nobody looks."""

from __future__ import annotations

import pytest
from chunkmill.engine.execution import ProgressBar
from chunkmill.engine.execution.reporting import ProgressState
from chunkmill.engine.reports import RunReport


def drive(*, quiet: bool = False) -> None:
    """A run of five splits, seen in its middle and at its end."""
    with ProgressBar("drive.mcap", quiet=quiet) as bar:
        bar.started(5, 104_000_000)
        bar.advanced(ProgressState(3, 5, 63_000_000, 104_000_000, 126, 70_000_000, 2.0))
        bar._rich.refresh()
        bar.finished(RunReport(5, 211, 401_155, 104_000_000, 120_000_000, 3.5))


@pytest.fixture
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "90")


@pytest.mark.usefixtures("_terminal")
def test_a_terminal_sees_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    drive()
    out, err = capsys.readouterr()
    assert out == ""
    assert "drive.mcap" in err
    assert "3/5 splits  63.0/104.0 MB  126 chunks  31.5 MB/s" in err


@pytest.mark.usefixtures("_terminal")
def test_quiet_draws_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    drive(quiet=True)
    assert capsys.readouterr() == ("", "")


def test_elsewhere_nothing_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    drive()
    assert capsys.readouterr() == ("", "")
