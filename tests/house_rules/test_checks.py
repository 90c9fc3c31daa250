"""Each check of CI fails when its fault is planted, and CI runs those that CONTRIBUTING shows."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from run import STARTED_BY_OTHERS
from source_tree import REPOSITORY, tracked_files

PLANTED = {
    "ruff check": ("engine/planted.py", "import os\n", "planted.py"),
    "ruff format": ("engine/planted.py", '"""A module."""\n\nVALUE = [1,2]\n', "planted.py"),
    "mypy": ("typed/chunkmill/planted.py", 'VALUE: int = "text"\n', "planted.py"),
    "mkdocs": ("docs/recipes.md", "\n[a page](planted.md)\n", "planted.md"),
}
"""For each check a file, the text that is added to it, and what the check says about it."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what git tracks."""
    for path in tracked_files():
        target = tmp_path / path.relative_to(REPOSITORY)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_fails_its_check(checkout: Path, name: str) -> None:
    program = name.split()[0]
    if importlib.util.find_spec(program) is None:
        pytest.skip(f"{program} is not installed: pip install '.[dev,docs]'")
    place, text, message = PLANTED[name]
    path = checkout / place
    path.parent.mkdir(parents=True, exist_ok=True)
    if name == "mypy":  # one module in the place of the installed package: the command and its settings are tested
        for part in ("__init__.py", "py.typed"):
            (path.parent / part).touch()
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
    environment = {
        **os.environ,
        "PATH": f"{programs(checkout)}{os.pathsep}{os.environ['PATH']}",
        "MYPYPATH": str(checkout / "typed"),
        "NO_MKDOCS_2_WARNING": "1",
    }
    command = [str(checkout / ".ci" / "checks"), program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).partition(f"--- {name}")[2].partition("\n--- ")[0]
    assert done.returncode == 1, done.stdout + done.stderr
    assert message in said


def programs(folder: Path) -> Path:
    """A folder of the checks' programs, run by this Python."""
    found = folder / "programs"
    found.mkdir()
    for name in ("ruff", "mypy", "mkdocs"):
        (found / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {name} "$@"\n')
        (found / name).chmod(0o755)
    return found


def test_every_check_has_a_planted_fault() -> None:
    contributing = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    block = contributing.partition("## Checks")[2].partition("```sh\n")[2].partition("```")[0]
    assert [name for name in PLANTED if not re.search(f"^{name} ", block, re.MULTILINE)] == []
    assert [line for line in block.splitlines() if not line.startswith(tuple(PLANTED))] == []
    for script in ("run", "versions"):
        assert ".ci/checks" in (REPOSITORY / ".ci" / script).read_text(encoding="utf-8")


def test_an_unknown_check_is_an_error() -> None:
    done = subprocess.run([str(REPOSITORY / ".ci" / "checks"), "planted"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "planted" in done.stderr


def test_every_long_check_is_listed_with_a_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.run"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("  ")]
    assert len(lines) > 50
    assert [name for name, *text in lines if not text] == []
    folders = [REPOSITORY / "benchmarks", *(REPOSITORY / "tests").iterdir()]
    programs = {path.stem for folder in folders for path in folder.glob("*.py")}
    assert programs > STARTED_BY_OTHERS
    assert not {name for name, *_ in lines} & STARTED_BY_OTHERS
    command = [sys.executable, "-m", "tests.run", "faults", "planted"]
    assert subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=False).returncode == 2
