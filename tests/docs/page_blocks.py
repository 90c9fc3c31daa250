"""Run the blocks of a page, and compare what they print with what it shows: ``python page_blocks.py PAGE``.

A page is a story: its blocks run one after the other, in one folder that holds ``demo.mcap``. A ``python`` block is
run, and a ``text`` block right behind it is what it prints. In a ``console`` block a line that begins with ``$`` is
run by bash, and what is below it is its output. Numbers of bytes and of seconds may differ, ``...`` stands for
anything, and the folder is shown as ``/data``. Blocks in other languages are not run.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent.parent

OPTIONAL = {"torch"}
"""What is too large for each machine that runs the tests. A page is run up to the block that imports it."""

_BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VARYING = re.compile(r"\d[\d,.]* ?(kB|MB|bytes|ms|s)\b")
_AT_BYTE = re.compile(r"\(at byte [\d,]+\)")
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    """A fenced block: where it begins, its language, its text, and the ``text`` block right behind it."""

    line: int
    language: str
    text: str
    expected: str | None


def blocks(page: str) -> list[Block]:
    found = list(_BLOCK.finditer(page))
    out = []
    for at, block in enumerate(found):
        after = found[at + 1] if at + 1 < len(found) else None
        adjacent = after is not None and after[1] == "text" and not page[block.end() : after.start()].strip()
        expected = after[2] if after is not None and adjacent else None
        out.append(Block(page.count("\n", 0, block.start()) + 2, block[1], block[2], expected))
    return out


def commands(text: str) -> list[tuple[str, str]]:
    """The commands of a ``console`` block, each with the output shown below it."""
    pieces = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    found = []
    for piece in pieces:
        lines = piece.splitlines(keepends=True)
        size = 1
        while lines[size - 1].endswith("\\\n"):
            size += 1
        found.append(("".join(lines[:size]), "".join(lines[size:])))
    return found


def same(expected: str, got: str, folder: Path) -> None:
    """Compare what is shown with what came; the failure shows both."""
    got = got.replace(str(folder), "/data")
    plain = [_AT_BYTE.sub("(at byte N)", _VARYING.sub(r"N \1", text)).strip() + "\n" for text in (expected, got)]
    if not doctest.OutputChecker().check_output(plain[0], plain[1], _FLAGS):
        assert got == expected


def run_python(block: Block, page: Path, folder: Path, names: dict[str, object]) -> None:
    if block.text.startswith(">>>"):
        test = doctest.DocTestParser().get_doctest(block.text, names, page.name, str(page), block.line)
        runner = doctest.DocTestRunner(optionflags=_FLAGS)
        runner.run(test, clear_globs=False)
        names.update(test.globs)
        assert runner.failures == 0
        return
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True), names)
    if block.expected is not None:
        same(block.expected, printed.getvalue(), folder)


def run_console(block: Block, folder: Path) -> None:
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}
    for command, expected in commands(block.text):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if expected.strip():
            same(expected, done.stdout, folder)
        else:
            assert done.returncode == 0, f"{command}\n{done.stdout}"


def runnable(page: Path) -> list[Block]:
    found = blocks(page.read_text(encoding="utf-8"))
    return [b for b in found if b.language in {"python", "console"}]


def run_page(page: Path, folder: Path) -> None:
    names: dict[str, object] = {"__name__": page.stem}
    for block in runnable(page):
        try:
            if block.language == "python":
                run_python(block, page, folder, names)
            else:
                run_console(block, folder)
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and error.name == "rerun":
                continue  # Rerun's code that is shown beside ours: a new user may not have its SDK
            if isinstance(error, ModuleNotFoundError) and error.name in OPTIONAL:
                import pytest  # only where it is wanted: a new user has none

                pytest.skip(f"blocks from line {block.line} on are not run: there is no {error.name}")
            error.add_note(f"{page.relative_to(REPOSITORY)}, the block at line {block.line}")
            raise


if __name__ == "__main__":
    run_page(Path(sys.argv[1]).resolve(), Path.cwd())
