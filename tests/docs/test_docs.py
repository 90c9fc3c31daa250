"""Every page of ``docs`` and README.md do what they show.

A page is a story: its blocks run one after the other, in one folder that holds ``demo.mcap``. A ``python`` block is
run, and a ``text`` block right behind it is what it prints. In a ``console`` block a line that begins with ``$`` is
run by bash, and what is below it is its output. Numbers of bytes and of seconds may differ, ``...`` stands for
anything, and the folder is shown as ``/data``. Blocks in other languages are not run.
"""

from __future__ import annotations

import contextlib
import copy
import doctest
import io
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PAGES = [*sorted((REPOSITORY / "docs").rglob("*.md")), REPOSITORY / "README.md"]
MANY_SENSORS = "mcap/rerun__rosbag2_2025_09_10-13_03_56_0.mcap"

OF_ONE_FOLDER = {"spark.md"}
"""Pages that run in a process of their own: Spark takes relative paths from the folder in which its JVM was started."""

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


def lay_out(folder: Path, data: Path) -> None:
    """The files that pages work on: ``demo.mcap``, ``drive`` with more sensors, and all of ``tests/data``."""
    from chunkmill.readers import McapReader

    (folder / "tests").mkdir()
    (folder / "tests" / "data").symlink_to(data)
    shutil.copy(data / "demo.mcap", folder)
    shutil.copy(data / MANY_SENSORS, folder / "drive.mcap")
    drive = McapReader(folder / "drive.mcap").stream()
    drive.write_rrd(folder / "drive.rrd", application_id="demo", recording_id="drive")


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
            if isinstance(error, ModuleNotFoundError) and error.name in OPTIONAL:
                pytest.skip(f"blocks from line {block.line} on are not run: there is no {error.name}")
            error.add_note(f"{page.relative_to(REPOSITORY)}, the block at line {block.line}")
            raise


@pytest.fixture(autouse=True)
def no_handlers_are_left() -> Iterator[None]:
    """What a page does to a logger ends with it."""
    logger = logging.getLogger("chunkmill.ingest")
    handlers, level, propagate = list(logger.handlers), logger.level, logger.propagate
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)
    logger.propagate = propagate


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=str(page.relative_to(REPOSITORY)), marks=[pytest.mark.quick] * (page.name == "README.md"))
        for page in PAGES
    ],
)
def test_page_does_what_it_shows(page: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "inline")
    if not runnable(page):
        return
    lay_out(tmp_path, data)
    if page.name not in OF_ONE_FOLDER:
        run_page(page, tmp_path)
        return
    done = subprocess.run([sys.executable, __file__, str(page)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", sorted((REPOSITORY / "docs").rglob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook_prints_what_it_shows(path: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "inline")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "data").symlink_to(data)
    folder = tmp_path / "docs" / "notebooks"
    folder.mkdir(parents=True)
    shown = nbformat.read(path, as_version=4)
    for name in OPTIONAL:
        if any(f"import {name}" in cell.source for cell in shown.cells):
            pytest.importorskip(name)
    book = copy.deepcopy(shown)
    nbclient.NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    for cell, now in zip(shown.cells, book.cells, strict=True):
        if cell.cell_type == "code":
            printed = [
                re.sub(rf"{re.escape(str(tmp_path))}/(docs/notebooks/)?", "", printed_by(each)) for each in (cell, now)
            ]
            same(printed[0], printed[1], folder)


def printed_by(cell: Any) -> str:
    """The text that a cell of a notebook shows; its pictures and tables in HTML have a plain text, too."""
    return "".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs)


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"[\w/-]+\.md", (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")))
    assert {str(p.relative_to(REPOSITORY / "docs")) for p in PAGES[:-1]} == listed


def test_the_runner_notices_what_is_not_so(tmp_path: Path) -> None:
    shown = blocks("```python\nprint(1)\n```\n\n```text\n2\n```\n")[0]
    with pytest.raises(AssertionError):
        run_python(shown, tmp_path / "page.md", tmp_path, {})
    with pytest.raises(AssertionError):
        run_console(Block(1, "console", "$ false\n", None), tmp_path)
    with pytest.raises(AssertionError):
        run_console(Block(1, "console", "$ echo a\nb\n", None), tmp_path)


if __name__ == "__main__":
    run_page(Path(sys.argv[1]), Path.cwd())
