"""Names of files in an archive, where nothing is written over."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from ...readers import stem_of


class Place(Enum):
    """What is under a name of the archive."""

    FREE = "free"
    """Nothing."""
    OURS = "ours"
    """The very file that is to go there, or a copy of it: a run was cut between the two steps of a move."""
    TAKEN = "taken"
    """Something else."""


def numbered(name: str, number: int) -> str:
    """The name that a file gets when ``number - 1`` of its name were there before.

    >>> [numbered(name, number) for name, number in (("drive.mcap", 1), ("drive.mcap", 2), ("drive.v2.MCAP.zst", 3))]
    ['drive.mcap', 'drive-2.mcap', 'drive.v2-3.MCAP.zst']
    """
    if number == 1:
        return name
    stem = stem_of(name)
    return f"{stem}-{number}{name[len(stem) :]}"


def find_place(name: str, look: Callable[[str], Place]) -> tuple[str, Place]:
    """The name of a file in its folder of the archive, and what ``look`` says of it: free, or ours.

    As names are taken one after the other, few are looked at: of each power of two until one is not taken, then by
    halves. While nobody else writes there, the same names are looked at each time, so that what is ours is found.
    """
    taken, end = 0, 1
    while (place := look(numbered(name, end))) is Place.TAKEN:
        taken, end = end, 2 * end
    while end - taken > 1:
        middle = (taken + end) // 2
        found = look(numbered(name, middle))
        if found is Place.TAKEN:
            taken = middle
        else:
            end, place = middle, found
    return numbered(name, end), place
