"""Exported names are there, sorted and documented; the examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib
import inspect

import pytest
from source_tree import installed_name, modules


def test_exports_are_sorted_and_documented() -> None:
    unsorted, undocumented = [], []
    for name in sorted(modules()):
        module = importlib.import_module(installed_name(name))
        exported = list(getattr(module, "__all__", ()))
        if exported != sorted(exported):
            unsorted.append(name)
        for word in exported:
            thing = getattr(module, word)
            if (inspect.isclass(thing) or inspect.isroutine(thing)) and not inspect.getdoc(thing):
                undocumented.append(f"{name}.{word}")
    assert unsorted == []
    assert undocumented == []


@pytest.mark.heavy
def test_examples_run() -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runs = {
        name: doctest.testmod(importlib.import_module(installed_name(name)), optionflags=flags)
        for name in sorted(modules())
    }
    assert sum(run.attempted for run in runs.values()) > 100
    assert [name for name, run in runs.items() if run.failed] == [], "the output above says what came instead"
