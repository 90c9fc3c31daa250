"""Exported names are there, sorted and documented; the examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib
import inspect

import pytest
from source_tree import installed_name, modules


@pytest.mark.parametrize("name", sorted(modules()))
def test_exports_are_sorted_and_documented(name: str) -> None:
    module = importlib.import_module(installed_name(name))
    exported = getattr(module, "__all__", None)
    if exported is None:
        return
    assert list(exported) == sorted(exported)
    for word in exported:
        thing = getattr(module, word)
        if inspect.isclass(thing) or inspect.isroutine(thing):
            assert inspect.getdoc(thing), f"{name}.{word} has no docstring"


@pytest.mark.parametrize("name", sorted(modules()))
def test_examples_run(name: str) -> None:
    module = importlib.import_module(installed_name(name))
    results = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0
