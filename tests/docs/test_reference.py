"""The reference has every public name, and no other."""

from __future__ import annotations

import importlib
import re
from collections import defaultdict

import pytest
from chunkmill.engine.errors import MissingExtraError
from places import REPOSITORY

PAGES = REPOSITORY / "docs" / "api"
PUBLIC = ("chunkmill", "chunkmill.engine", "chunkmill.readers", "chunkmill.lenses")
PARTS = (
    *("alignment", "catalog_0_27", "catalog_server", "engine", "lenses", "readers", "training", "video"),
    "__version__",
)
OTHER_NAMES = ("DatasetSelection", "ObjectStoreAuth", "RegistrationOperation")
"""Names of Rerun 0.41 for classes that the pages show by another name."""
OBJECT = re.compile(r"^::: ([\w.]+)\n((?:    .*\n)*)", re.MULTILINE)


def shown(*, constructed: bool = False) -> list[str]:
    """The full name of each object for which a page has a section; members that are listed, by their own.

    With ``constructed`` without the classes whose objects come from methods, so that their constructor is not shown.
    """
    names = []
    for page in sorted(PAGES.glob("*.md")):
        for name, options in OBJECT.findall(page.read_text(encoding="utf-8") + "\n"):
            if constructed and "merge_init_into_class: false" in options:
                continue
            members = re.findall(r"^ +- (\w+)$", options, re.MULTILINE)
            names += [name, *(f"{name}.{member}" for member in members)]
    return names


def resolved(name: str) -> object:
    """The module, class or value of a full name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        home, _, last = name.rpartition(".")
        around = resolved(home)
        try:
            return getattr(around, last)
        except MissingExtraError:
            if last not in getattr(around, "__all__", ()):
                raise
            return None


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_is_in_the_reference(package: str) -> None:
    module = importlib.import_module(package)
    pages = defaultdict(list)
    for full_name in shown():
        pages[full_name.rpartition(".")[2]].append(full_name)
    names_of_others = {name: getattr(module, name).__name__ for name in OTHER_NAMES if name in module.__all__}
    assert set(names_of_others.values()) <= pages.keys()
    public = [name for name in module.__all__ if name not in (*PARTS, *names_of_others)]
    missing = [name for name in public if name not in pages]
    assert not missing, f"docs/api does not show {missing} of {package}"
    other = [name for name in public if all(resolved(page) is not getattr(module, name) for page in pages[name])]
    assert not other, f"docs/api shows something else as {other}"


def test_every_section_of_the_reference_is_of_something_that_is_there() -> None:
    names = shown()
    for name in names:
        resolved(name)
    assert len(names) == len(set(names)), "an object has two sections"
