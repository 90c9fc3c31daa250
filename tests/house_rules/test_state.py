"""No module has a global that changes while a task runs: what a task needs lives in what the stage hands down."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from rooms import house
from source_tree import modules, parsed

CHANGING_CALLS = {
    "add",
    "append",
    "appendleft",
    "clear",
    "discard",
    "extend",
    "insert",
    "pop",
    "popitem",
    "popleft",
    "remove",
    "set",
    "setdefault",
    "update",
}


def globals_of(tree: ast.Module) -> set[str]:
    """The names that a module binds at its top, by assignment."""
    names: set[str] = set()
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names |= {t.id for t in targets if isinstance(t, ast.Name)}
    return names


def functions_of(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def local_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The names that a function binds itself: its arguments, and what it assigns without saying ``global``."""
    own = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
    own |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    said = {name for n in ast.walk(function) if isinstance(n, ast.Global) for name in n.names}
    return own - said


def changed_by(function: ast.FunctionDef | ast.AsyncFunctionDef, names: set[str]) -> set[str]:
    """Return those of some names, not the function's own, that it binds anew or whose values it changes."""
    changed = {name for n in ast.walk(function) if isinstance(n, ast.Global) for name in n.names}
    for node in ast.walk(function):
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            value: ast.expr = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING_CALLS:
            value = node.func.value
        else:
            continue
        if isinstance(value, ast.Name):
            changed.add(value.id)
    changed &= names
    return changed - local_names(function) if changed else changed


@cache
def changing_globals(tree: ast.Module) -> set[str]:
    names = globals_of(tree)
    return set().union(*(changed_by(function, names) for function in functions_of(tree)))


def may_change(module: str) -> set[str]:
    """Return the globals of a module that may change, for the reasons in ``house.toml``. A new one needs a reason."""
    room = house().room_of(module)
    return {*room.variables} if room else set()


def test_globals_stay_as_they_are() -> None:
    changing = {name: changing_globals(parsed(path)) - may_change(name) for name, path in modules().items()}
    assert {name: names for name, names in changing.items() if names} == {}, "keep it in an object that is handed down"


def test_every_global_of_the_table_changes() -> None:
    changing = {
        (room.name, word)
        for name, path in modules().items()
        for word in changing_globals(parsed(path))
        if (room := house().room_of(name))
    }
    named = {(room.name, word) for room in house().rooms.values() for word in room.variables}
    assert named - changing == set()
