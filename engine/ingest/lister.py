"""Which files of a landing folder are ready to be read, and which must settle first.

A file is ready when its size and time of modification have not changed for ``settle_seconds``. How long they have not
is measured by the steady clock, from when the file was first looked at; at that first time its age counts too, so
that a folder of old files is ready at once. Nothing else depends on the time of day: neither times of modification in
the future nor a clock that is set back can hold a file up for longer than that, and a file that grows between two
looks waits from then on, whatever age it claims. An empty file has probably just been made by somebody who is going
to write to it: it waits :data:`EMPTY_SETTLES` times as long.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from ..errors import ReadError, ReadWarning
from .files import LandedFile
from .listing import Listing, Sight

EMPTY_SETTLES: Final = 10
"""How many times the settle time an empty file waits."""


class Clock(Protocol):
    """The time: of day, in ns since 1970, and of a clock that nobody sets, in seconds."""

    def wall_ns(self) -> int:
        """The time of day."""

    def steady(self) -> float:
        """The time of the steady clock."""


class SystemClock:
    """The clocks of the system."""

    def wall_ns(self) -> int:
        """The time of day."""
        return time.time_ns()

    def steady(self) -> float:
        """The time of the steady clock."""
        return time.monotonic()


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look at a landing folder gave.

    ``ready`` are all settled files, also those that were ready before. ``oldest_seconds``: how long the first of
    ``waiting`` has been looked at, 0 where none is; ``seconds``: the time of the steady clock. ``present`` are the
    paths of all files, or None where the look does not tell what is gone: it failed, or nothing at all was there, as
    in a folder whose file system is not mounted. Of paths that begin with one of ``unseen`` it is not known either.
    ``problem``: why nothing could be listed.
    """

    ready: list[LandedFile]
    waiting: list[LandedFile]
    oldest_seconds: float = 0.0
    seconds: float = 0.0
    present: Collection[str] | None = None
    unseen: tuple[str, ...] = ()
    problem: ReadError | None = None


class _Wait(NamedTuple):
    """A file that settles: since when it has been as it is (less its age then), and when it was first looked at."""

    since: float
    first: float


class Lister:
    """Looks at a landing folder: a local one with all folders below it, or a prefix of an object store.

    Parameters
    ----------
    folder
        Path or URL.
    settle_seconds
        How long a file must not have changed to be ready.
    suffixes
        What names of recordings end with (``.mcap``), in any case.
    clock
        Tells the time.

    Raises
    ------
    SourceMissingError
        There is no such folder, or it cannot be listed. Later that is ``Looked.problem`` (and a
        :class:`ReadWarning`, once until it works again): what was known of the files is kept.
    """

    def __init__(
        self, folder: str, *, settle_seconds: float, suffixes: Sequence[str], clock: Clock | None = None
    ) -> None:
        self._listing = Listing.of(folder, suffixes)
        self._settle = settle_seconds
        self._clock = clock or SystemClock()
        self._known: dict[str, LandedFile] = {}
        self._waits: dict[str, _Wait] = {}
        self._failing = False
        self._listing.check()

    def look(self) -> Looked:
        """List the folder. A file that did not change since the last look is the same object as then."""
        wall, steady = self._clock.wall_ns(), self._clock.steady()
        try:
            listed = self._listing.listed()
        except ReadError as error:
            return self._failed(error, steady)
        self._failing = False
        known: dict[str, LandedFile] = {}
        waits: dict[str, _Wait] = {}
        ready: list[LandedFile] = []
        waiting: list[LandedFile] = []
        for sight in listed.files:
            file, wait = self._judged(sight, wall, steady)
            known[file.path] = file
            if wait is None:
                ready.append(file)
            else:
                waits[file.path] = wait
                waiting.append(file)
        oldest = max((steady - wait.first for wait in waits.values()), default=0.0)
        present = set(known) if listed.unseen else known.keys()
        if listed.unseen:
            hidden = {p for p in self._known if p.startswith(listed.unseen)} - known.keys()
            known.update({p: self._known[p] for p in hidden})
            waits.update({p: self._waits[p] for p in hidden & self._waits.keys()})
        self._known, self._waits = known, waits
        return Looked(ready, waiting, oldest, steady, present or None, listed.unseen)

    def _judged(self, sight: Sight, wall: int, steady: float) -> tuple[LandedFile, _Wait | None]:
        """The file, and its wait where it has to."""
        path, size, modified_ns = sight
        needed = self._settle if size else self._settle * EMPTY_SETTLES
        file = self._known.get(path)
        if file is None:
            age = max((wall - modified_ns) / 1e9, 0.0)
            # Asked here, not of a difference of clocks: those are rounded, and an old file would be too young by a bit.
            wait = _Wait(steady - age, steady) if age < needed else None
        elif file.size == size and file.modified_ns == modified_ns:
            wait = self._waits.get(path)
        else:
            before = self._waits.get(path)
            wait = _Wait(steady, before.first if before else steady)
            file = None
        if wait is not None and steady - wait.since >= needed:
            wait = None
        return file or LandedFile(path, size, modified_ns), wait

    def _failed(self, error: ReadError, steady: float) -> Looked:
        if not self._failing:
            self._failing = True
            warnings.warn(str(error), ReadWarning, stacklevel=3)
        return Looked([], [], seconds=steady, problem=error)
