"""What is in the tree is in the wheel, and what README.md prints is what .ci/run runs."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import chunkmill
from source_tree import REPOSITORY, SOURCE_FOLDERS, installed_name, modules

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_chunkmill_has_the_public_names_and_loads_them_when_they_are_used() -> None:
    program = """
import sys
sys.modules |= dict.fromkeys(("av", "grpc", "h5py", "mcp", "obstore", "PIL", "polars", "rerun", "torch", "yaml"))
import chunkmill  # without any extra
assert not {"pyarrow", "numpy", "pyspark", "rich", "click"} & sys.modules.keys(), "importing is not quick"
assert set(chunkmill.engine.__all__) <= set(chunkmill.__all__) <= set(dir(chunkmill))
from chunkmill import *
assert McapReader is chunkmill.readers.McapReader and Selector is chunkmill.lenses.Selector
try:
    chunkmill.McapRaeder
except AttributeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout == "module 'chunkmill' has no attribute 'McapRaeder'\n"


def test_the_package_is_the_command_and_knows_its_version(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "chunkmill", "--version"]
    done = subprocess.run(command, capture_output=True, check=True, text=True, cwd=tmp_path)
    assert done.stdout == f"chunkmill {chunkmill.__version__}\n"
    assert importlib.metadata.version("chunkmill") == chunkmill.__version__


def test_every_package_is_installed() -> None:
    """``setup.py`` finds folders with an ``__init__.py``, below others that have one."""
    found = {path.parent for path in modules().values() if path.name == "__init__.py"}
    inner = {path.relative_to(REPOSITORY).parent.parts for path in modules().values()}
    folders = {REPOSITORY.joinpath(*parts[:depth]) for parts in inner for depth in range(1, len(parts) + 1)}
    assert folders == found


def test_every_data_file_is_installed() -> None:
    installed = PROJECT["tool"]["setuptools"]["package-data"]
    for folder in SOURCE_FOLDERS:
        for path in (REPOSITORY / folder).rglob("*"):
            if path.is_file() and path.suffix not in {".py", ".pyc"}:
                package = installed_name(".".join(path.parent.relative_to(REPOSITORY).parts))
                patterns = [*installed["*"], *installed.get(package, ())]
                assert any(fnmatch(path.name, pattern) for pattern in patterns), path


def test_the_readme_has_two_set_up_commands() -> None:
    commands = blocks("sh")
    assert len(commands) == 2
    assert all(command.count("\n") == 1 for command in commands)
    assert "chunkmill convert tests/data/demo.mcap" in commands[0]
    assert "pytest" in commands[1]


def test_every_recording_has_a_source_and_a_licence(data: Path) -> None:
    listing = (data / "README.md").read_text(encoding="utf-8")
    patterns = re.findall(r"^\| `([^`]+)` \|", listing, re.MULTILINE)
    for path in data.rglob("*"):
        if path.is_file() and "licences" not in path.parts and path.name != "README.md":
            name = str(path.relative_to(data))
            assert any(fnmatch(name, pattern) for pattern in patterns), f"{name} is not in tests/data/README.md"
    for licence in re.findall(r"\((licences/[^)]+)\)", listing):
        assert (data / licence).is_file()
