"""One paragraph and an exit code for everything that can go wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from chunkmill.engine.cli.complaints import paragraph, reported, show
from chunkmill.engine.errors import ReadError, UsageError, WriteError
from chunkmill.engine.locations import located


def outcome(error: BaseException, capsys: pytest.CaptureFixture[str], *, debug: bool = False) -> tuple[int, str]:
    """The exit code and what stands on stderr after ``error`` happened in a command."""
    with pytest.raises(click.exceptions.Exit) as caught, reported(debug=debug):
        raise error
    return caught.value.exit_code, capsys.readouterr().err


def test_an_error_is_one_paragraph(capsys: pytest.CaptureFixture[str]) -> None:
    error = ReadError("the file ends inside a chunk", path="drive.mcap", offset=1234, hint="Copy it again.")
    code, text = outcome(error, capsys)
    assert code == 1
    assert text == "chunkmill: error: CM101: drive.mcap: the file ends inside a chunk (at byte 1,234). Copy it again.\n"


def test_bad_usage_has_its_own_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(UsageError("no such thing"), capsys)[0] == 2


def test_a_message_of_many_lines_becomes_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = outcome(WriteError("first\n\tat org.apache.spark\x1b[31m\nlast"), capsys)
    assert (code, text) == (1, "chunkmill: error: CM201: first at org.apache.spark[31m last.\n")


def test_a_defect_is_called_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = outcome(KeyError("'x'\n  File y"), capsys)
    assert code == 1
    assert text.count("\n") == 1
    assert "KeyError" in text
    assert "--debug" in text
    assert "Traceback" not in text


def test_debug_shows_the_trace(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = outcome(KeyError("x"), capsys, debug=True)
    assert text.startswith("Traceback")


TERMINATED = """
import os, signal, sys
import click
from chunkmill.engine.cli.complaints import reported

try:
    with reported(debug=False):
        os.kill(os.getpid(), signal.SIGTERM)
except click.exceptions.Exit as ended:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    sys.exit(ended.exit_code)
"""


def test_interruption_and_termination_have_the_usual_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(KeyboardInterrupt(), capsys)[0] == 130
    done = subprocess.run([sys.executable, "-c", TERMINATED], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 143, done.stderr
    assert "terminated" in done.stderr


def test_errors_of_the_system_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory") as caught:
        (tmp_path / "gone").read_bytes()
    assert paragraph(caught.value) == f"CM001: {tmp_path / 'gone'}: no such file or directory."
    assert "memory" in paragraph(MemoryError())


def test_a_line_begins_with_the_code_whatever_the_error_is(capsys: pytest.CaptureFixture[str]) -> None:
    place = located("/data/a.mcap")
    for error, number in (
        (ReadError("is cut"), "CM101"),
        (ReadError("is cut", path=str(place)), "CM101"),
        (OSError(5, "I/O error"), "CM001"),
        (KeyError("a"), "CM001"),
    ):
        show(error, debug=False, path=place)
        line = capsys.readouterr().err
        assert line.startswith(f"chunkmill: error: {number}: {place}: ")
        assert line.count("CM") == line.count("a.mcap") == 1
