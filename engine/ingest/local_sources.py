"""Source files of a file system that are done with."""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
from pathlib import Path

from ..execution.folders import sync_folder
from ..faults import reach
from .archive_names import Place, find_place
from .digests import landed
from .files import LandedFile


class LocalSources:
    """The files of a landing folder, to be removed or moved to ``archive``.

    What has changed since it was read is left alone, and what is gone already is fine.
    """

    def __init__(self, landing: Path, archive: Path | None) -> None:
        self._landing = landing
        self._archive = archive

    def delete(self, file: LandedFile) -> bool:
        """Remove a file; whether that was done. Raises ``OSError``."""
        if landed(file.path) != file:
            return False
        Path(file.path).unlink(missing_ok=True)
        return True

    def archive(self, file: LandedFile) -> bool:
        """Move a file to its place in the archive, over nothing; whether that was done. Raises ``OSError``."""
        assert self._archive is not None
        if landed(file.path) != file:
            return False
        path = Path(file.path)
        folder = (self._archive / path.relative_to(self._landing)).parent
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            name, place = find_place(path.name, lambda name: _look(path, folder / name))
            if place is Place.OURS:
                path.unlink()
                return True
            with contextlib.suppress(FileExistsError):  # somebody took the name in this moment
                _move_without_replacing(path, folder / name)
                return True


def _look(path: Path, target: Path) -> Place:
    if not os.path.lexists(target):
        return Place.FREE
    return Place.OURS if _is_the_same(path, target) else Place.TAKEN


def _is_the_same(path: Path, target: Path) -> bool:
    """Whether ``target`` is this file, or where that is on another file system a copy of it."""
    try:
        one, other = path.stat(), target.stat()
    except FileNotFoundError:
        return False
    if one.st_dev == other.st_dev:
        return one.st_ino == other.st_ino
    alike = (one.st_size, one.st_mtime_ns) == (other.st_size, other.st_mtime_ns)
    return alike and filecmp.cmp(path, target, shallow=False)


def _move_without_replacing(path: Path, target: Path) -> None:
    """Move a file; raises ``FileExistsError`` where there is one. Across file systems it is copied first."""
    try:
        os.link(path, target)
    except OSError as error:
        if isinstance(error, FileExistsError):
            raise
        if os.path.lexists(target):
            raise FileExistsError(target) from None
        draft = target.with_name(f".{target.name}.draft")
        shutil.copy2(path, draft)
        with draft.open("rb") as copy:
            os.fsync(copy.fileno())
        draft.rename(target)
    sync_folder(target.parent)
    reach("source.archive")
    path.unlink()
