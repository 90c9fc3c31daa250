"""Nothing that comes from a file is run as code."""

from __future__ import annotations

import ast

import pytest
from source_tree import SOURCE_FOLDERS, foreign_imports, module_name, nodes, python_files

# Each of these turns bytes into running code, or is known to do so when it is fed the wrong ones.
FORBIDDEN_IMPORTS = {"cPickle", "code", "dill", "joblib", "jsonpickle", "marshal", "pickle", "shelve", "yaml"}
FORBIDDEN_CALLS = {"__import__", "compile", "eval", "exec"}
SHELL_CALLS = {"getoutput", "popen", "system"}


@pytest.mark.parametrize("path", python_files(*SOURCE_FOLDERS), ids=module_name)
def test_nothing_unpickles_or_evaluates(path) -> None:
    imported = {name.partition(".")[0] for name in foreign_imports(path)}
    assert not imported & FORBIDDEN_IMPORTS
    for node in nodes(path):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                assert node.func.id not in FORBIDDEN_CALLS, f"line {node.lineno}"
            if isinstance(node.func, ast.Attribute):
                assert node.func.attr not in SHELL_CALLS, f"line {node.lineno}"
            assert not any(k.arg == "shell" for k in node.keywords), f"line {node.lineno}"
