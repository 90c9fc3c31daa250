"""Which line of the user's own code an error comes from."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_FRAME = re.compile(r'^\s*File "(?P<file>[^"\n]+)", line (?P<line>\d+)', re.MULTILINE)
_NOT_THEIRS = {"site-packages", "dist-packages"}


class Place(NamedTuple):
    """A line of a file; lines count from 1."""

    file: str
    line: int


class OwnCode:
    """The code that belongs to a pipeline: one file, or with ``siblings`` every file below its folder too."""

    def __init__(self, file: Path, *, siblings: bool) -> None:
        self._file = file
        self._folder = file.parent if siblings else None

    def place_in(self, error: BaseException) -> Place | None:
        """The innermost line of this code that ``error`` passed; None where it passed none.

        An error that comes from a task has its traceback as text, in a note.
        """
        if isinstance(error, SyntaxError) and error.filename is not None and self._is_own(error.filename):
            return Place(error.filename, error.lineno or 1)
        own = [place for place in _passed(error) if self._is_own(place.file)]
        return own[-1] if own else None

    def _is_own(self, name: str) -> bool:
        path = Path(name)
        if path == self._file:
            return True
        if self._folder is None or not path.is_relative_to(self._folder):
            return False
        return _NOT_THEIRS.isdisjoint(path.parts) and not path.is_relative_to(_CHUNKMILL)


_CHUNKMILL = Path(__file__).resolve().parent.parent
"""The folder of the engine: code below it is never the user's."""


def _passed(error: BaseException) -> Iterator[Place]:
    """The places that an error passed, the innermost last."""
    for frame in traceback.extract_tb(error.__traceback__):
        yield Place(frame.filename, frame.lineno or 1)
    for note in getattr(error, "__notes__", ()):
        for found in _FRAME.finditer(note):
            yield Place(found["file"], int(found["line"]))
