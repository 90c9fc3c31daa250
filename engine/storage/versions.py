"""Versions as numbered JSON files, which each appear in one step and never change; and their commit loop.

A commit ends in one of three ways. It is visible. Or another writer came first: nothing is visible, and :func:`publish`
tries again on top of the other writer's version. Or the outcome is unknown, for example after a lost answer: that is a
``CommitUnknownError``, after which nothing is removed or repeated.
"""

from __future__ import annotations

import importlib.metadata
import json
import random
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import xxhash

from ..errors import CommitUnknownError, ReadError, SourceMissingError, UnsupportedError, WriteError, writing
from .folder import Folder, LocalFolder

RELEASES: Final[Mapping[int, str]] = {3: "0.1.0", 4: "0.1.0", 5: "0.1.0"}
"""The readable formats of versions, each with the first release that supports it.

3: entries without layers. 4: layers, in place and with times; catalogs, properties and search indexes. 5: stores with
tags, which an earlier release would drop. Earlier formats had digests of whole messages.
"""
FORMAT: Final = 4
"""The written format, except for stores."""
RESTORE: Final = "The store is damaged; restore the file from a copy, or open another version."

_NAME: Final = re.compile(r"\d{8,}\.json")
_POINTS: Final = ("version.draft", "version.publish")

# One policy for all commits: a random wait below a bound that doubles from 2 ms to 250 ms. With 16 processes of 20
# commits each, on one store on a local disk and two cores, a commit took 3.6 attempts, and all took 3.5 s; without
# waits, 7.8 attempts and 6.5 s. First waits of 1, 5 or 10 ms took 4.1 to 5.2 s. Longest waits of 0.5 and 1 s saved
# attempts, but took 50 % more time. With 32 processes, no commit needed more than 33 attempts.
_FIRST_WAIT: Final = 0.002
_LONGEST_WAIT: Final = 0.25
_MOST_ATTEMPTS: Final = 200

_Result = TypeVar("_Result")


def publish(
    attempt: Callable[[], _Result | None],
    what: str,
    *,
    path: str | None = None,
    hint: str = "Try again.",
    most: int = _MOST_ATTEMPTS,
) -> _Result:
    """Commit a change on top of the newest version, and again while other writers come first; return the result.

    ``attempt`` reads the newest version, decides what to change, and commits that. It returns None if another writer
    came first; then it has changed nothing. Its errors, such as ``CommitUnknownError``, are raised.

    Raises a transient ``WriteError`` about ``what`` at ``path`` if others came first ``most`` times.
    """
    for number in range(most):
        if number:
            time.sleep(random.uniform(0, min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(number - 1, 10))))  # noqa: S311 (a wait)
        result = attempt()
        if result is not None:
            return result
    raise WriteError(
        f"other writers keep changing {what}, so this change was not made", path=path, hint=hint, transient=True
    )


