"""A landing folder: listing its files, choosing those ready to be read, and offering the next ones.

Names select the files. Names that begin with ``.`` or ``_`` (folders with everything below them), and those that end
like unfinished files (:data:`UNFINISHED`), are ignored; the others must end with the suffix of a recording. So
``drive.mcap.tmp`` is no recording, and ``drive.tmp.mcap`` is one: a name that keeps its suffix may be meant, and to
ignore a recording for ever would be the worse mistake.

A file is ready when its size and time of modification have not changed for ``settle_seconds``. This time is
measured by the steady clock, from the first look at the file; at the first look, its age counts, too, so that a
folder of old files is ready at once. Nothing else depends on the time of day: neither future times of modification
nor a clock that is set back can delay a file for longer. A file that grows between two looks waits from then on,
whatever its age. An empty file was probably just made by a program that is going to write to it: it waits
:data:`EMPTY_SETTLES` times as long.
"""

from __future__ import annotations

import itertools
import os
import stat
import time
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ..errors import ReadError, ReadWarning, SourceMissingError
from ..limits import is_text
from ..locations import located, writable
from ..storage import ObjectUrl, bucket_of
from .files import LandedFile, file_at
from .landing_log import LandingLog

UNFINISHED: Final = (".tmp", ".part", ".partial", ".crdownload", ".open", "~")
"""The endings of names of unfinished files."""

_HIDDEN: Final = (".", "_")


def is_passed_over(name: str) -> bool:
    """Return whether files and folders of that name are ignored.

    >>> [is_passed_over(name) for name in (".x.mcap", "_old", "x.mcap.TMP", "x.mcap~", "x.tmp.mcap")]
    [True, True, True, True, False]
    """
    return name.startswith(_HIDDEN) or name.lower().endswith(UNFINISHED)


class Sightings(NamedTuple):
    """The files of a listing. ``unseen`` are the prefixes of paths that could not be listed."""

    files: list[LandedFile]
    unseen: tuple[str, ...] = ()


class Listing(ABC):
    """One landing folder, listed again and again. Each oddity in it gives one :class:`ReadWarning`, the first time."""

    def __init__(self, suffixes: Sequence[str]) -> None:
        self._suffixes = tuple(suffix.lower() for suffix in suffixes)
        self._reported: set[tuple[str, str]] = set()

    @staticmethod
    def of(
        folder: str | os.PathLike[str], suffixes: Sequence[str], is_one: Callable[[Path], bool] = lambda _: False
    ) -> Listing:
        """The listing of a path or URL.

        Local folders below it for which ``is_one`` holds are listed like files, without their contents.
        """
        location = located(folder)
        if isinstance(location, ObjectUrl):
            writable(location)  # a place that is only readable cannot be listed, or keeps files that are done
            return ObjectListing(location, suffixes)
        return LocalListing(location, suffixes, is_one)

    @abstractmethod
    def check(self) -> None:
        """Raise ``SourceMissingError`` if there is no such folder, or it cannot be listed."""

    @abstractmethod
    def sightings(self) -> Sightings:
        """All recordings in the folder and below, in no order. Raises ``ReadError`` if it cannot be listed."""

    def _is_recording(self, name: str) -> bool:
        return name.lower().endswith(self._suffixes)

    def _tell(self, what: str, folder: str, message: str) -> None:
        """Warn of ``what``, once in each folder."""
        if (what, folder) not in self._reported:
            self._reported.add((what, folder))
            warnings.warn(message, ReadWarning, stacklevel=5)


