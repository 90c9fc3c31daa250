"""Print what is counted in the source: modules, folders, lines, circles, lone importers, and words that say little.

    python -m tests.run house figures

``house.toml`` has the most that each may be, and ``test_figures.py`` holds them against it.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cache
from pathlib import Path

from rooms import house
from source_tree import REPOSITORY, annotation_lines, modules, nodes, own_imports, parsed, python_files

QUESTIONS = ("How", "What", "Where", "Which")
"""First words of docstrings that ask for what the text should state."""

VAGUE_VARIABLES = frozenset({"found", "known", "one", "there", "told"})
SMALL_MODULE = 150
"""Lines, below which a module with one importer should be a part of that."""

_LINELESS = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def docstring_lines(path: Path) -> set[int]:
    """Return the lines of a file that texts take which stand alone as statements."""
    texts = [n.value for n in nodes(path) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
    return {
        line for text in texts if isinstance(text.value, str) for line in range(text.lineno, (text.end_lineno or 0) + 1)
    }


def code_lines(path: Path) -> int:
    """Return the number of lines without blank ones, comments and docstrings."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
    rows = {line for t in tokens if t.type not in _LINELESS for line in range(t.start[0], t.end[0] + 1)}
    return len(rows - docstring_lines(path))


def files_of_folders() -> Counter[str]:
    return Counter(str(path.parent.relative_to(REPOSITORY)) for path in modules().values())


def circles(graph: Mapping[str, Set[str]]) -> list[list[str]]:
    """Return the groups of modules of which each imports each other, directly or by way of others."""
    reached = {name: reachable(graph, name) for name in graph}
    groups = {frozenset(m for m in reached[name] if name in reached[m]) for name in graph if name in reached[name]}
    return sorted((sorted(group) for group in groups), key=lambda group: (-len(group), group))


def reachable(graph: Mapping[str, Set[str]], start: str) -> set[str]:
    """Return the modules that a module imports, directly or by way of others: itself only if it is in a circle."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for name in graph[waiting.pop()] - reached:
            reached.add(name)
            waiting.append(name)
    return reached


@cache
def circles_of_modules(*, annotations: bool) -> list[list[str]]:
    """Return the circles of imports, with those that only a type checker follows or without them."""
    return circles(
        {name: own_imports(name, frozenset() if annotations else annotation_lines(name)) - {name} for name in modules()}
    )


@cache
def lone_importers() -> dict[str, str]:
    """Return each small module that one other imports, with that other. Faces do not count, on either side."""
    rooms = {name for name, path in modules().items() if path.name != "__init__.py"}
    imports = {name: own_imports(name) - {name} for name in rooms}
    lone = {}
    for name in sorted(rooms):
        importers = [other for other, targets in imports.items() if name in targets]
        if len(importers) == 1 and lines_of(modules()[name]) < SMALL_MODULE:
            lone[name] = importers[0]
    return lone


def unlisted_lone_importers() -> dict[str, str]:
    """Return those of :func:`lone_importers` for which the table of rooms gives no reason."""
    return {name: importer for name, importer in lone_importers().items() if name not in house().lone_modules}


def questions() -> list[str]:
    """Return the docstrings that begin with a word of :data:`QUESTIONS`."""
    return [
        f"{name}: {text.splitlines()[0]}"
        for name, path in modules().items()
        for node in nodes(path)
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)) and begins_with_question(text)
    ]


def begins_with_question(text: str) -> bool:
    return text.split(maxsplit=1)[0].rstrip(",:") in QUESTIONS


def variables(scope: ast.AST) -> Iterator[set[str]]:
    """Yield the names that a scope binds, its arguments among them, and those of each scope inside it."""
    names = {
        argument.arg for argument in ast.walk(getattr(scope, "args", ast.arguments())) if isinstance(argument, ast.arg)
    }
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        if isinstance(node, _SCOPES):
            yield from variables(node)
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        waiting += ast.iter_child_nodes(node)
    yield names


def vague_variables(paths: Iterable[Path] | None = None) -> Counter[str]:
    """Return how many functions, classes and modules have a variable of each vague name."""
    names = (scope for path in paths or modules().values() for scope in variables(parsed(path)))
    return Counter(name for scope in names for name in scope & VAGUE_VARIABLES)


def figures() -> dict[str, int]:
    """Return each figure by the name that its limit has in ``house.toml``."""
    return {
        "modules": len(modules()),
        "files_of_a_folder": max(files_of_folders().values()),
        "code_lines": sum(code_lines(path) for path in modules().values()),
        "lines_of_a_file": max(lines_of(path) for path in python_files("engine", "lenses", "readers")),
        "modules_in_circles": sum(map(len, circles_of_modules(annotations=False))),
        "modules_in_circles_of_annotations": sum(map(len, circles_of_modules(annotations=True))),
        "modules_with_one_importer": len(unlisted_lone_importers()),
        "modules_with_a_reason": len(house().lone_modules),
        "docstrings_that_ask": len(questions()),
        "vague_variables": vague_variables().total(),
    }


def details() -> dict[str, str]:
    """Return what is behind some of the figures, in a few words."""
    (folder, _), *_ = files_of_folders().most_common(1)
    longest = max(modules().values(), key=lines_of)
    return {
        "files_of_a_folder": folder,
        "lines_of_a_file": str(longest.relative_to(REPOSITORY)),
        "modules_in_circles_of_annotations": ", ".join(str(len(c)) for c in circles_of_modules(annotations=True)),
        "modules_with_one_importer": f"under {SMALL_MODULE} lines, without a reason in house.toml",
        "vague_variables": ", ".join(f"{name} {count}" for name, count in vague_variables().most_common()),
    }


def main() -> None:
    notes = details()
    print(f"{'':34} {'today':>7} {'most':>7} {'aim':>7}")
    for name, figure in figures().items():
        limit = house().limits[name]
        print(f"{name:34} {figure:7,} {limit.most:7,} {limit.aim:7,}  {notes.get(name, '')}".rstrip())


if __name__ == "__main__":
    main()
