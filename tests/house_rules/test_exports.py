"""Exported names are there, sorted and documented; the examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib
import inspect
from types import ModuleType

import pytest
from chunkmill.engine.errors import MissingExtraError
from source_tree import installed_name, modules


def imported(name: str) -> ModuleType | None:
    """A module; None for one that needs torch, where that is missing."""
    try:
        return importlib.import_module(installed_name(name))
    except MissingExtraError:
        return None


def test_exports_are_sorted_and_documented() -> None:
    unsorted, undocumented = [], []
    for name in sorted(modules()):
        module = imported(name)
        if module is None:
            continue
        exported = list(getattr(module, "__all__", ()))
        if exported != sorted(exported):
            unsorted.append(name)
        for word in exported:
            try:
                thing = getattr(module, word)
            except MissingExtraError:
                continue
            if (inspect.isclass(thing) or inspect.isroutine(thing)) and not inspect.getdoc(thing):
                undocumented.append(f"{name}.{word}")
    assert unsorted == []
    assert undocumented == []


@pytest.mark.heavy
def test_examples_run() -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runs = {
        name: doctest.testmod(module, optionflags=flags)
        for name in sorted(modules())
        if (module := imported(name)) is not None
    }
    assert sum(run.attempted for run in runs.values()) > 100
    assert [name for name, run in runs.items() if run.failed] == [], "the output above says what came instead"
