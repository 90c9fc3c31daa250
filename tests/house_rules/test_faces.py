"""A package is used by its face: what others need of it is named in its ``__init__``, and nobody imports past that."""

from __future__ import annotations

from collections import Counter

from rooms import MAP, PAGE, drawn, house, is_within
from source_tree import REPOSITORY, modules, own_imports
from stubs import homes_of, names_in, stubs


def is_own_package(module: str, package: str) -> bool:
    """Return True if a module is in a package inside ``package``, which has a face of its own."""
    return module != package and is_within(module, package) and modules()[module].name == "__init__.py"


def test_nobody_imports_past_a_face() -> None:
    imports = {name: own_imports(name) for name in modules()}
    assert [
        f"{name} imports {target}: name it in the __init__ of {room.name}"
        for room in house().rooms.values()
        if room.face and room.name not in ("engine", "engine.package")
        for name, targets in imports.items()
        if not is_within(name, room.name)
        for target in targets
        if target.startswith(f"{room.name}.") and not is_own_package(target, room.name)
    ] == []


def test_the_map_of_the_architecture_page_is_the_table_of_rooms() -> None:
    shown = MAP.search(PAGE.read_text(encoding="utf-8"))
    assert shown is not None
    assert shown[0] == drawn(), "python -m tests.run house rooms --write"


def test_every_package_is_in_the_architecture_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    packages = [name.replace(".", "/") for name, path in modules().items() if path.name == "__init__.py"]
    assert not [package for package in packages if package not in page]


def test_stubs_are_made_of_the_tables() -> None:
    assert [
        f"{path.relative_to(REPOSITORY)}: python -m tests.run house stubs"
        for path, text in stubs().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ] == []


def test_a_name_has_one_home() -> None:
    listed = {
        name: Counter(word for home, names in homes_of(path).items() for word in names_in(home, names))
        for name, path in modules().items()
    }
    twice = {f"{name}: {word}" for name, words in listed.items() for word, count in words.items() if count > 1}
    assert twice == {"engine.package: video"}, "the later home would hide the other one's name"
