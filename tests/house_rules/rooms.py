"""Print the map of the architecture page, which is the table of rooms in words; ``--write`` puts it into the page.

python -m tests.run house rooms [--write]
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

TABLE = Path(__file__).parent / "house.toml"
PAGE = TABLE.parents[2] / "docs" / "architecture.md"

FACE_OF_ALL = "engine"
"""The module whose names come from all rooms of the engine; the modules beside it are the ground."""


@dataclass(frozen=True)
class Room:
    """A package: what it holds, and what it may import.

    ``imports`` are rooms, and floors, which stand for all of their rooms; a room that has none has those of the room
    around it. ``libraries`` may be imported in it and in the rooms inside it. ``annotations`` and ``strings`` are rooms
    above it that it may name for a type checker, and in strings. ``variables`` are globals that may change, and
    ``lone_modules`` small modules with one importer, each with the reason. Without a ``face``, a room may be imported
    past its ``__init__``. A ``planned`` one need not be there yet.
    """

    name: str
    holds: str
    floor: str = ""
    imports: tuple[str, ...] = ()
    libraries: frozenset[str] = frozenset()
    annotations: frozenset[str] = frozenset()
    strings: frozenset[str] = frozenset()
    variables: Mapping[str, str] = field(default_factory=dict)
    lone_modules: Mapping[str, str] = field(default_factory=dict)
    face: bool = True
    planned: bool = False


@dataclass(frozen=True)
class Limit:
    """The most that a figure may be today, and what it is to become."""

    most: int
    aim: int


@dataclass(frozen=True)
class House:
    """The table of rooms, from the top to the ground."""

    rooms: Mapping[str, Room]
    limits: Mapping[str, Limit]
    libraries: frozenset[str]
    forbidden: Mapping[str, str]

    @property
    def lone_modules(self) -> dict[str, str]:
        """Small modules with one importer, each with the reason."""
        return {
            f"{room.name}.{module}": why for room in self.rooms.values() for module, why in room.lone_modules.items()
        }

    @property
    def floors(self) -> dict[str, list[Room]]:
        """The rooms that stand in no other, by their floors."""
        floors: dict[str, list[Room]] = {}
        for room in self.rooms.values():
            if room.floor:
                floors.setdefault(room.floor, []).append(room)
        return floors

    def room_of(self, module: str) -> Room | None:
        """Return the room that a module is in."""
        name = "engine.package" if module == FACE_OF_ALL else module
        while name and name not in self.rooms:
            name = name.rpartition(".")[0]
        return self.rooms.get(name)

    def around(self, room: Room) -> list[Room]:
        """Return a room and those around it, up to the one that stands on a floor."""
        rooms = [room]
        while not rooms[-1].floor:
            rooms.append(self.rooms[rooms[-1].name.rpartition(".")[0]])
        return rooms

    def imports_of(self, room: Room) -> set[str]:
        """Return the names of the rooms that a room may import, those around it and inside them among them."""
        outer = self.around(room)[-1]
        ground = next(reversed(self.floors))
        named = (ground, outer.name, *(name for one in self.around(room) for name in one.imports))
        rooms = {inner.name for name in named for inner in self.floors.get(name, ())} | {*named}
        return {name for name in self.rooms if any(is_within(name, room) for room in rooms if room != FACE_OF_ALL)} | {
            FACE_OF_ALL
        }


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


@cache
def house() -> House:
    """Return the table of rooms."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    sets = ("libraries", "annotations", "strings")
    rooms = [
        Room(**{k: frozenset(v) if k in sets else tuple(v) if k == "imports" else v for k, v in row.items()})
        for row in table["room"]
    ]
    return House(
        {room.name: room for room in rooms},
        {name: Limit(**limit) for name, limit in table["limits"].items()},
        frozenset(table["libraries"]["everywhere"]),
        table["libraries"]["nowhere"],
    )


def drawn() -> str:
    """Return the map of the house as the architecture page shows it."""
    lines = ["| package | holds |", "|---|---|"]
    for floor, rooms in house().floors.items():
        lines.append(f"| **{floor}** | |")
        for outer in rooms:
            inside = [room for room in house().rooms.values() if is_within(room.name, outer.name) and not room.floor]
            inside = inside if outer.name != FACE_OF_ALL else []
            lines += [f"| `{r.name.replace('.', '/')}` | {r.holds} |" for r in (outer, *inside) if not r.planned]
    return "\n".join(lines)


MAP = re.compile(r"(?<=<!-- rooms -->\n\n).*?(?=\n\n<!-- /rooms -->)", re.DOTALL)
"""The part of the page between its marks."""


def main() -> None:
    if "--write" in sys.argv:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(MAP.sub(lambda _: drawn(), page), encoding="utf-8")
    else:
        print(drawn())


if __name__ == "__main__":
    main()