class LocalListing(Listing):
    """A folder of a file system. Links to files are followed, links to folders are not."""

    def __init__(self, folder: Path, suffixes: Sequence[str], is_one: Callable[[Path], bool]) -> None:
        super().__init__(suffixes)
        self._folder = str(folder)
        self._is_one = is_one

    def check(self) -> None:
        """Raise ``SourceMissingError`` if there is no such folder, or it cannot be listed."""
        try:
            os.scandir(self._folder).close()
        except OSError as error:
            raise SourceMissingError(
                f"this folder cannot be listed: {error.strerror}",
                path=self._folder,
                hint="Give an existing, readable folder in which recordings arrive.",
            ) from error

    def sightings(self) -> Sightings:
        """All recordings in the folder and below, in no order. Raises a transient ``ReadError``."""
        files: list[LandedFile] = []
        folders: list[str] = []
        unseen: dict[str, None] = {}
        try:
            if not self._scan(self._folder, files, folders):
                unseen[self._folder] = None
        except OSError as error:
            raise ReadError(
                f"the landing folder cannot be listed: {error.strerror}",
                path=self._folder,
                hint="It will be listed again.",
                transient=True,
            ) from error
        while folders:
            folder = folders.pop()
            try:
                if not self._scan(folder, files, folders):
                    unseen[folder] = None
            except FileNotFoundError:
                continue  # removed just now
            except OSError as error:
                unseen[folder] = None
                self._tell("folder", folder, f"{folder} cannot be listed, and is skipped: {error.strerror}")
        return Sightings(files, tuple(os.path.join(folder, "") for folder in unseen))  # noqa: PTH118 (it ends with /)

    def _scan(self, folder: str, files: list[LandedFile], folders: list[str]) -> bool:
        """Add the files directly in ``folder``; return False if something could not be listed."""
        complete = True
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_passed_over(entry.name):
                    continue
                try:
                    if entry.is_dir(follow_symlinks=False):
                        self._add_folder(entry.path, files, folders)
                    elif self._is_recording(entry.name):
                        self._add(entry, folder, files)
                    elif entry.is_symlink() and entry.is_dir():
                        self._tell_link(entry.path)
                except OSError as error:
                    complete &= self._explained(entry, folder, error)
        return complete

    def _add_folder(self, path: str, files: list[LandedFile], folders: list[str]) -> None:
        """Add a folder to ``files`` if it is one input, else to ``folders``, which are looked into."""
        try:
            whole = file_at(path) if is_text(path) and self._is_one(Path(path)) else None
        except (OSError, ReadError):  # reported where its files are listed
            whole = None
        if whole is not None:
            files.append(whole)
        else:
            folders.append(path)

    def _add(self, entry: os.DirEntry[str], folder: str, files: list[LandedFile]) -> None:
        path = entry.path
        status = entry.stat()
        if stat.S_ISDIR(status.st_mode):
            self._tell_link(path)
        elif not stat.S_ISREG(status.st_mode):
            self._tell("kind", path, f"{path} is not a file, and is skipped")
        elif not is_text(path):
            self._tell("name", folder, f"{path!r} has a name that is not UTF-8, and is skipped; rename it")
        else:
            files.append(LandedFile(path, status.st_size, status.st_mtime_ns))

    def _explained(self, entry: os.DirEntry[str], folder: str, error: OSError) -> bool:
        """Warn of an entry that cannot be examined, unless it is gone by now; return False if it may be a file."""
        if not isinstance(error, FileNotFoundError):
            self._tell("file", folder, f"{entry.path} cannot be examined, and is skipped: {error.strerror}")
            return False
        if entry.is_symlink():
            self._tell("dangling", entry.path, f"{entry.path} is a link to a file that does not exist")
        return True

    def _tell_link(self, path: str) -> None:
        self._tell("link", path, f"{path} is a link to a folder, which is not followed")


class ObjectListing(Listing):
    """The objects below a prefix. An empty prefix is an empty folder; a bucket must exist."""

    def __init__(self, url: ObjectUrl, suffixes: Sequence[str]) -> None:
        super().__init__(suffixes)
        self._url = url
        self._start = len(url.key) + 1 if url.key else 0

    def check(self) -> None:
        """Raise ``SourceMissingError`` if the bucket is missing, ``ReadError`` if it cannot be listed."""
        next(bucket_of(self._url).list(self._url.key, odd=lambda *_: None), None)

    def sightings(self) -> Sightings:
        """All recordings below the prefix, in the order of their keys. Raises ``ReadError``."""
        objects = bucket_of(self._url).list(self._url.key, odd=self._tell_odd)
        return Sightings([LandedFile(str(f.url), f.size, f.modified_ns) for f in objects if self._is_ours(f.url)])

    def _is_ours(self, url: ObjectUrl) -> bool:
        parts = url.key[self._start :].split("/")
        return self._is_recording(parts[-1]) and not any(is_passed_over(p) for p in parts if p not in (".", ".."))

    def _tell_odd(self, url: ObjectUrl, message: str) -> None:
        if self._is_ours(url):
            self._tell("key", str(url), message)


EMPTY_SETTLES: Final = 10
"""An empty file waits this many times the settle time."""


class Clocks(NamedTuple):
    """The clocks: the time of day, in ns since 1970, and a clock that is never set, in seconds."""

    wall_ns: Callable[[], int] = time.time_ns
    steady: Callable[[], float] = time.monotonic


_OF_THE_SYSTEM: Final = Clocks()


