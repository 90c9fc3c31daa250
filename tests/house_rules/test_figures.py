"""What is counted in the source stays within the limits of ``house.toml``; each offender is listed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from figures import (
    begins_with_question,
    circles,
    code_lines,
    figures,
    files_of_folders,
    lone_importers,
    questions,
    unlisted_lone_importers,
    vague_variables,
    variables,
)
from rooms import house


def test_every_figure_is_within_its_limit() -> None:
    limits = house().limits
    today = figures()
    assert today.keys() == limits.keys()
    assert {name: f"{size} > {limits[name].most}" for name, size in today.items() if size > limits[name].most} == {}


def test_folders_are_small() -> None:
    most = house().limits["files_of_a_folder"].most
    assert {folder: files for folder, files in files_of_folders().items() if files > most} == {}, (
        "a street without names"
    )


def test_a_small_module_with_one_importer_is_a_part_of_that() -> None:
    unlisted = unlisted_lone_importers()
    assert len(unlisted) <= house().limits["modules_with_one_importer"].most, unlisted
    assert house().lone_modules.keys() <= lone_importers().keys(), "the table of rooms has a reason for nothing"


def test_docstrings_state() -> None:
    texts = questions()
    most = house().limits["docstrings_that_ask"].most
    assert len(texts) <= most, f"begin with a verb, or with the noun of what is returned: {texts}"


def test_variables_are_nouns() -> None:
    assert vague_variables().total() <= house().limits["vague_variables"].most, vague_variables()


@pytest.mark.parametrize(("text", "asks"), [("Where it is.", True), ("How, then?", True), ("However it is.", False)])
def test_a_docstring_that_asks(text: str, asks: bool) -> None:
    assert begins_with_question(text) == asks


def test_circles_are_groups_of_modules() -> None:
    graph = {"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"e"}, "e": {"c"}, "f": {"a"}}
    assert circles(graph) == [["c", "d", "e"], ["a", "b"]]


def test_variables_are_counted_once_a_scope() -> None:
    text = "found = 1\ndef f(one):\n    found = found2 = 2\n    found = 3\n    return lambda told: told\n"
    assert sorted(sorted(names) for names in variables(ast.parse(text))) == [
        ["found"],
        ["found", "found2", "one"],
        ["told"],
    ]


def test_code_lines_leave_out_comments_and_docstrings(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        '"""A docstring\n\nof three lines."""\n\n# why\nVALUES = [\n    1,  # one\n]\n"""What they are."""\n'
    )
    assert code_lines(path) == 3
