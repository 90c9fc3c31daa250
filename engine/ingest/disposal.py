"""What becomes of source files whose recordings are committed."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Protocol

from ..errors import UsageError
from ..failing import writing
from ..faults import reach
from ..locations import Location
from ..objects import ObjectUrl
from .files import LandedFile
from .local_sources import LocalSources
from .object_sources import ObjectSources


class SourceDone(StrEnum):
    """What becomes of a source file when its recordings are committed."""

    KEEP = "keep"
    """It stays where it is."""
    ARCHIVE = "archive"
    """It is moved to the archive folder, below which it keeps its place."""
    DELETE = "delete"
    """It is removed."""


class Sources(Protocol):
    """The files of a landing folder. What has changed since it was read is left alone; both tell what was done."""

    def delete(self, file: LandedFile) -> bool:
        """Remove a file."""

    def archive(self, file: LandedFile) -> bool:
        """Move a file to the archive, over nothing."""


class Disposal:
    """Keeps, archives or deletes source files. A file that has changed since it was read is left alone."""

    def __init__(self, kind: SourceDone, source: Location, archive: Location | None = None) -> None:
        if kind is SourceDone.ARCHIVE:
            _check_archive(source, archive)
        self.kind = kind
        self._sources = _sources(source, archive)

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


def _sources(source: Location, archive: Location | None) -> Sources:
    if isinstance(source, ObjectUrl):
        return ObjectSources(source, archive if isinstance(archive, ObjectUrl) else None)
    return LocalSources(source, archive if isinstance(archive, Path) else None)


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
    """How the paths (in a bucket the keys) of files below a place begin."""
    path = place.key if isinstance(place, ObjectUrl) else str(place)
    return f"{path}/" if path else ""
