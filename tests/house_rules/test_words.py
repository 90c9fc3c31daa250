"""Names mean one thing."""

from __future__ import annotations

import ast
from collections import defaultdict

from rooms import is_within
from source_tree import modules, parsed

OLDER = ("engine.catalog.v0_27",)
"""Rooms with the names of an older release, which mean there what they meant in that."""


def public_classes() -> dict[str, list[str]]:
    """Every public class name at the top of a module, with the modules that define it."""
    homes: dict[str, list[str]] = defaultdict(list)
    for name, path in modules().items():
        if any(is_within(name, package) for package in OLDER):
            continue
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    return homes


def test_a_class_name_means_one_thing() -> None:
    shared = {name: homes for name, homes in public_classes().items() if len(homes) > 1}
    assert not shared
