"""Pages, public docstrings, help texts and errors are plain technical English, without the patterns below."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from chunkmill.engine.errors import MissingExtraError
from rooms import house
from source_tree import REPOSITORY, installed_name, modules, parsed

PATTERNS = {
    "report, show, list": r"\b(?:told|tells?)\b(?! apart)(?<!cannot tell)",
    "is stored, is": r"\b(?:lie|lies|lay|lying)\b(?! out| between)",
    "is, is stored, is written": r"\b(?:stands|stood)\b(?! for)",
    "name the cost": r"\bat the cost of\b",
    "for users who": r"\bfor whom\b",
    "of these": r"(?:^|[.;:] )Of which\b",
    "result, outcome": r"\b(?:becomes?|became|comes?|came) of\b",
    "query, request": r"\b(?:is|are|was|were|be|been|being) asked\b",
    "continue": r"\b(?:go|goes|going|went) on\b",
    "None if": r"\b[Nn]one where\b|\bwhere (?:there is |there are )?none\b",
    "a noun in place of 'What … is'": r"(?:^|[.!] |\| )What (?:[\w'-]+ ){1,8}"
    r"(?:is|are|was|were|has|have|becomes?|goes|comes|stays|lands)\b(?![^.]*\?)",
}
"""What to write instead, and the pattern."""
PAGES = [*sorted((REPOSITORY / "docs").rglob("*.md")), REPOSITORY / "README.md", REPOSITORY / "CHANGELOG.md"]


def plain(page: str) -> str:
    """The sentences of a page, each on one line; code is left out."""
    page = re.sub(r"^( *)```.*?^\1```$", "", page, flags=re.MULTILINE | re.DOTALL)
    page = re.sub(r"`[^`\n]*(?:\n[^`\n]*)?`", "`x`", page)
    return re.sub(r"\n(?=[^\n|#-])", " ", page)


def hits(text: str) -> list[str]:
    """The places of a text with a pattern, and what to write instead."""
    return [
        f"…{' '.join(text[max(0, found.start() - 40) : found.end() + 30].split())}…: {instead}"
        for instead, pattern in PATTERNS.items()
        for found in re.finditer(pattern, text, re.MULTILINE)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_a_page_is_plain(page: Path) -> None:
    assert hits(plain(page.read_text(encoding="utf-8"))) == []


def test_help_texts_are_plain() -> None:
    text = (REPOSITORY / "docs" / "api" / "command-line.md").read_text(encoding="utf-8")
    assert hits(re.sub(r"\n +(?=\S)", " ", text)) == []


def public_docstrings() -> Iterator[tuple[str, str]]:
    """The docstrings of the names of all faces, and of their methods."""
    for room in house().rooms.values():
        if room.face:
            face = importlib.import_module(installed_name(room.name))
            for name in getattr(face, "__all__", ()):
                try:
                    thing = getattr(face, name)
                except MissingExtraError:
                    continue
                if getattr(thing, "__module__", "").startswith("pyspark."):
                    continue  # its docstrings are Spark's
                if inspect.isclass(thing) or inspect.isfunction(thing):
                    yield f"{room.name}.{name}", inspect.getdoc(thing) or ""
                if inspect.isclass(thing):
                    for member, value in vars(thing).items():
                        text = getattr(value, "__doc__", None)
                        if not member.startswith("_") and isinstance(text, str):
                            yield f"{room.name}.{name}.{member}", inspect.cleandoc(text)


def test_public_docstrings_are_plain() -> None:
    names = {text: name for name, text in public_docstrings()}  # several faces may share a name
    assert sorted(f"{name}: {hit}" for text, name in names.items() for hit in hits(plain(text))) == []


def texts_of_errors(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The texts in what is raised or warned of."""
    for node in ast.walk(tree):
        call = node.exc if isinstance(node, ast.Raise) else node
        name = call.func if isinstance(call, ast.Call) else None
        said = isinstance(node, ast.Raise) or (isinstance(name, ast.Attribute) and name.attr == "warn")
        if said and isinstance(call, ast.Call):
            for part in [*call.args, *(word.value for word in call.keywords)]:
                text = "".join(
                    str(inner.value)
                    for inner in ast.walk(part)
                    if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
                )
                yield call.lineno, text


def test_errors_are_plain() -> None:
    assert [
        f"{path.relative_to(REPOSITORY)}:{line}: {hit}"
        for path in modules().values()
        for line, text in texts_of_errors(parsed(path))
        for hit in hits(text)
    ] == []


@pytest.mark.parametrize(
    "sentence",
    [
        "The summary tells the rate.",
        "The files lie in a folder.",
        "The name stands in the file.",
        "A view follows its source at the cost of what changed.",
        "Users for whom this matters.",
        "It has two parts. Of which one is optional.",
        "The account counts what becomes of each frame.",
        "The server is asked for rows.",
        "The run goes on.",
        "Return the name, None where the file lacks it.",
        "What lands is a lake.",
    ],
)
def test_a_pattern_is_noticed(sentence: str) -> None:
    assert len(hits(sentence)) == 1


def test_plain_words_pass() -> None:
    assert hits("What is a chunk? It is laid out on disk, and `x` stands for a path.") == []
    assert hits("You cannot tell two rows apart. The value lies between 0 and 1. A guide to what is stored.") == []
