"""Files and functions stay small, names say what a thing is, and the text is about the project alone."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

from figures import lines_of
from rooms import house
from source_tree import CODE_FOLDERS, REPOSITORY, SOURCE_FOLDERS, nodes, python_files, tracked_files

MOST_LINES_OF_A_FUNCTION = 60
MOST_BYTES_OF_A_FILE = 2_000_000
VAGUE_NAMES = {"base2", "common", "helper", "helpers", "misc", "stuff", "util", "utils"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK|raise NotImplementedError|xfail)\b|mark\.skip\b")
MACHINE_PATH = re.compile(r"(?<![A-Za-z0-9_.$}])/(work|root|farm|home|Users)/")
TEXT = {"", ".cfg", ".md", ".proto", ".py", ".toml", ".txt", ".yaml", ".yml"}


def label(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def test_files_are_small() -> None:
    most = house().limits["lines_of_a_file"].most
    sizes = {label(path): lines_of(path) for path in python_files(*CODE_FOLDERS)}
    assert {name: size for name, size in sizes.items() if size > most} == {}, "two things in one file?"


def lines_below_docstring(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    documented = ast.get_docstring(function) is not None
    first = function.body[0].end_lineno if documented else function.lineno
    return (function.end_lineno or 0) - (first or 0)


def test_functions_are_small() -> None:
    sizes = {
        f"{label(path)}: {node.name}": lines_below_docstring(node)
        for path in python_files(*SOURCE_FOLDERS)
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: size for name, size in sizes.items() if size > MOST_LINES_OF_A_FUNCTION} == {}


def test_names_say_what_a_module_is() -> None:
    files = python_files(*CODE_FOLDERS)
    vague = [path for path in files if {*path.relative_to(REPOSITORY).with_suffix("").parts} & VAGUE_NAMES]
    assert [label(path) for path in vague] == []


def test_no_two_test_files_have_one_name() -> None:
    names = Counter(path.name for path in python_files("tests") if path.name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []


def test_nothing_reads_as_unfinished() -> None:
    this = Path(__file__).resolve()
    for path in python_files(*CODE_FOLDERS):
        if path.resolve() != this:
            found = UNFINISHED.search(path.read_text(encoding="utf-8"))
            assert found is None, f"{label(path)}: {found}"


def test_no_path_of_a_machine() -> None:
    this = Path(__file__).resolve()
    for path in tracked_files():
        if path.suffix in TEXT and path.resolve() != this and "licences" not in path.parts:
            found = MACHINE_PATH.search(path.read_text(encoding="utf-8"))
            assert found is None, f"{label(path)}: {found}"


def test_no_large_file() -> None:
    for path in tracked_files():
        assert path.stat().st_size <= MOST_BYTES_OF_A_FILE, label(path)
