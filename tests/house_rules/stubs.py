"""Write the stubs of packages whose names are loaded when they are first used: ``__init__.pyi`` beside each face.

A face says once where its names are (``_HOMES``); type checkers and editors read the stub that is made of it:
python -m tests.run house stubs
"""

from __future__ import annotations

import ast
from pathlib import Path

from source_tree import REPOSITORY, SOURCE_FOLDERS, parsed, python_files


def stub_of(face: Path) -> str:
    """Return the text of the stub of a face; empty if it has no table of names."""
    lines, constants = ["# Made of the table in __init__.py: python -m tests.run house stubs"], []
    for node in parsed(face).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="_HOMES")], value=table):
                for home, names in ast.literal_eval(table).items():
                    exported = [f"{name} as {name}" for name in names.split()] if names != "*" else ["*"]
                    lines += [f"from {home or '.'} import {name}" for name in exported]
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str())):
                constants.append(f"{name}: str")
    return "\n".join([*lines, "", *constants, "__all__: list[str]", ""]) if len(lines) > 1 else ""


def stubs() -> dict[Path, str]:
    """Return the text of each stub that there has to be, by its path."""
    faces = [path for path in python_files(*SOURCE_FOLDERS) if path.name == "__init__.py"]
    return {face.with_suffix(".pyi"): stub for face in faces if (stub := stub_of(face))}


def main() -> None:
    """Write them."""
    for path, text in stubs().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(REPOSITORY))


if __name__ == "__main__":
    main()
