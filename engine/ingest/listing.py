"""Listings of a landing folder: of a file system, or below a prefix of an object store.

Names decide what is looked at. Passed over are names that begin with ``.`` or ``_`` (folders so named with all below
them), and those that end as names of unfinished files do (:data:`UNFINISHED`); what is left must end with the suffix
of a recording. So ``drive.mcap.tmp`` is no recording, and ``drive.tmp.mcap`` is one: a name that keeps its suffix may
be meant, and a recording that was never taken would be the worse mistake.
"""

from __future__ import annotations

import os
import stat
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ..errors import ReadError, ReadWarning, SourceMissingError
from ..limits import is_text
from ..locations import located
from ..objects import ObjectUrl, bucket_of

UNFINISHED: Final = (".tmp", ".part", ".partial", ".crdownload", ".open", "~")
"""How names of files end that are not finished."""

_HIDDEN: Final = (".", "_")


def is_passed_over(name: str) -> bool:
    """Whether a file or folder of that name is none of ours.

    >>> [is_passed_over(name) for name in (".x.mcap", "_old", "x.mcap.TMP", "x.mcap~", "x.tmp.mcap")]
    [True, True, True, True, False]
    """
    return name.startswith(_HIDDEN) or name.lower().endswith(UNFINISHED)


class Sight(NamedTuple):
    """A file as it was seen: its path or URL, size in bytes, time of modification in ns (Unix)."""

    path: str
    size: int
    modified_ns: int


class Sightings(NamedTuple):
    """The files of a listing. ``unseen``: how paths begin of which it cannot be told whether they are there."""

    files: list[Sight]
    unseen: tuple[str, ...] = ()


class Listing(ABC):
    """One landing folder, listed again and again. What is odd in it gives one :class:`ReadWarning`, the first time."""

    def __init__(self, suffixes: Sequence[str]) -> None:
        self._suffixes = tuple(suffix.lower() for suffix in suffixes)
        self._told: set[tuple[str, str]] = set()

    @staticmethod
    def of(folder: str | os.PathLike[str], suffixes: Sequence[str]) -> Listing:
        """The listing of what a path or URL names."""
        found = located(folder)
        return ObjectListing(found, suffixes) if isinstance(found, ObjectUrl) else LocalListing(found, suffixes)

    @abstractmethod
    def check(self) -> None:
        """Raise ``SourceMissingError`` where there is no such folder, or it cannot be listed."""

    @abstractmethod
    def sightings(self) -> Sightings:
        """All recordings in the folder and below, in no order. Raises ``ReadError`` where it cannot be listed."""

    def _is_recording(self, name: str) -> bool:
        return name.lower().endswith(self._suffixes)

    def _tell(self, what: str, folder: str, message: str) -> None:
        """Warn of ``what``, once in each folder."""
        if (what, folder) not in self._told:
            self._told.add((what, folder))
            warnings.warn(message, ReadWarning, stacklevel=5)


class LocalListing(Listing):
    """A folder of a file system. Links to files are followed, links to folders are not."""

    def __init__(self, folder: Path, suffixes: Sequence[str]) -> None:
        super().__init__(suffixes)
        self._folder = str(folder)

    def check(self) -> None:
        """Raise ``SourceMissingError`` where there is no such folder, or it cannot be listed."""
        try:
            os.scandir(self._folder).close()
        except OSError as error:
            raise SourceMissingError(
                f"this folder cannot be listed: {error.strerror}",
                path=self._folder,
                hint="Name an existing folder that may be read, into which recordings are put.",
            ) from error

    def sightings(self) -> Sightings:
        """All recordings in the folder and below, in no order. Raises a transient ``ReadError``."""
        files: list[Sight] = []
        folders: list[str] = []
        unseen: dict[str, None] = {}
        try:
            if not self._scan(self._folder, files, folders):
                unseen[self._folder] = None
        except OSError as error:
            raise ReadError(
                f"the landing folder cannot be listed: {error.strerror}",
                path=self._folder,
                hint="It will be looked at again.",
                transient=True,
            ) from error
        while folders:
            folder = folders.pop()
            try:
                if not self._scan(folder, files, folders):
                    unseen[folder] = None
            except FileNotFoundError:
                continue  # removed in this moment
            except OSError as error:
                unseen[folder] = None
                self._tell("folder", folder, f"{folder} cannot be listed, and is passed over: {error.strerror}")
        return Sightings(files, tuple(os.path.join(folder, "") for folder in unseen))  # noqa: PTH118 (it ends with /)

    def _scan(self, folder: str, files: list[Sight], folders: list[str]) -> bool:
        """Add what lies right in ``folder``; False where something could not be looked at."""
        complete = True
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_passed_over(entry.name):
                    continue
                try:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif self._is_recording(entry.name):
                        self._add(entry, folder, files)
                    elif entry.is_symlink() and entry.is_dir():
                        self._tell_link(entry.path)
                except OSError as error:
                    complete &= self._explained(entry, folder, error)
        return complete

    def _add(self, entry: os.DirEntry[str], folder: str, files: list[Sight]) -> None:
        path = entry.path
        found = entry.stat()
        if stat.S_ISDIR(found.st_mode):
            self._tell_link(path)
        elif not stat.S_ISREG(found.st_mode):
            self._tell("kind", path, f"{path} is not a file, and is passed over")
        elif not is_text(path):
            self._tell("name", folder, f"{path!r} has a name that is not UTF-8, and is passed over; rename it")
        else:
            files.append(Sight(path, found.st_size, found.st_mtime_ns))

    def _explained(self, entry: os.DirEntry[str], folder: str, error: OSError) -> bool:
        """Tell of an entry that cannot be looked at, unless it is gone by now; False where there may be a file."""
        if not isinstance(error, FileNotFoundError):
            self._tell("file", folder, f"{entry.path} cannot be looked at, and is passed over: {error.strerror}")
            return False
        if entry.is_symlink():
            self._tell("dangling", entry.path, f"{entry.path} is a link to a file that does not exist")
        return True

    def _tell_link(self, path: str) -> None:
        self._tell("link", path, f"{path} is a link to a folder, which is not followed")


class ObjectListing(Listing):
    """The objects below a prefix. An empty prefix is an empty folder; a bucket has to be there."""

    def __init__(self, url: ObjectUrl, suffixes: Sequence[str]) -> None:
        super().__init__(suffixes)
        self._url = url
        self._start = len(url.key) + 1 if url.key else 0

    def check(self) -> None:
        """Raise ``SourceMissingError`` where there is no such bucket, ``ReadError`` where it cannot be listed."""
        next(bucket_of(self._url).list(self._url.key, odd=lambda *_: None), None)

    def sightings(self) -> Sightings:
        """All recordings below the prefix, in the order of their keys. Raises ``ReadError``."""
        found = bucket_of(self._url).list(self._url.key, odd=self._tell_odd)
        return Sightings([Sight(str(one.url), one.size, one.modified_ns) for one in found if self._is_ours(one.url)])

    def _is_ours(self, url: ObjectUrl) -> bool:
        parts = url.key[self._start :].split("/")
        return self._is_recording(parts[-1]) and not any(is_passed_over(p) for p in parts if p not in (".", ".."))

    def _tell_odd(self, url: ObjectUrl, message: str) -> None:
        if self._is_ours(url):
            self._tell("key", str(url), message)