@dataclass(frozen=True, slots=True)
class Look:
    """The result of a look at a landing folder.

    ``ready`` are all settled files, also those that were ready before. ``oldest_seconds``: the time since the
    first look at a file of ``waiting``, or 0. ``seconds``: the time of the steady clock. ``present`` are the paths of
    all files, or None if the look cannot show which are gone: it failed, or found nothing at all, as in a folder whose
    file system is not mounted. Nor can it for paths that begin with one of ``unseen``. ``problem``: why nothing could
    be listed.
    """

    ready: list[LandedFile]
    waiting: list[LandedFile]
    oldest_seconds: float = 0.0
    seconds: float = 0.0
    present: Collection[str] | None = None
    unseen: tuple[str, ...] = ()
    problem: ReadError | None = None


class _Wait(NamedTuple):
    """The wait of a file that settles, by the steady clock: when it last changed, and when it was first looked at."""

    since: float
    first: float


class Lister:
    """Lists a landing folder: a local one with all its subfolders, or a prefix of an object store.

    Parameters
    ----------
    folder
        Path or URL.
    settle_seconds
        How long a file must stay unchanged before it is ready.
    suffixes
        The suffixes of recordings (``.mcap``), in upper or lower case.
    is_one
        A function that returns whether a local folder is one recording. Such a folder is listed like a file, and is
        ready when all of it is unchanged.
    clock
        Tells the time.

    Raises
    ------
    SourceMissingError
        There is no such folder, or it cannot be listed. If it cannot be listed later, this is ``Look.problem`` and one
        :class:`ReadWarning`, and the known files are kept.
    """

    def __init__(
        self,
        folder: str,
        *,
        settle_seconds: float,
        suffixes: Sequence[str],
        is_one: Callable[[Path], bool] = lambda _: False,
        clock: Clocks = _OF_THE_SYSTEM,
    ) -> None:
        self._listing = Listing.of(folder, suffixes, is_one)
        self._settle = settle_seconds
        self._clock = clock
        self._known: dict[str, LandedFile] = {}
        self._waits: dict[str, _Wait] = {}
        self._failing = False
        self._listing.check()

    def look(self) -> Look:
        """List the folder. For a file that did not change since the last look, the same object is returned."""
        wall, steady = self._clock.wall_ns(), self._clock.steady()
        try:
            listed = self._listing.sightings()
        except ReadError as error:
            return self._failed(error, steady)
        self._failing = False
        files: dict[str, LandedFile] = {}
        waits: dict[str, _Wait] = {}
        ready: list[LandedFile] = []
        waiting: list[LandedFile] = []
        for listed_file in listed.files:
            file, wait = self._judged(listed_file, wall, steady)
            files[file.path] = file
            if wait is None:
                ready.append(file)
            else:
                waits[file.path] = wait
                waiting.append(file)
        oldest = max((steady - wait.first for wait in waits.values()), default=0.0)
        present = set(files) if listed.unseen else files.keys()
        if listed.unseen:
            hidden = {p for p in self._known if p.startswith(listed.unseen)} - files.keys()
            files.update({p: self._known[p] for p in hidden})
            waits.update({p: self._waits[p] for p in hidden & self._waits.keys()})
        self._known, self._waits = files, waits
        return Look(ready, waiting, oldest, steady, present or None, listed.unseen)

    def _judged(self, file: LandedFile, wall: int, steady: float) -> tuple[LandedFile, _Wait | None]:
        """Return the file (the known object if it is unchanged), and its wait if it must settle."""
        needed = self._settle if file.size else self._settle * EMPTY_SETTLES
        earlier, wait = self._known.get(file.path), self._waits.get(file.path)
        if earlier is None:
            age = max((wall - file.modified_ns) / 1e9, 0.0)
            # Compare the age, not a difference of clocks: rounding would make an old file slightly too young.
            wait = _Wait(steady - age, steady) if age < needed else None
        elif earlier != file:
            wait = _Wait(steady, wait.first if wait else steady)
        else:
            file = earlier
        if wait is not None and steady - wait.since >= needed:
            wait = None
        return file, wait

    def _failed(self, error: ReadError, steady: float) -> Look:
        if not self._failing:
            self._failing = True
            warnings.warn(str(error), ReadWarning, stacklevel=3)
        return Look([], [], seconds=steady, problem=error)


TRIES: Final = 2
"""How often a listed state of a file is offered if the file has another state whenever it is read."""

KEPT_ENTRIES: Final = 100
"""The committed entries that are not merged, for a query set back to an earlier batch: as many as Spark keeps."""


class Glance(NamedTuple):
    """Counts of the last look: files to take, files that must settle first, how long the oldest waits.

    ``oldest_seconds`` counts from when this process first saw a file; its time of modification may be years ago.
    ``problem``: why nothing could be seen.
    """

    ready: int = 0
    waiting: int = 0
    oldest_seconds: float = 0.0
    problem: ReadError | None = None


