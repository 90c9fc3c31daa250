"""Disposal of source files whose recordings are committed: they are kept, archived or deleted.

In the archive nothing is written over: a file whose name is taken there gets a number.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
from collections.abc import Callable
from enum import Enum, StrEnum
from pathlib import Path

from ...readers import stem_of
from ..errors import ReadError, UsageError, WriteError, writing
from ..execution import sync_folder
from ..faults import reach
from ..locations import Location
from ..objects import ObjectInfo, ObjectUrl, await_copy, bucket_of, copy_object, have_same_content, remove_object
from .files import LandedFile, file_at


class SourceDone(StrEnum):
    """The lot of a source file whose recordings are committed."""

    KEEP = "keep"
    """It stays where it is."""
    ARCHIVE = "archive"
    """It is moved to the archive folder, below which it keeps its place."""
    DELETE = "delete"
    """It is removed."""


class Disposal:
    """Keeps, archives or deletes source files. A file that has changed since it was read is left alone."""

    def __init__(self, kind: SourceDone, source: Location, archive: Location | None = None) -> None:
        if kind is SourceDone.ARCHIVE:
            _check_archive(source, archive)
        self.kind = kind
        self._sources: LocalSources | ObjectSources
        if isinstance(source, ObjectUrl):
            self._sources = ObjectSources(source, archive if isinstance(archive, ObjectUrl) else None)
        else:
            self._sources = LocalSources(source, archive if isinstance(archive, Path) else None)

    @property
    def keeps(self) -> bool:
        """Whether files stay where they are."""
        return self.kind is SourceDone.KEEP

    def dispose(self, file: LandedFile) -> None:
        """Do it. A file that is gone already is fine.

        Raises ``WriteError``, and ``ReadError`` where a store does not tell what is there.
        """
        if self.keeps:
            return
        with writing(file.path):
            done = self._sources.delete(file) if self.kind is SourceDone.DELETE else self._sources.archive(file)
        if done:
            reach("source.dispose")


def _check_archive(source: Location, archive: Location | None) -> None:
    """Raise ``UsageError`` where files of ``source`` cannot be archived in ``archive``."""
    if archive is None:
        raise UsageError("there is no folder to archive into", hint="Name one (--archive, archive=…).")
    if _store_of(source) != _store_of(archive):
        raise UsageError(
            f"files of {source} can be archived in the same bucket or file system only",
            path=str(archive),
            hint="Name a folder of the same bucket, or for local files a local folder; to have them elsewhere, keep "
            "them, and let the store's own tools move them.",
        )
    if _below(archive).startswith(_below(source)):
        raise UsageError(
            "the archive lies in the landing folder, whose files are ingested",
            path=str(archive),
            hint="Choose a folder beside it.",
        )


def _store_of(place: Location) -> tuple[str, str] | None:
    """The store of a place; None for the file system."""
    return place.store if isinstance(place, ObjectUrl) else None


def _below(place: Location) -> str:
    """The beginning of the paths (in a bucket the keys) of files below a place."""
    path = place.key if isinstance(place, ObjectUrl) else str(place)
    return f"{path}/" if path else ""


class Occupancy(Enum):
    """The state of a name of the archive."""

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


def find_name(name: str, look: Callable[[str], Occupancy]) -> tuple[str, Occupancy]:
    """The name of a file in its folder of the archive, and what ``look`` says of it: free, or ours.

    As names are taken one after the other, few are looked at: of each power of two until one is not taken, then by
    halves. While nobody else writes there, the same names are looked at each time, so that what is ours is found.
    """
    taken, end = 0, 1
    while (place := look(numbered(name, end))) is Occupancy.TAKEN:
        taken, end = end, 2 * end
    while end - taken > 1:
        middle = (taken + end) // 2
        found = look(numbered(name, middle))
        if found is Occupancy.TAKEN:
            taken = middle
        else:
            end, place = middle, found
    return numbered(name, end), place


class LocalSources:
    """The files of a landing folder, to be removed or moved to ``archive``.

    What has changed since it was read is left alone, and what is gone already is fine.
    """

    def __init__(self, landing: Path, archive: Path | None) -> None:
        self._landing = landing
        self._archive = archive

    def delete(self, file: LandedFile) -> bool:
        """Remove a file; whether that was done. Raises ``OSError``."""
        if file_at(file.path) != file:
            return False
        Path(file.path).unlink(missing_ok=True)
        return True

    def archive(self, file: LandedFile) -> bool:
        """Move a file to its place in the archive, over nothing; whether that was done. Raises ``OSError``."""
        assert self._archive is not None
        if file_at(file.path) != file:
            return False
        path = Path(file.path)
        folder = (self._archive / path.relative_to(self._landing)).parent
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            name, place = find_name(path.name, lambda name: _look_in_folder(path, folder / name))
            if place is Occupancy.OURS:
                path.unlink()
                return True
            with contextlib.suppress(FileExistsError):  # somebody took the name in this moment
                _move_without_replacing(path, folder / name)
                return True


def _look_in_folder(path: Path, target: Path) -> Occupancy:
    if not os.path.lexists(target):
        return Occupancy.FREE
    return Occupancy.OURS if _is_the_same(path, target) else Occupancy.TAKEN


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


class ObjectSources:
    """The objects below a prefix, to be removed or moved below the prefix ``archive`` of the same bucket.

    What has changed since it was read is left alone, and what is gone already is fine. A move is a copy inside the
    store, and then a removal, on the condition that the source still is what was copied; stores other than S3, and
    some servers of its protocol, know no such condition, and are asked right before.
    """

    def __init__(self, landing: ObjectUrl, archive: ObjectUrl | None) -> None:
        self._landing = landing
        self._archive = archive

    def delete(self, file: LandedFile) -> bool:
        """Remove an object; whether that was done. Raises ``WriteError``, and ``ReadError`` where nothing is told."""
        source = _as_read(file)
        if source is None:
            return False
        remove_object(source)
        return True

    def archive(self, file: LandedFile) -> bool:
        """Move an object to its place in the archive, over nothing; whether that was done. Raises as ``delete``."""
        source = _as_read(file)
        if source is None or not self._copy(file, source):
            return False
        reach("source.archive")
        if _as_read(file) != source:
            return False
        remove_object(source)
        return True

    def _copy(self, file: LandedFile, source: ObjectInfo) -> bool:
        """See to it that a copy is in the archive; whether the source was what it is meanwhile."""
        assert self._archive is not None
        below = source.url.key[len(self._landing.key) + 1 :] if self._landing.key else source.url.key
        folder = f"{self._archive.key}/{below}".lstrip("/").rpartition("/")[0]

        def at(name: str) -> ObjectUrl:
            return ObjectUrl(source.url.scheme, source.url.bucket, f"{folder}/{name}".lstrip("/"))

        while True:
            target = None
            try:
                name, place = find_name(source.url.name, lambda name: _look_in_bucket(source, at(name)))
                if place is Occupancy.OURS:
                    return True
                target = at(name)
                copy_object(source, target)
            except (ReadError, WriteError):
                if _as_read(file) != source:
                    return False
                if target is None or not bucket_of(target).exists(target.key):
                    raise
                continue  # somebody took the name in this moment, or the copy is there and its answer was lost
            await_copy(source, target)
            return True


def _as_read(file: LandedFile) -> ObjectInfo | None:
    """The object that was read, if it is still there and as it was."""
    url = ObjectUrl.of(file.path)
    found = bucket_of(url).find(url.key)
    return found if found and (found.size, found.modified_ns) == (file.size, file.modified_ns) else None


def _look_in_bucket(source: ObjectInfo, target: ObjectUrl) -> Occupancy:
    found = bucket_of(target).find(target.key)
    if found is None:
        return Occupancy.FREE
    return Occupancy.OURS if have_same_content(source, found) else Occupancy.TAKEN
