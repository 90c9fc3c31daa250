"""Nothing that comes from a file is run as code."""

from __future__ import annotations

import ast

from source_tree import SOURCE_FOLDERS, foreign_imports, module_name, nodes, python_files

# Each of these turns bytes into running code, or is known to do so when it is fed the wrong ones.
FORBIDDEN_IMPORTS = {"cPickle", "code", "dill", "joblib", "jsonpickle", "marshal", "pickle", "shelve"}
YAML_NAMES = {"BaseLoader", "CBaseLoader", "YAMLError", "parse", "safe_load"}
"""What is used of PyYAML: its parser, whose events are texts, and the loader of plain values. Others make objects."""
FORBIDDEN_CALLS = {"__import__", "compile", "eval", "exec"}
SHELL_CALLS = {"getoutput", "popen", "system"}


def is_forbidden(call: ast.Call) -> bool:
    return (
        (isinstance(call.func, ast.Name) and call.func.id in FORBIDDEN_CALLS)
        or (isinstance(call.func, ast.Attribute) and call.func.attr in SHELL_CALLS)
        or any(keyword.arg == "shell" for keyword in call.keywords)
    )


def names_of_yaml(tree: list[ast.AST]) -> set[str]:
    """Return the names that a module uses of PyYAML; ``from yaml import …`` gives them, too."""
    used = {
        n.attr for n in tree if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "yaml"
    }
    imports = [n for n in tree if isinstance(n, ast.ImportFrom) and (n.module or "").partition(".")[0] == "yaml"]
    return used | {alias.name for node in imports for alias in node.names}


def test_nothing_makes_objects_of_yaml() -> None:
    assert [
        f"{module_name(path)} uses yaml.{name}"
        for path in python_files(*SOURCE_FOLDERS)
        for name in names_of_yaml(list(nodes(path))) - YAML_NAMES
    ] == []


def test_nothing_unpickles_or_evaluates() -> None:
    faults = []
    for path in python_files(*SOURCE_FOLDERS):
        imported = {name.partition(".")[0] for name in foreign_imports(path)} & FORBIDDEN_IMPORTS
        calls = [node.lineno for node in nodes(path) if isinstance(node, ast.Call) and is_forbidden(node)]
        faults += [f"{module_name(path)} imports {name}" for name in imported]
        faults += [f"{module_name(path)}, line {line}" for line in calls]
    assert faults == []