class VersionFiles:
    """The version files of a store. ``store`` is its name in errors; ``how`` is the hint for making one.

    ``points`` are the fault points of a version's draft and of its appearance, and ``newest_format`` is the format that
    is written. Each file has the lowest format, with its release, that can read it, and that can write the next
    version. A version's data may have ``first``, the number of the first version that counts, and ``tags``, which name
    earlier versions that count, too.
    """

    def __init__(
        self, folder: Folder, store: str, how: str, points: tuple[str, str] = _POINTS, newest_format: int = FORMAT
    ) -> None:
        self.folder = folder
        self._store = store
        self._how = how
        self._points = points
        self._format = newest_format
        self._last: tuple[int, bytes, Mapping[str, Any]] = (0, b"", {})
        self._writing = newest_format, ""

    def all_numbers(self) -> list[int]:
        """Return the numbers of all files, ascending, including versions that do not count."""
        try:
            return sorted(int(name.partition(".")[0]) for name in self.folder.names() if _NAME.fullmatch(name))
        except FileNotFoundError:
            return []

    def numbers(self) -> list[int]:
        """Return the numbers of all versions, ascending. Raises ``SourceMissingError`` if there is no store."""
        numbers = self.all_numbers()
        if not numbers and not self.folder.exists():
            raise SourceMissingError("this folder contains no store", path=self._store, hint=self._how)
        try:
            latest = self.latest()
        except ReadError:
            return numbers  # the newest one is damaged; earlier ones may be opened
        first, tagged = (_first(latest[1]), _tagged(latest[1])) if latest else (0, frozenset())
        return [number for number in numbers if number >= first or number in tagged]

    def newest(self) -> int:
        """Return the number of the newest version, or 0."""
        return max(self.all_numbers(), default=0)

    def is_newest(self, number: int) -> bool:
        """Return True if a known version still seems to be the newest, without listing the others.

        If it is not, and its number was taken by a late request, a version on top of it does not count either.
        """
        if not number:
            return self.newest() == 0
        return self.folder.exists(name_of(number)) and not self.folder.exists(name_of(number + 1))

    def latest(self) -> tuple[int, Mapping[str, Any]] | None:
        """Return the number of the newest version and the content of its file, or None. Raises ``ReadError``."""
        while newest := self.newest():
            try:
                return newest, self.read(newest)
            except ReadError:
                if self.newest() == newest:
                    raise
                # Otherwise a newer version exists, and this one was removed meanwhile.
        return None

    def chosen(self, number: int | None) -> int:
        """Return ``number`` if that version exists; the newest for None. Raises ``SourceMissingError``."""
        numbers = self.numbers()
        wanted = numbers[-1] if number is None and numbers else number or 0
        if wanted in numbers:
            return wanted
        have = ", ".join(map(str, numbers)) or "none"
        raise SourceMissingError(f"there is no version {number}", path=self._store, hint=f"There are: {have}.")

    def read(self, number: int) -> Mapping[str, Any]:
        """Parse a version file.

        Raises ``SourceMissingError`` if it is gone, ``ReadError`` if it is damaged.

        The last file read is not parsed again while its bytes are the same.
        """
        name = name_of(number)
        place = self.folder.place(name)
        try:
            raw = self.folder.get(name)
            last, bytes_of_last, parsed = self._last
            if (last, bytes_of_last) == (number, raw):
                return parsed
            data = json.loads(raw)
            if data.pop("digest", None) != _digest(data):
                raise ValueError("its content changed after it was written: its digest differs")
            format_ = data.pop("format", None)
            if data.get("number", number) != number:
                raise ValueError(f"it has the content of version {data['number']}")
            needs = data.pop("needs", {})
            read, write = (self._need(needs.get(name, [format_, ""])) for name in ("read", "write"))
            if not min(RELEASES) <= min(read[0], format_) <= read[0] <= self._format:
                raise _unsupported("read", read if format_ >= min(RELEASES) else (format_, ""), self._format, place)
            self._writing = write
        except FileNotFoundError as error:
            raise SourceMissingError(f"there is no version {number}", path=place, hint=RESTORE) from error
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise unreadable(error, place) from error
        assert isinstance(data, dict)
        self._last = number, raw, data
        return data

    @staticmethod
    def _need(need: Any) -> tuple[int, str]:
        """Return a format and its release. Raises ``ValueError`` or ``TypeError`` for something else."""
        format_, release = need
        if not isinstance(format_, int) or not isinstance(release, str):
            raise TypeError(f"{need} is not a format and a release")
        return format_, release

    def _check_writable(self, number: int) -> None:
        """Raise ``UnsupportedError`` if only a later release may write a version after the previous one."""
        if number > 1 and not self._last[0]:
            with suppress(ReadError):  # a writer need not report it
                self.read(number - 1)
        if self._writing[0] > self._format:
            raise _unsupported("written", self._writing, self._format, self.folder.place(name_of(number - 1)))

    def commit(self, number: int, data: Mapping[str, Any]) -> bool:
        """Make a version visible, in one step; return False if another version has its number.

        Raises ``WriteError`` if it certainly is not visible, as when the disk is full, and ``UnsupportedError`` if only
        a later release may write it. Raises ``CommitUnknownError`` if that is unknown; then, and after a
        ``BaseException`` that is no ``Exception``, the caller must not remove anything.
        """
        self._check_writable(number)
        try:
            is_made = self.create(number, data)
            counts = is_made and self._counts(number)
        except Exception as error:
            if self._certainly_not(number):
                raise
            raise self._unknown(f"it is unknown whether version {number} was committed: {error}") from error
        if is_made and not counts:
            raise self._unknown(f"version {number} was removed meanwhile, or written too late")
        return is_made

    def _unknown(self, reason: str) -> CommitUnknownError:
        hint = "No file was removed. Run it again: committed changes are not repeated."
        return CommitUnknownError(reason, path=self._store, hint=hint, transient=True)

    def create(self, number: int, data: Mapping[str, Any]) -> bool:
        """Write a version's file unless its number is taken; return True if it was written."""
        need = [self._format, RELEASES[self._format]]
        whole = {"format": self._format, "needs": {"read": need, "write": need}, **data, "number": number}
        text = json.dumps({**whole, "digest": _digest(whole)})
        with writing(self._store):
            return self.folder.create(name_of(number), text.encode(), self._points)

    def _counts(self, number: int) -> bool:
        """Return True if a version counts: numbers from ``first`` on never became free again."""
        if self.newest() == number:
            return True
        latest = self.latest()
        return latest is not None and _first(latest[1]) <= number

    def _certainly_not(self, number: int) -> bool:
        if not isinstance(self.folder, LocalFolder):
            return False  # a failed request may still reach the store
        try:
            return self.newest() < number
        except OSError:
            return False

    def delete(self, numbers: Iterable[int]) -> None:
        """Remove versions."""
        self.folder.delete(name_of(number) for number in numbers)


