"""The command line in a real terminal (a pseudo terminal of two widths), and the same through a pipe."""

from __future__ import annotations

import os
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from fcntl import ioctl
from pathlib import Path
from typing import NamedTuple

import pytest
from chunkmill.engine.cli.commands import commands
from click.testing import CliRunner
from rich.cells import cell_len

COMMAND = [sys.executable, "-m", "chunkmill"]
OWNED = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
"""What makes the terminal at standard input that of the session, so that Ctrl-C reaches who is in it."""

PIPELINE = """
import time

def slow(chunk):
    time.sleep({pause})
    return chunk

def pipeline(stream):
    return stream.map(slow)
"""
SEQUENCE = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07)")
HIDDEN, VISIBLE = "\x1b[?25l", "\x1b[?25h"
PATIENCE = 60.0


class Session(NamedTuple):
    """What a terminal saw, and how it was left: the exit code, and whether its settings are as they were."""

    code: int
    seen: str
    is_as_before: bool

    @property
    def lines(self) -> list[str]:
        """Everything that was ever drawn on a line, without what moves the cursor or colours."""
        return re.split(r"[\r\n]+", SEQUENCE.sub("", self.seen).replace("^C", ""))

    @property
    def bars(self) -> list[str]:
        """Every picture of the bar."""
        return [line for line in self.lines if "splits" in line]


def in_terminal(arguments: Sequence[object], columns: int, *, interrupted_at: str = "") -> Session:
    """Run the command in a terminal; with Ctrl-C once that text has come."""
    outer, inner = os.openpty()
    try:
        ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        before = termios.tcgetattr(inner)
        environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR")}
        process = subprocess.Popen(
            [sys.executable, "-c", OWNED, *COMMAND, *map(str, arguments)],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            env={**environment, "TERM": "xterm-256color", "CHUNKMILL_EXECUTOR": "inline"},
        )
        seen, until, ended = b"", time.monotonic() + PATIENCE, False
        while time.monotonic() < until:
            ended = process.poll() is not None
            while select.select([outer], [], [], 0.0 if ended else 0.02)[0]:
                seen += os.read(outer, 1 << 16)
            if ended:
                break
            if interrupted_at and interrupted_at.encode() in seen:
                os.write(outer, b"\x03")
                interrupted_at = ""
        process.kill()
        return Session(process.wait(), seen.decode(), termios.tcgetattr(inner) == before)
    finally:
        os.close(inner)
        os.close(outer)


def conversion(data: Path, folder: Path, *, pause: float) -> list[object]:
    """A command that takes some seconds, by a pipeline of that pause a chunk."""
    (folder / "slow.py").write_text(PIPELINE.format(pause=pause))
    return ["convert", data / "demo.mcap", "-o", folder / "out.rrd", "--pipeline", f"{folder / 'slow.py'}:pipeline"]


@pytest.mark.parametrize("columns", [60, 80])
def test_a_terminal_sees_a_bar_that_fits_and_goes(columns: int, data: Path, tmp_path: Path) -> None:
    session = in_terminal(conversion(data, tmp_path, pause=0.02), columns)
    assert session.code == 0, session.seen
    assert session.bars
    assert [bar for bar in session.bars if cell_len(bar) > columns] == []
    assert session.seen.rindex(VISIBLE) > session.seen.rindex(HIDDEN)
    assert session.is_as_before
    left = SEQUENCE.sub("", session.seen[session.seen.rindex(VISIBLE) :])
    assert "splits" not in left
    assert "out.rrd" in left


def test_ctrl_c_leaves_the_terminal_clean(data: Path, tmp_path: Path) -> None:
    session = in_terminal(conversion(data, tmp_path, pause=0.5), 60, interrupted_at="splits")
    assert session.code == 130, session.seen
    assert session.seen.rindex(VISIBLE) > session.seen.rindex(HIDDEN)
    assert session.is_as_before
    assert "Traceback" not in session.seen
    assert [bar for bar in session.bars if cell_len(bar) > 60] == []
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".pyc") == ["slow.py"]


def test_a_pipe_sees_no_bar(data: Path, tmp_path: Path) -> None:
    arguments = [*COMMAND, *map(str, conversion(data, tmp_path, pause=0.02)), "--executor", "inline"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    assert "\x1b" not in done.stdout + done.stderr
    assert "splits" not in done.stdout + done.stderr
    assert "out.rrd" in done.stdout + done.stderr


@pytest.mark.parametrize("columns", [60, 80])
def test_a_table_fits_the_terminal(columns: int, data: Path) -> None:
    session = in_terminal(["inspect", data / "demo.mcap"], columns)
    assert session.code == 0
    assert "/nissan/gps/duro/imu" in session.seen.replace("\r\n", "")
    said, *rows = session.lines
    assert said.startswith(f"{data / 'demo.mcap'}: MCAP, ")
    assert [row for row in rows if cell_len(row) > columns] == []


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("chunkmill conv", "plain,convert"),
        ("chunkmill convert --optimize ", "plain,object-store"),
        ("chunkmill convert demo.mcap --overw", "plain,--overwrite"),
        ("chunkmill catalog ", "plain,show"),
        ("chunkmill convert dem", "file,dem"),
        ("chunkmill merge a.rrd -o out", "file,out"),
        ("chunkmill sql la", "file,la"),
    ],
)
def test_shells_complete(typed: str, offered: str) -> None:
    words = typed.split(" ")
    settings = {"COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1), "_CHUNKMILL_COMPLETE": "bash_complete"}
    done = CliRunner().invoke(commands, env=settings, prog_name="chunkmill")
    assert offered in done.output.split("\n"), done.output


def test_the_script_for_bash_completes() -> None:
    script = """eval "$(_CHUNKMILL_COMPLETE=bash_source chunkmill)"
COMP_WORDS=(chunkmill quar) COMP_CWORD=1; _chunkmill_completion chunkmill; echo "${COMPREPLY[@]}"
"""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("quarantine\n", 0), done.stderr
