"""Imports point down, never in a circle, and libraries stay in the rooms of the table that have them."""

from __future__ import annotations

import sys
from functools import cache

from figures import circles_of_modules
from rooms import house, is_within
from source_tree import (
    SOURCE_FOLDERS,
    annotation_lines,
    foreign_imports,
    imports_in_strings,
    module_name,
    modules,
    own_imports,
    python_files,
)


def rooms_of(names: set[str]) -> dict[str, str]:
    """Return the room of each module."""
    return {name: room.name if (room := house().room_of(name)) else "" for name in names}


@cache
def rooms_below(name: str) -> set[str]:
    return house().imports_of(house().rooms[name])


def imports_from_above(name: str) -> list[str]:
    """Return the modules that a module imports, or names in strings, and that its room may not."""
    room = house().room_of(name)
    assert room is not None, f"{name} is in no room of house.toml"
    around = house().around(room)
    below = rooms_below(room.name)
    annotated = {above for one in around for above in one.annotations}
    named = {above for one in around for above in one.strings}
    run = own_imports(name, annotation_lines(name))
    kinds = ((run, set()), (own_imports(name) - run, annotated), (imports_in_strings(name), named))
    return sorted(
        target
        for targets, above in kinds
        for target, home in rooms_of(set(targets)).items()
        if home not in below and not any(is_within(home, room) for room in above)
    )


def libraries_of(room_name: str) -> set[str]:
    room = house().rooms[room_name]
    return {library for around in house().around(room) for library in around.libraries} | house().libraries


def foreign_libraries(name: str) -> set[str]:
    """Return the libraries that a module imports, by the first parts of their names."""
    libraries = {library.partition(".")[0] for library in foreign_imports(modules()[name])}
    return {library for library in libraries if library not in sys.stdlib_module_names} | (
        libraries & house().forbidden.keys()
    )


def test_imports_point_down() -> None:
    assert {name: above for name in sorted(modules()) if (above := imports_from_above(name))} == {}


def test_a_room_imports_only_rooms_below_it_in_the_table() -> None:
    order = {name: at for at, name in enumerate(house().rooms)}
    *floors, _ = house().floors.values()  # rooms of the ground may know each other
    assert [
        f"{room.name} imports {name}"
        for rooms in floors
        for room in rooms
        for name in house().imports_of(room)
        if not is_within(name, room.name) and order[name] < order[room.name]
    ] == []


def test_every_package_is_a_room_and_every_room_is_there() -> None:
    packages = {name for name, path in modules().items() if path.name == "__init__.py"}
    planned = {room.name for room in house().rooms.values() if room.planned}
    assert house().rooms.keys() - planned <= modules().keys()
    assert packages <= house().rooms.keys()


def test_no_circle_between_modules() -> None:
    assert circles_of_modules(annotations=False) == []


def test_libraries_stay_home() -> None:
    foreign = {
        (name, library): home
        for name, home in rooms_of(set(modules())).items()
        for library in foreign_libraries(name) - libraries_of(home)
    }
    assert {
        f"{name} imports {library}, which {home} has not in house.toml" for (name, library), home in foreign.items()
    } == set()


def test_every_library_of_the_table_is_used() -> None:
    homes = rooms_of(set(modules()))
    used = {(home, library) for name, home in homes.items() for library in foreign_libraries(name)}
    assert [
        f"{room.name}: {library}"
        for room in house().rooms.values()
        for library in sorted(room.libraries)
        if not any(library == other and is_within(home, room.name) for home, other in used)
    ] == []


def test_own_modules_are_imported_relatively() -> None:
    assert [
        module_name(path)
        for path in python_files(*SOURCE_FOLDERS)
        if {name.partition(".")[0] for name in foreign_imports(path)} & {"chunkmill", *SOURCE_FOLDERS}
    ] == []