def _unsupported(what: str, need: tuple[int, str], known: int, place: str) -> UnsupportedError:
    """Return the error for a version of an unknown format."""
    format_, release = need
    own = importlib.metadata.version("chunkmill")
    if format_ < known:
        hint = "An earlier release wrote it; read it with that release."
        return UnsupportedError(
            f"this version has format {format_}, but this release reads {known}", path=place, hint=hint
        )
    wanted = f"chunkmill {release} or later" if release else "a later release of chunkmill"
    return UnsupportedError(
        f"{wanted} is needed for this to be {what}: it has format {format_}, but chunkmill {own} supports formats up "
        f"to {known}",
        path=place,
        hint=f"Upgrade chunkmill to {release} or later." if release else "Upgrade chunkmill.",
    )


def unreadable(error: Exception, place: str) -> ReadError:
    """Return the error for a version file that cannot be parsed."""
    return ReadError(f"this version cannot be read: {error}", path=place, hint=RESTORE)


def has_files(folder: Folder) -> bool:
    """Return True if a folder has files. A missing folder has none; a missing bucket is an error."""
    try:
        return next(iter(folder.names()), None) is not None
    except ReadError:
        raise
    except FileNotFoundError:
        return False


def name_of(number: int) -> str:
    """Return the name of a version file.

    >>> name_of(12)
    '00000012.json'
    """
    return f"{number:08d}.json"


def _first(data: Mapping[str, Any]) -> int:
    """Return the number of the first version that counts, from the newest version's data."""
    first = data.get("first", 0)
    return first if isinstance(first, int) else 0


def _tagged(data: Mapping[str, Any]) -> frozenset[int]:
    """Return the numbers of tagged versions, from the newest version's data."""
    tags = data.get("tags", {})
    return frozenset(tags.values()) if isinstance(tags, dict) else frozenset()


def _digest(data: dict[str, Any]) -> str:
    """Return the digest of a version file's content without the digest field."""
    return xxhash.xxh3_128_hexdigest(json.dumps(data, sort_keys=True).encode())
