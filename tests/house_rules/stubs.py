"""Write the stubs of modules whose names are loaded when they are first used: a ``.pyi`` beside each.

A module says once where its names are (``_HOMES``); type checkers, editors and the reference read the stub that is made
of it: python -m tests.run house stubs
"""

from __future__ import annotations

import ast
from pathlib import Path

from source_tree import REPOSITORY, SOURCE_FOLDERS, parsed, python_files


def homes_of(path: Path) -> dict[str, str]:
    """Return the table of names of a file; empty if it has none."""
    for node in parsed(path).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="_HOMES")], value=table):
                homes: dict[str, str] = ast.literal_eval(table)
                return homes
    return {}


def names_in(home: str, names: str) -> list[str]:
    """Return the names that a home gives; ``*``, which only the package itself has, are those of the home's table."""
    face = REPOSITORY.joinpath(*home.strip(".").split("."), "__init__.py")
    if names != "*" or not face.exists():
        return names.split()
    return sorted(
        name for inner, listed in homes_of(face).items() if not inner or inner[0] == "." for name in listed.split()
    )


def stub_of(face: Path) -> str:
    """Return the text of the stub of a module; empty if it has no table of names."""
    homes = homes_of(face)
    if not homes:
        return ""
    home_of = {
        name: home for home, names in homes.items() for name in names_in(home, names)
    }  # as `lazy_names` reads it
    if face.name != "__init__.py":
        home_of = {name: home[1:] for name, home in home_of.items()}  # a table is relative to its module
    lines = [f"# Made of the table in {face.name}: python -m tests.run house stubs"]
    lines += [
        f"from {home or '.'} import {name}" + (f" as {name}" if name != "*" else "") for name, home in home_of.items()
    ]
    constants = [
        f"{target.id}: str"
        for node in parsed(face).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    return "\n".join([*lines, "", *constants, "__all__: list[str]", ""])


def stubs() -> dict[Path, str]:
    """Return the text of each stub that there has to be, by its path."""
    return {path.with_suffix(".pyi"): stub for path in python_files(*SOURCE_FOLDERS) if (stub := stub_of(path))}


def main() -> None:
    """Write them."""
    for path, text in stubs().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(REPOSITORY))


if __name__ == "__main__":
    main()
