"""What becomes of source files whose recordings are committed."""

from __future__ import annotations

import contextlib
import filecmp
import os
from enum import StrEnum
from pathlib import Path

from ..errors import UsageError
from ..execution.folders import sync_folder
from ..failing import writing
from ..faults import reach
from ..locations import Location
from ..objects import ObjectUrl, bucket_of
from .digests import landed
from .files import LandedFile


class SourceDone(StrEnum):
    """What becomes of a source file when its recordings are committed."""

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
            if archive is None:
                raise UsageError("there is no folder to archive into", hint="Name one (--archive, archive=…).")
            if isinstance(source, ObjectUrl) or isinstance(archive, ObjectUrl):
                raise UsageError(
                    "files of an object store cannot be archived",
                    path=str(source),
                    hint="Keep or delete them; a store's own life-cycle rules can move them.",
                )
            if f"{archive}/".startswith(f"{source}/"):
                raise UsageError(
                    "the archive lies in the landing folder, whose files are ingested",
                    path=str(archive),
                    hint="Choose a folder beside it.",
                )
        self.kind = kind
        self._source = source
        self._archive = archive

    @property
    def keeps(self) -> bool:
        """Whether files stay where they are."""
        return self.kind is SourceDone.KEEP

    def dispose(self, file: LandedFile) -> None:
        """Do it. A file that is gone already is fine. Raises ``WriteError``."""
        if self.keeps or landed(file.path) != file:
            return
        with writing(file.path):
            if self.kind is SourceDone.DELETE:
                self._delete(file)
            else:
                self._move(Path(file.path))
        reach("source.dispose")

    def _delete(self, file: LandedFile) -> None:
        if isinstance(self._source, ObjectUrl):
            url = ObjectUrl.of(file.path)
            bucket_of(url).delete([url.key])
        else:
            Path(file.path).unlink(missing_ok=True)

    def _move(self, path: Path) -> None:
        assert isinstance(self._source, Path)
        assert isinstance(self._archive, Path)
        target = self._archive / path.relative_to(self._source)
        target.parent.mkdir(parents=True, exist_ok=True)
        for name in _names(target):
            if _is_the_same(path, name):  # a run was cut between the two steps of the move
                path.unlink()
                return
            with contextlib.suppress(FileExistsError):
                _move_without_replacing(path, name)
                return


def _names(target: Path) -> list[Path]:
    """Names for a file in the archive: its own, then others, so that nothing there is written over."""
    return [target, *(target.with_name(f"{target.stem}-{i}{target.suffix}") for i in range(2, 1000))]


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
        if target.exists():
            raise FileExistsError(target) from None
        import shutil

        draft = target.with_name(f".{target.name}.draft")
        shutil.copy2(path, draft)
        with draft.open("rb") as copy:
            os.fsync(copy.fileno())
        draft.rename(target)
    sync_folder(target.parent)
    reach("source.archive")
    path.unlink()