class Landing:
    """Offers the files of a landing folder for ingestion, in entries of the landing log.

    Guarantee: a file that stopped changing is offered once, across restarts, for each state (size, modification time)
    that differs from the last one offered for its path. Order: by modification time, then path, within one listing.
    ``max_files`` and ``max_bytes`` limit an entry, which has at least one file; None means no limit.
    """

    def __init__(
        self, lister: Lister, log: LandingLog, *, max_files: int | None = None, max_bytes: int | None = None
    ) -> None:
        self.log = log
        self.glance = Glance()
        self._lister = lister
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._looked = Look([], [])
        self._first: dict[str, float] = {}
        self._unlike: Counter[LandedFile] = Counter()

    def look(self, again: Collection[str] = ()) -> list[LandedFile]:
        """Return the files that can be offered now, oldest first; :attr:`glance` counts them."""
        looked = self._looked = self._lister.look()
        wanted = set(again)
        files = sorted(
            (f for f in looked.ready if f.path in wanted or self._is_new(f)),
            key=lambda file: (file.modified_ns, file.path),
        )
        if looked.problem is None:
            self._first = {f.path: self._first.get(f.path, looked.seconds) for f in files}
        oldest = max(looked.oldest_seconds, looked.seconds - min(self._first.values(), default=looked.seconds))
        self.glance = Glance(len(files), len(looked.waiting), oldest, looked.problem)
        return files

    def offer(self, again: Collection[str] = ()) -> int | None:
        """List the folder, append the next entry to the log, and return its number, or None if there are no new files.

        Files with paths in ``again`` are offered even if they were offered before. Raises ``WriteError`` if the log
        cannot be written, ``ReadError`` if it is damaged.
        """
        files = self._bounded(self.look(again))
        return self.log.append(files) if files else None

    def offer_all(self, again: Collection[str] = ()) -> list[int]:
        """List the folder once, append its files in one or more entries, and return their numbers."""
        files, numbers = self.look(again), []
        while files:
            entry = self._bounded(files)
            numbers.append(self.log.append(entry))
            files = files[len(entry) :]
        return numbers

    def files(self) -> list[LandedFile]:
        """Return the current files of the folder, ready or not; if it cannot be listed, return the offered files."""
        looked = self._lister.look()
        if looked.problem is None:
            return [*looked.ready, *looked.waiting]
        return [file for path in self.log.paths if (file := self.log.seen(path)) is not None]

    def known(self, sizes: Collection[int]) -> list[str]:
        """The paths that were last offered with one of these sizes, in bytes; the files may be gone."""
        offered = ((path, self.log.seen(path)) for path in self.log.paths)
        return [path for path, file in offered if file is not None and file.size in sizes]

    def forget(self, number: int, paths: Collection[str], changed: Collection[LandedFile] = ()) -> None:
        """Let paths count as never offered: all files that a run of batch ``number`` did not read.

        Call this before the batch is done. If the batch runs again, the paths of the last run count, even if empty. The
        paths include files that ``changed`` before they were read, as these may get their offered state again.
        """
        self._unlike.update(changed)
        self.log.forget(number, [*paths, *(file.path for file in changed)])

    def compact(self, committed: int) -> int:
        """Merge old entries of the log, except :data:`KEPT_ENTRIES` up to the ``committed`` one; return their number.

        This does nothing if it is not worthwhile. Files that are gone from the folder are forgotten.
        """
        before = committed - KEPT_ENTRIES + 1
        present = self._looked.present
        enough = max(KEPT_ENTRIES, len(self.log.paths) // 1000)
        if before - 1 - self.log.merged < enough:
            return 0
        if present is not None and self._looked.unseen:
            hidden = (path for path in self.log.paths if path.startswith(self._looked.unseen))
            present = set(itertools.chain(present, hidden))
        return self.log.compact(before, present)

    def _is_new(self, file: LandedFile) -> bool:
        """Return whether to offer a file. Its listing may differ from its state on reading, every time."""
        return self.log.seen(file.path) != file and self._unlike[file] < TRIES

    def _bounded(self, files: list[LandedFile]) -> list[LandedFile]:
        """The first of ``files``, as many as go into one entry."""
        taken = files[: self._max_files]
        if self._max_bytes is not None:
            sizes = itertools.accumulate(file.size for file in taken)
            fitting = sum(1 for _ in itertools.takewhile(self._max_bytes.__ge__, sizes))
            taken = taken[: max(fitting, 1)]
        return taken
