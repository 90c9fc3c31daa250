"""Versions of a store, and their files: numbered JSON files that each appear whole, in one step, and never change.

A store is written by runs, any number of them at once, any of which may stop anywhere and go on much later, and whose
requests may arrive much later. Nothing but the order in which versions appear protects it, neither a lock nor a clock:

1. A run notes the number ``began`` of the newest version, announces itself, and then writes its files, whose names
   begin with its own and are used by nobody again. It publishes them as the version after the newest one, its base, on
   the condition that there is none of that number. When there is, it looks at what came in between, decides anew what
   it is to publish (a table is written for each base), and tries the next number. What a version names is named by the
   version before it, or was written by its own run.
2. Nothing is removed before a version says so. A vacuum lists the files, reads the newest version, lists the
   announcements, and publishes its version. That says with which number the store begins (``first``), that it is one of
   a vacuum (``vacuumed``), and of which runs it spares the files (``spared``, each with the number after which every
   vacuum has spared it); these are carried along by all versions after it. Then it removes earlier versions, and those
   of the listed files that no version from ``first`` on names and no run has written that it spares. When its number is
   taken it reads again what there is, and keeps its list of files.
3. So a run may publish on a base only if no vacuum up to that one came after ``began``, or each of them spared it
   (:meth:`RecordingsVersion.spares`). Of a vacuum that came before ``began`` the list of files was made before the run
   had any. One that comes after the run's version finds its files named. One of the number that the run wanted itself
   was faster, and the run finds it in its new base; and so it does whose request is late.
   It does not matter whether whoever was not spared was dead: who only slept cannot publish any more, and begins anew.
4. The number of a version that was removed is free, and what arrives late may take it. So only numbers from the
   newest version's ``first`` on count, and a run believes to have published when it has seen that its own does. Where
   it does not know, it removes nothing and tries no other number: a late request would make two versions of one run.

Files that are named by their content (:mod:`.schemas`) may be written by several runs, so they are never removed: a
removal that is late would hit what another run has come to rely on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

from ..errors import (
    CommitUnknownError,
    ReadError,
    SourceMissingError,
    UnsupportedError,
    UsageError,
    WriteError,
    writing,
)
from ..execution import Folder, LocalFolder
from ..locations import Location
from ..rrd import digest_of

FORMAT: Final = 4
"""The format that is written."""
_EARLIER: Final = 3
"""What is read, too: its entries have no layers. In formats before digests of chunks were those of whole messages."""
RESTORE: Final = "The store was damaged; restore the file from a copy, or open another version."

_NAME: Final = re.compile(r"\d{8,}\.json")
_POINTS: Final = ("version.draft", "version.publish")


class TableRef(NamedTuple):
    """A table of entries: its file, its digest, and how many entries it has."""

    name: str
    digest: str
    entries: int


@dataclass(frozen=True, slots=True)
class RecordingsVersion:
    """One version of a store of recordings.

    ``created`` is in seconds since the epoch; ``operation`` what made it (``ingest``, ``compact``, ``vacuum``, or the
    ``upgrade`` of entries of format 3); ``first`` the number of the first version that counts, as earlier ones are
    removed; ``tables`` those that hold its entries, oldest first; ``batches`` the last batch of each query that it
    holds; ``recordings``, of however many layers, ``chunks``, ``rows`` and ``bytes`` (of chunks, as stored) count all
    that is there; ``files`` counts what became of the files of the batch that made it, ``bytes_in`` their bytes,
    ``seconds`` what the batch took; ``totals`` counts what became of the files of all batches so far. ``vacuumed`` is
    the number of the last vacuum's version, 0 before the first; ``spared`` names runs of which no vacuum after the
    version of that number has removed a file.
    """

    number: int
    created: float
    operation: str
    tables: tuple[TableRef, ...]
    batches: Mapping[str, int]
    recordings: int
    chunks: int
    rows: int
    bytes: int
    files: Mapping[str, int] = field(default_factory=dict)
    bytes_in: int = 0
    seconds: float = 0.0
    totals: Mapping[str, int] = field(default_factory=dict)
    first: int = 0
    vacuumed: int = 0
    spared: Mapping[str, int] = field(default_factory=dict)

    def spares(self, run: str, began: int) -> bool:
        """Whether no vacuum up to this version has removed files of ``run``, which began at version ``began``."""
        return self.vacuumed <= began or self.spared.get(run, self.vacuumed) <= began

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> RecordingsVersion:
        """The inverse of :meth:`to_dict`. Raises ``TypeError`` or ``ValueError`` for something else."""
        tables = tuple(TableRef(*table) for table in data["tables"])
        vacuumed = data.get("vacuumed", data.get("number", 0))  # of a release that said nothing of it
        return cls(**{**data, "tables": tables, "vacuumed": vacuumed})


class VersionFiles:
    """The version files of a store. ``store`` is how errors name it, ``how`` how one is made.

    ``points`` are the fault points of a version's draft and of its appearance.
    """

    def __init__(self, folder: Folder, store: str, how: str, points: tuple[str, str] = _POINTS) -> None:
        self.folder = folder
        self._store = store
        self._how = how
        self._points = points
        self._last: tuple[int, bytes, Mapping[str, Any]] = (0, b"", {})

    def all_numbers(self) -> list[int]:
        """The numbers of all files that are there, ascending, those included that do not count."""
        try:
            return sorted(number_of(name) for name in self.folder.names() if _NAME.fullmatch(name))
        except FileNotFoundError:
            return []

    def numbers(self) -> list[int]:
        """The numbers of all versions, ascending. Raises ``SourceMissingError`` where there is no store."""
        there = self.all_numbers()
        if not there and not self.folder.exists():
            raise SourceMissingError("no store is kept here", path=self._store, hint=self._how)
        try:
            latest = self.latest()
        except ReadError:
            return there  # the newest one is damaged; earlier ones may be opened
        first = _first(latest[1]) if latest else 0
        return [number for number in there if number >= first]

    def newest(self) -> int:
        """The number of the newest version, 0 where there is none."""
        return max(self.all_numbers(), default=0)

    def is_newest(self, number: int) -> bool:
        """Whether a version that was seen seems to be the newest still, without a look at all others.

        Where it is not, and its number was taken by a late request, a version on top of it does not count either.
        """
        if not number:
            return self.newest() == 0
        return self.folder.exists(name_of(number)) and not self.folder.exists(name_of(number + 1))

    def latest(self) -> tuple[int, Mapping[str, Any]] | None:
        """The number of the newest version and what its file says, if there is any. Raises ``ReadError``."""
        while newest := self.newest():
            try:
                return newest, self.read(newest)
            except ReadError:
                if self.newest() == newest:
                    raise
                # Otherwise it was removed meanwhile, as there is a newer one.
        return None

    def chosen(self, number: int | None) -> int:
        """``number`` if there is such a version; the newest for None. Raises ``SourceMissingError``."""
        numbers = self.numbers()
        wanted = numbers[-1] if number is None and numbers else number or 0
        if wanted in numbers:
            return wanted
        have = ", ".join(map(str, numbers)) or "none"
        raise SourceMissingError(f"there is no version {number}", path=self._store, hint=f"There are: {have}.")

    def read(self, number: int) -> Mapping[str, Any]:
        """Parse a version file. Raises ``ReadError`` where it is not what was written.

        Where its bytes are those of the one that was read last, that is given again: it need not be parsed anew.
        """
        name = name_of(number)
        place = self.folder.place(name)
        try:
            raw = self.folder.get(name)
            last, known, parsed = self._last
            if (last, known) == (number, raw):
                return parsed
            data = json.loads(raw)
            if data.pop("digest", None) != _digest(data):
                raise ValueError("it is not what was written: its digest differs")
            found = data.pop("format", None)
            if data.get("number", number) != number:
                raise ValueError(f"it is version {data['number']}, under another name")
            if found not in (_EARLIER, FORMAT):
                is_older = isinstance(found, int) and found < FORMAT
                raise UnsupportedError(
                    f"this version has the format {found}, and {FORMAT} is read here",
                    path=place,
                    hint=f"It was written by {'an earlier' if is_older else 'a newer'} release; read it with that.",
                )
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise unreadable(error, place) from error
        assert isinstance(data, dict)
        self._last = number, raw, data
        return data

    def commit(self, number: int, data: dict[str, Any]) -> None:
        """Put a version there: the one step that makes it visible.

        Raises ``WriteError`` where it certainly was not: another version has its number (transient), or the disk is
        full. Raises ``CommitUnknownError`` where nobody knows; the caller must not remove anything then, nor where
        something raises that is no ``Exception``.
        """
        if not self.try_commit(number, data):
            raise self.taken(number)

    def try_commit(self, number: int, data: dict[str, Any]) -> bool:
        """The same, but gives False where another version has its number."""
        try:
            made = self.publish(number, data)
            counts = made and self._counts(number)
        except Exception as error:
            if self._certainly_not(number):
                raise
            raise CommitUnknownError(
                f"it is not known whether version {number} was committed: {error}",
                path=self._store,
                hint="Nothing was removed. Run it again: what was committed is not done twice.",
                transient=True,
            ) from error
        if made and not counts:
            raise CommitUnknownError(
                f"version {number} has been removed in the meantime, or came too late",
                path=self._store,
                hint="Nothing was removed by this run. Run it again: what was committed is not done twice.",
                transient=True,
            )
        return made

    def taken(self, number: int) -> WriteError:
        """The error of a commit where another writer was faster."""
        return WriteError(
            f"version {number} was committed by another writer in the meantime",
            path=self._store,
            hint="Nothing of this run is visible; run it again on top of that version.",
            transient=True,
        )

    def publish(self, number: int, data: dict[str, Any]) -> bool:
        """Put a version there if no other has its number; whether that was done."""
        whole = {"format": FORMAT, **data, "number": number}
        text = json.dumps({**whole, "digest": _digest(whole)})
        with writing(self._store):
            return self.folder.create(name_of(number), text.encode(), self._points)

    def _counts(self, number: int) -> bool:
        """Whether a version that is there is one of the store: no number from ``first`` on was ever free again."""
        if self.newest() == number:
            return True
        latest = self.latest()
        return latest is not None and _first(latest[1]) <= number

    def _certainly_not(self, number: int) -> bool:
        if not isinstance(self.folder, LocalFolder):
            return False  # a request that failed here may still arrive there
        try:
            return self.newest() < number
        except OSError:
            return False

    def delete(self, numbers: Iterable[int]) -> None:
        """Remove versions."""
        self.folder.delete(name_of(number) for number in numbers)


def unreadable(error: Exception, place: str) -> ReadError:
    """The error of a version file that cannot be understood."""
    return ReadError(f"this version cannot be read: {error}", path=place, hint=RESTORE)


def has_files(folder: Folder) -> bool:
    """Whether there are files; not in a folder that is missing, which below a bucket that is missing is an error."""
    try:
        return next(iter(folder.names()), None) is not None
    except ReadError:
        raise
    except FileNotFoundError:
        return False


def versions_of_catalog(folder: Folder) -> Folder:
    """The folder of the versions of a catalog in ``folder``, in which a store has none."""
    return folder.sub("catalog").sub("versions")


def is_catalog(location: Location) -> bool:
    """Whether there is a catalog; not where the place cannot be read."""
    try:
        return has_files(versions_of_catalog(Folder.at(location)))
    except (OSError, ReadError):
        return False


def check_no_catalog(location: Location) -> None:
    """Raise ``UsageError`` where there is a catalog, in whose folder no store may be made."""
    if is_catalog(location):
        raise UsageError(
            f"{location} is a catalog",
            hint="Name one of its datasets: with --dataset, or into=CatalogClient(…).create_dataset(…, exist_ok=True).",
        )


def name_of(number: int) -> str:
    """The name of a version file.

    >>> name_of(12)
    '00000012.json'
    """
    return f"{number:08d}.json"


def number_of(name: str) -> int:
    """The number of a version file."""
    return int(name.partition(".")[0])


def _first(data: Mapping[str, Any]) -> int:
    """With which number the store begins, as the newest version says."""
    first = data.get("first", 0)
    return first if isinstance(first, int) else 0


def _digest(data: dict[str, Any]) -> str:
    """The digest of what a version file says, its own digest left out."""
    return digest_of(json.dumps(data, sort_keys=True).encode()).hex()
