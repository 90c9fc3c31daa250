"""The command line in a real terminal (a pseudo terminal of two widths), and the same through a pipe."""

from __future__ import annotations

import os
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from fcntl import ioctl
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from chunkmill.engine.cli.commands import commands
from click.testing import CliRunner
from places import REPOSITORY
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


def offers(shell: str, typed: str) -> set[tuple[str, ...]]:
    """The kinds and values that a shell is offered at the end of a line."""
    line = typed.replace("=", " = ") if shell == "bash" else typed
    words = line.split(" ")
    position = words[-1] if shell == "fish" else str(len(words) - 1)
    settings = {"COMP_WORDS": line, "COMP_CWORD": position, "_CHUNKMILL_COMPLETE": f"{shell}_complete"}
    done = CliRunner().invoke(commands, env=settings, prog_name="chunkmill")
    lines = done.output.split("\n")[:-1]
    if shell == "zsh":
        return set(zip(lines[::3], lines[1::3], strict=True))
    return {tuple(line.split("\t")[0].split(",", 1)) for line in lines}


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("chunkmill conv", "plain,convert"),
        ("chunkmill convert --optimize ", "plain,object-store"),
        ("chunkmill convert --optimize=obj", "plain,object-store"),
        ("chunkmill convert demo.mcap --overw", "plain,--overwrite"),
        ("chunkmill catalog ", "plain,show"),
        ("chunkmill convert dem", "file,dem"),
        ("chunkmill convert --conf a=b dem", "file,dem"),
        ("chunkmill merge a.rrd -o out", "file,out"),
        ("chunkmill merge a.rrd --output=out", "file,out"),
        ("chunkmill serve token lake --token-folder out", "dir,out"),
        ("chunkmill sql la", "file,la"),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_offered_words_and_files(shell: str, typed: str, offered: str) -> None:
    assert tuple(offered.split(",")) in offers(shell, typed)


def test_every_argument_of_files_completes_files() -> None:
    def params(command: click.Command) -> Iterator[click.Parameter]:
        yield from command.get_params(click.Context(command))
        for inner in command.commands.values() if isinstance(command, click.Group) else ():
            yield from params(inner)

    places = [param for param in params(commands) if re.search("FILE|FOLDER|PLACE|DEST", param.metavar or "")]
    assert len(places) > 25
    offered = {param.opts[-1]: param.type.shell_complete(click.Context(commands), param, "a") for param in places}
    assert [name for name, items in offered.items() if {item.type for item in items} not in ({"file"}, {"dir"})] == []


def test_descriptions_are_whole() -> None:
    """The script for fish leaves their commas to it, and that for zsh their colons."""
    for shell, line in (("fish", "plain,quarantine\tShow, retry or drop"), ("zsh", "quarantine\nShow, retry or drop")):
        settings = {"COMP_WORDS": "chunkmill quar", "_CHUNKMILL_COMPLETE": f"{shell}_complete"}
        settings["COMP_CWORD"] = "quar" if shell == "fish" else "1"
        assert line in CliRunner().invoke(commands, env=settings, prog_name="chunkmill").output


SHOWS_ITS_LINE = {
    "bash": """show() { printf '<%s>\\n' "$READLINE_LINE"; READLINE_LINE=; }; bind -x '"\\C-t": show'""",
    "zsh": """show() { print -r -- "<$BUFFER>"; BUFFER= }; zle -N show; bindkey '^T' show""",
    "fish": """function show; printf '<%s>\\n' (commandline); commandline ''; end; bind \\ct show""",
}
"""What makes a shell print the line that is being edited, and clear it, at Ctrl-T."""

COMPLETED = {
    "chunkmill quar": "chunkmill quarantine ",
    "chunkmill convert demo.mcap --overw": "chunkmill convert demo.mcap --overwrite ",
    "chunkmill convert --optimize obj": "chunkmill convert --optimize object-store ",
    "chunkmill convert --optimize=obj": "chunkmill convert --optimize=object-store ",
    "chunkmill inspect my": "chunkmill inspect my\\ drive.mcap ",
    "chunkmill inspect ~/my": "chunkmill inspect ~/my\\ drive.mcap ",
    "chunkmill merge a.rrd --output=la": "chunkmill merge a.rrd --output=lake/",
    "chunkmill serve token lake --token-folder la": "chunkmill serve token lake --token-folder lake/",
}


@pytest.mark.heavy
@pytest.mark.parametrize("shell", SHOWS_ITS_LINE)
def test_a_shell_completes_as_the_page_shows(shell: str, tmp_path: Path) -> None:
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "my drive.mcap").touch()
    (tmp_path / "lake").mkdir()
    page = (REPOSITORY / "docs" / "command_line.md").read_text()
    for line, place in re.findall(r"^(\S.+?) +# ~/([\w./]+\w)", page, re.MULTILINE):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        with (tmp_path / place).open("a") as file:
            file.write(f"{line}\n")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    outer, inner = os.openpty()
    ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", OWNED, program, "-i"],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        start_new_session=True,
        cwd=tmp_path,
        env={"PATH": path, "HOME": str(tmp_path), "TERM": "xterm", "LANG": "C.UTF-8"},
    )

    def typed(keys: str, expected: str) -> str:
        os.write(outer, keys.encode())
        seen, until = "", time.monotonic() + PATIENCE
        while (found := re.search(expected, seen)) is None and time.monotonic() < until:
            if select.select([outer], [], [], 0.1)[0]:
                seen += os.read(outer, 1 << 16).decode(errors="replace")
        assert found is not None, seen
        return found[1]

    try:
        typed(f"{SHOWS_ITS_LINE[shell]}; echo rea''dy\r", "(ready)\r")
        assert {line: typed(f"{line}\t\x14", r"<(chunkmill [^<]*)>") for line in COMPLETED} == COMPLETED
    finally:
        process.kill()
        process.wait()
        os.close(inner)
        os.close(outer)
