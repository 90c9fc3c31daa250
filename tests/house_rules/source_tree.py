"""The project's own files, modules and imports, as the house rules look at them."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
SOURCE_FOLDERS = ("engine", "lenses", "readers")
CODE_FOLDERS = (*SOURCE_FOLDERS, "benchmarks", "tests")
PACKAGE = "engine.package"
"""The folder that is installed as ``chunkmill`` itself: what it imports relatively lies at the top of the tree."""
_IN_STRING = re.compile(r"(?:\.\.+|chunkmill\.)[a-z_]\w*(?:\.\w+)*(?::\w+)?")
_NOT_OURS = {"build", "dist", "node_modules", "spark-warehouse", "__pycache__"}


def python_files(*folders: str) -> list[Path]:
    """Every Python file below the given top-level folders, in order."""
    return [p for f in folders for p in sorted((REPOSITORY / f).rglob("*.py")) if "__pycache__" not in p.parts]


def tracked_files() -> list[Path]:
    """Every file of the project: those git tracks, or, in a copy without git, all but builds and hidden folders."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=False, text=True
    )  # a copy of the tree has no git of its own, and may lie inside another repository
    if listing.returncode == 0 and (REPOSITORY / ".git").exists():
        paths = [REPOSITORY / name for name in listing.stdout.split("\0") if name]
    else:
        paths = list(_walk())
    return [p for p in paths if p.is_file()]


def _walk() -> Iterator[Path]:
    for here, folders, files in os.walk(REPOSITORY):
        folders[:] = [
            f for f in folders if f == ".ci" or not (f.startswith(".") or f in _NOT_OURS or f.endswith(".egg-info"))
        ]
        yield from (Path(here, f) for f in files)


def module_name(path: Path) -> str:
    """``engine/chunk/__init__.py`` is ``engine.chunk``: the name inside the tree, without the distribution's."""
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def installed_name(module: str) -> str:
    """``engine.chunk`` is installed as ``chunkmill.engine.chunk``."""
    return module.replace(PACKAGE, "chunkmill") if _of_package(module) else f"chunkmill.{module}"


def _of_package(module: str) -> bool:
    return module == PACKAGE or module.startswith(f"{PACKAGE}.")


def _parents(module: str, path: Path, level: int) -> list[str]:
    """The name, in parts, of what ``level`` dots mean in a module."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    parts = package.split(".")[2:] if _of_package(package) else package.split(".")
    return parts[: len(parts) - level + 1]


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of the syntax tree of a file: a dozen rules go over them, and walking takes more than what they ask."""
    return tuple(ast.walk(parsed(path)))


@cache
def modules() -> dict[str, Path]:
    """Every module of the installed packages, by its name inside the tree."""
    return {module_name(p): p for p in python_files(*SOURCE_FOLDERS)}


def annotation_lines(name: str) -> frozenset[int]:
    """The lines of a module that only a type checker runs."""
    blocks = [n for n in nodes(modules()[name]) if isinstance(n, ast.If)]
    checked = [b for b in blocks if isinstance(b.test, ast.Name) and b.test.id == "TYPE_CHECKING"]
    return frozenset(line for b in checked for line in range(b.lineno, (b.end_lineno or b.lineno) + 1))


@cache
def own_imports(name: str, without: frozenset[int] = frozenset()) -> Set[str]:
    """The modules of this project that module ``name`` imports, at its top or in its functions, some lines aside."""
    path = modules()[name]
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.level and node.lineno not in without:
            base = _parents(name, path, node.level)
            target = ".".join([*base, node.module] if node.module else base)
            for alias in node.names:
                inner = f"{target}.{alias.name}".lstrip(".")
                found.add(inner if inner in modules() else target)
    return found & modules().keys()


def imports_in_strings(name: str) -> set[str]:
    """The modules outside its own package that module ``name`` names in strings: ``..store``, ``chunkmill.readers``."""
    found: set[str] = set()
    for node in nodes(modules()[name]):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _IN_STRING.fullmatch(node.value):
            dotted = node.value.partition(":")[0].removeprefix("chunkmill.")
            level = len(dotted) - len(dotted.lstrip("."))
            above = _parents(name, modules()[name], level) if level else []
            found.add(".".join([*above, dotted.lstrip(".")]))
    return found & modules().keys()


def foreign_imports(path: Path) -> set[str]:
    """The dotted names of everything that ``path`` imports absolutely."""
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module)
    return found
