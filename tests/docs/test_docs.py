"""Every page of ``docs`` and README.md do what they show: see ``page_blocks.py``."""

from __future__ import annotations

import copy
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chunkmill
import page_blocks
import pytest
from page_blocks import OPTIONAL, REPOSITORY, Block, blocks, run_console, run_page, run_python, runnable, same

PAGES = [*sorted((REPOSITORY / "docs").rglob("*.md")), REPOSITORY / "README.md"]
MANY_SENSORS = "mcap/rerun__rosbag2_2025_09_10-13_03_56_0.mcap"

OF_ONE_FOLDER = {"spark.md"}
"""Pages that run in a process of their own: Spark takes relative paths from the folder in which its JVM was started."""


NOTEBOOKS = sorted((REPOSITORY / "docs").rglob("*.ipynb"))
TOPICS = ("alignment", "catalog_0_27", "catalog_server", "readers", "training", "video")
"""Modules of ``chunkmill`` for one topic, from which pages import what ``chunkmill`` itself does not have."""
IMPORT = re.compile(r"\b(?:from (chunkmill[\w.]*) import (\([^)]*\)|[^\n\\]*)|import (chunkmill[\w.]*))")


def lay_out(folder: Path, data: Path) -> None:
    """The files that pages work on: ``demo.mcap``, ``drive`` with more sensors, and all of ``tests/data``."""
    from chunkmill.readers import McapReader

    (folder / "tests").mkdir()
    (folder / "tests" / "data").symlink_to(data)
    shutil.copy(data / "demo.mcap", folder)
    shutil.copy(data / MANY_SENSORS, folder / "drive.mcap")
    drive = McapReader(folder / "drive.mcap").stream()
    drive.write_rrd(folder / "drive.rrd", application_id="demo", recording_id="drive")


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
    done = subprocess.run(
        [sys.executable, page_blocks.__file__, str(page)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
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


def faulty_imports(text: str) -> list[str]:
    """Return the imports of a text that are not of ``chunkmill``, nor of what only a module of a topic has."""
    topics = {f"chunkmill.{topic}" for topic in TOPICS}
    faulty = []
    for shown in IMPORT.finditer(text):
        home, listed, module = shown.groups()
        names = [name.split(" as ")[0].strip("() \n") for name in (listed or "").split(",")]
        double = any(name in chunkmill.__all__ and name != "register" for name in names)
        elsewhere = home in topics and (home == "chunkmill.catalog_0_27" or not double)  # whose names are older classes
        if not (elsewhere or home == "chunkmill" or module in {"chunkmill", *topics}):
            faulty.append(shown[0])
    return faulty


def test_pages_import_from_chunkmill_itself() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in (*PAGES, *NOTEBOOKS, REPOSITORY / "docs" / "llms.txt")}
    assert sum(len(IMPORT.findall(text)) for text in texts.values()) > 80
    assert {str(path): faulty for path, text in texts.items() if (faulty := faulty_imports(text))} == {}


@pytest.mark.parametrize(
    "line",
    [
        "from chunkmill.engine import Chunk",
        "from chunkmill.readers import (\n    Format,\n    McapReader,\n)",
        "import chunkmill.engine.errors",
        "from chunkmill.lenses.ros2 import at_stamp as stamped",
    ],
)
def test_another_path_of_import_is_noticed(line: str) -> None:
    assert faulty_imports(f"```python\n{line}\n```\n") == [line]
    assert faulty_imports("from chunkmill import Chunk\nfrom chunkmill.readers import Format, register") == []


def test_the_runner_notices_what_is_not_so(tmp_path: Path) -> None:
    shown = blocks("```python\nprint(1)\n```\n\n```text\n2\n```\n")[0]
    with pytest.raises(AssertionError):
        run_python(shown, tmp_path / "page.md", tmp_path, {})
    with pytest.raises(AssertionError):
        run_console(Block(1, "console", "$ false\n", None), tmp_path)
    with pytest.raises(AssertionError):
        run_console(Block(1, "console", "$ echo a\nb\n", None), tmp_path)
