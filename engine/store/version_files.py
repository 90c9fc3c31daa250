"""Version files: numbered JSON files that each appear whole, in one step, and never change."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from ..errors import ReadError, SourceMissingError, UnsupportedError
from ..execution.folders import Folder
from ..failing import writing
from ..rrd.digest import digest_of

FORMAT: Final = 1
RESTORE: Final = "The store was damaged; restore the file from a copy, or open another version."

_NAME: Final = re.compile(r"\d{8,}\.json")
_POINTS: Final = ("version.draft", "version.publish")


class VersionFiles:
    """The version files of a store. ``store`` is how errors name it, ``how`` how one is made."""

    def __init__(self, folder: Folder, store: str, how: str) -> None:
        self.folder = folder
        self._store = store
        self._how = how

    def numbers(self, *, may_be_new: bool = False) -> list[int]:
        """The numbers of all versions, ascending. Raises ``SourceMissingError`` where there is no store."""
        if not may_be_new and not self.folder.exists():
            raise SourceMissingError("no store is kept here", path=self._store, hint=self._how)
        return sorted(number_of(name) for name in self.folder.names() if _NAME.fullmatch(name))

    def newest(self) -> int:
        """The number of the newest version, 0 where there is none."""
        return max(self.numbers(may_be_new=True), default=0)

    def chosen(self, number: int | None) -> int:
        """``number`` if there is such a version; the newest for None. Raises ``SourceMissingError``."""
        numbers = self.numbers()
        wanted = numbers[-1] if number is None and numbers else number or 0
        if wanted in numbers:
            return wanted
        have = ", ".join(map(str, numbers)) or "none"
        raise SourceMissingError(f"there is no version {number}", path=self._store, hint=f"There are: {have}.")

    def read(self, number: int) -> dict[str, Any]:
        """What a version file says. Raises ``ReadError`` where it is not what was written."""
        name = name_of(number)
        place = self.folder.place(name)
        try:
            data = json.loads(self.folder.get(name))
            if data.pop("digest", None) != _digest(data):
                raise ValueError("it is not what was written: its digest differs")
            if data.pop("format", None) != FORMAT:
                raise UnsupportedError(
                    "this version has a format that is not known here",
                    path=place,
                    hint="It was written by a newer release; read it with that.",
                )
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise unreadable(error, place) from error
        assert isinstance(data, dict)
        return data

    def publish(self, number: int, data: dict[str, Any]) -> bool:
        """Put a version there if no other has its number: the one step that makes it visible."""
        whole = {"format": FORMAT, **data}
        text = json.dumps({**whole, "digest": _digest(whole)})
        with writing(self._store):
            return self.folder.create(name_of(number), text.encode(), _POINTS)

    def delete(self, numbers: list[int]) -> None:
        """Remove versions."""
        self.folder.delete(name_of(number) for number in numbers)


def unreadable(error: Exception, place: str) -> ReadError:
    """What to say of a version file that cannot be understood."""
    return ReadError(f"this version cannot be read: {error}", path=place, hint=RESTORE)


def name_of(number: int) -> str:
    """The name of a version file.

    >>> name_of(12)
    '00000012.json'
    """
    return f"{number:08d}.json"


def number_of(name: str) -> int:
    """The number of a version file."""
    return int(name.partition(".")[0])


def _digest(data: dict[str, Any]) -> str:
    """The digest of what a version file says, its own digest left out."""
    return digest_of(json.dumps(data, sort_keys=True).encode()).hex()
