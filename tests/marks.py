"""Set the marks of a test by its folder and by what it does, and ``quick`` on those of a plain run.

A test is quick unless it has one of the marks ``LONG``; of a test with many parameters, ``CASES`` are. The decorator
``pytest.mark.quick`` makes others quick as well: the slice of Spark, of processes, of pages and of faults.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent

FOLDERS = {"docs": "docs", "faults": "faults", "fuzz": "faults", "house_rules": "house"}
"""The mark of each test in a folder."""

LONG = ("slow", "heavy", "wide", "docs", "spark", "process", "faults", "s3")
"""The marks of what a plain run leaves out."""

CASES = 8
"""The most cases of one test with parameters that a plain run takes, spread over all."""

STARTERS = {"subprocess", "multiprocessing"}
"""Modules that start processes."""


def set_marks(items: list[pytest.Item]) -> None:
    """Give tests the marks that follow from their folders, parameters, fixtures and code."""
    cases = defaultdict(list)
    for item in items:
        _set_kinds(item)
        if not any(item.get_closest_marker(name) for name in LONG):
            cases[item.nodeid.partition("[")[0]].append(item)
    for family in cases.values():
        step = max(1, len(family) / CASES)
        for number in range(min(len(family), CASES)):
            family[int(number * step)].add_marker("quick")


def _set_kinds(item: pytest.Item) -> None:
    folder = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""
    if folder in FOLDERS:
        item.add_marker(FOLDERS[folder])
    if isinstance(item, pytest.Function):
        functions = tuple(_functions(item))
        if _takes_spark(item):
            item.add_marker("spark")
        if any(map(_starts_process, functions)):
            item.add_marker("process")
        if "s3_server" in item.fixturenames:
            item.add_marker("s3")


def _functions(item: pytest.Function) -> Iterator[FunctionType]:
    """Yield the function of a test and those of its fixtures."""
    yield _plain(item.function)
    for name in item.fixturenames:
        for definition in item._fixtureinfo.name2fixturedefs.get(name, ())[-1:]:
            function = _plain(definition.func)
            if isinstance(function, FunctionType):
                yield function


def _plain(function: Any) -> Any:
    function = inspect.unwrap(getattr(function, "__func__", function))
    return getattr(getattr(function, "hypothesis", None), "inner_test", function)


def _takes_spark(item: pytest.Function) -> bool:
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    if "spark" in item.fixturenames or any(isinstance(value, str) and value == "spark" for value in parameters):
        return True
    return any(text == "spark" or text.startswith("local[") for text in _texts(_plain(item.function).__code__))


@cache
def _starts_process(function: FunctionType) -> bool:
    """Return whether a function, or one of the tests' own functions that it names, names what starts processes."""
    seen: set[Any] = set()
    waiting: list[Any] = [function]
    while waiting:
        part = waiting.pop()
        if part in seen:
            continue
        seen.add(part)
        if isinstance(part, type):
            waiting += filter(inspect.isroutine, map(_plain, vars(part).values()))
        elif isinstance(part, FunctionType):
            names = set(_names(part.__code__))
            values = [part.__globals__[name] for name in names if name in part.__globals__]
            if names & STARTERS or any(_module_of(value) in STARTERS for value in values):
                return True
            if "fork" in names and any(value is os for value in values):
                return True
            waiting += _parts(part, names, values)
    return False


def _parts(function: FunctionType, names: set[str], values: list[Any]) -> Iterator[Any]:
    """Yield the functions and classes of the tests that a function names: its globals, and members of modules."""
    for value in values:
        if isinstance(value, ModuleType):
            members = [vars(value)[name] for name in names & vars(value).keys()] if _is_ours(value) else []
        else:
            members = [value]
        for member in map(_plain, members):
            if inspect.isroutine(member) or inspect.isclass(member):
                is_beside = member.__module__ == function.__module__
                if is_beside or _is_ours(sys.modules.get(member.__module__ or "")):
                    yield member


def _module_of(value: Any) -> str:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return name.partition(".")[0] if isinstance(name, str) else ""


def _is_ours(module: ModuleType | None) -> bool:
    return Path(getattr(module, "__file__", None) or "/").is_relative_to(TESTS)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _names(code: CodeType) -> Iterator[str]:
    for part in _codes(code):
        yield from part.co_names


def _texts(code: CodeType) -> Iterator[str]:
    for part in _codes(code):
        yield from (constant for constant in part.co_consts if isinstance(constant, str))
