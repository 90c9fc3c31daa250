"""Names mean one thing, and docstrings say what comes back rather than ask."""

from __future__ import annotations

import ast
from collections import defaultdict

from source_tree import modules, nodes, parsed

QUESTIONS = ("How", "What", "Where", "Which")

OLDER = ("engine.catalog.v0_27",)
"""Modules with the names of an older release, which mean there what they meant in that."""


def begins_with_question(text: str) -> bool:
    return text.split(maxsplit=1)[0].rstrip(",:") in QUESTIONS


def public_classes() -> dict[str, list[str]]:
    """Every public class name at the top of a module, with the modules that define it."""
    homes: dict[str, list[str]] = defaultdict(list)
    for name, path in modules().items():
        if name in OLDER:
            continue
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    return homes


def test_docstrings_state() -> None:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = {
        f"{name}: {text.splitlines()[0]}"
        for name, path in modules().items()
        for node in nodes(path)
        if isinstance(node, kinds) and (text := ast.get_docstring(node)) and begins_with_question(text)
    }
    assert texts == set(), "begin with a verb, or with the noun of what is returned"


def test_a_class_name_means_one_thing() -> None:
    shared = {name: homes for name, homes in public_classes().items() if len(homes) > 1}
    assert not shared
