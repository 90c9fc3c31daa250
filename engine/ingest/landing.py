"""A landing folder: which of its files are ready to be read, and what is offered to the ingestion next.

A file is ready when its size and time of modification have not changed for ``settle_seconds``. How long they have not
is measured by the steady clock, from when the file was first looked at; at that first time its age counts too, so
that a folder of old files is ready at once. Nothing else depends on the time of day: neither times of modification in
the future nor a clock that is set back can hold a file up for longer than that, and a file that grows between two
looks waits from then on, whatever age it claims. An empty file has probably just been made by somebody who is going
to write to it: it waits :data:`EMPTY_SETTLES` times as long.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from ..errors import ReadError, ReadWarning
from .files import LandedFile
from .landing_log import LandingLog
from .listing import Listing, Sight

EMPTY_SETTLES: Final = 10
"""How many times the settle time an empty file waits."""


class Clocks(Protocol):
    """The time: of day, in ns since 1970, and of a clock that nobody sets, in seconds."""

    def wall_ns(self) -> int:
        """The time of day."""

    def steady(self) -> float:
        """The time of the steady clock."""


class SystemClocks:
    """The clocks of the system."""

    def wall_ns(self) -> int:
        """The time of day."""
        return time.time_ns()

    def steady(self) -> float:
        """The time of the steady clock."""
        return time.monotonic()


@dataclass(frozen=True, slots=True)
class Look:
    """The result of a look at a landing folder.

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
        There is no such folder, or it cannot be listed. Later that is ``Look.problem`` (and a
        :class:`ReadWarning`, once until it works again): what was known of the files is kept.
    """

    def __init__(
        self, folder: str, *, settle_seconds: float, suffixes: Sequence[str], clock: Clocks | None = None
    ) -> None:
        self._listing = Listing.of(folder, suffixes)
        self._settle = settle_seconds
        self._clock = clock or SystemClocks()
        self._known: dict[str, LandedFile] = {}
        self._waits: dict[str, _Wait] = {}
        self._failing = False
        self._listing.check()

    def look(self) -> Look:
        """List the folder. A file that did not change since the last look is the same object as then."""
        wall, steady = self._clock.wall_ns(), self._clock.steady()
        try:
            listed = self._listing.sightings()
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
        return Look(ready, waiting, oldest, steady, present or None, listed.unseen)

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

    def _failed(self, error: ReadError, steady: float) -> Look:
        if not self._failing:
            self._failing = True
            warnings.warn(str(error), ReadWarning, stacklevel=3)
        return Look([], [], seconds=steady, problem=error)


TRIES: Final = 2
"""How often the same state of a file is offered that is another whenever it is to be read."""

KEPT_ENTRIES: Final = 100
"""How many committed entries stay as they are, for a query that is set back to an earlier batch: as many as Spark's."""


class Glance(NamedTuple):
    """Counts of the last look: files to take and their bytes, files that must settle first, how long the oldest waits.

    ``oldest_seconds`` counts from when this process saw a file first; its time of modification may be years ago.
    ``problem``: why nothing could be seen.
    """

    ready: int = 0
    ready_bytes: int = 0
    waiting: int = 0
    oldest_seconds: float = 0.0
    problem: ReadError | None = None


class Landing:
    """Offers the files of a landing folder, in entries of its log.

    Guarantee: every settled state of a file (path, size, time of modification) that differs from what its path was
    offered as last is offered once, across restarts. Order: by time of modification, then path, as far as a look shows
    them. ``max_files`` and ``max_bytes`` bound an entry, which holds one file at least; None: no bound.
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
        """The files that could be offered now, oldest first; :attr:`glance` counts them."""
        looked = self._looked = self._lister.look()
        wanted = set(again)
        files = sorted(
            (f for f in looked.ready if f.path in wanted or self._is_new(f)),
            key=lambda file: (file.modified_ns, file.path),
        )
        if looked.problem is None:
            self._first = {f.path: self._first.get(f.path, looked.seconds) for f in files}
        oldest = max(looked.oldest_seconds, looked.seconds - min(self._first.values(), default=looked.seconds))
        self.glance = Glance(len(files), sum(f.size for f in files), len(looked.waiting), oldest, looked.problem)
        return files

    def offer(self, again: Collection[str] = ()) -> int | None:
        """Look, and append what is next to the log; the number of that entry, or None where there is nothing.

        Files whose paths are in ``again`` are offered whether or not they were before.
        Raises ``WriteError`` where the log cannot be written, ``ReadError`` where it is torn.
        """
        files = self._bounded(self.look(again))
        return self.log.append(files) if files else None

    def offer_all(self, again: Collection[str] = ()) -> list[int]:
        """Look once, and append all that is there, in as many entries as the bounds ask for; their numbers."""
        files, numbers = self.look(again), []
        while files:
            entry = self._bounded(files)
            numbers.append(self.log.append(entry))
            files = files[len(entry) :]
        return numbers

    def files(self) -> list[LandedFile]:
        """The files in the folder now, settled or not; where it cannot be listed, those that were offered."""
        looked = self._lister.look()
        if looked.problem is None:
            return [*looked.ready, *looked.waiting]
        return [file for path in self.log.paths if (file := self.log.seen(path)) is not None]

    def known(self, sizes: Collection[int]) -> list[str]:
        """All paths that were offered last as files of one of these sizes, in bytes; they need not be there."""
        offered = ((path, self.log.seen(path)) for path in self.log.paths)
        return [path for path, file in offered if file is not None and file.size in sizes]

    def forget(self, number: int, paths: Collection[str], changed: Collection[LandedFile] = ()) -> None:
        """Let paths count as never offered; to be called before batch ``number`` is done.

        Files that ``changed`` before they could be read are among them: they may become again what was offered.
        """
        self._unlike.update(changed)
        self.log.forget(number, [*paths, *(file.path for file in changed)])

    def compact(self, committed: int) -> int:
        """Merge entries of the log, where it is worth it, up to some hundred below the ``committed`` one.

        The number of entries that were merged. Files that are gone from the folder are forgotten with it.
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
        """Whether a file is to be offered. One may be listed otherwise than it is found, and would be for ever."""
        return self.log.seen(file.path) != file and self._unlike[file] < TRIES

    def _bounded(self, files: list[LandedFile]) -> list[LandedFile]:
        """The first of ``files``, as many as go into one entry."""
        taken = files[: self._max_files]
        if self._max_bytes is not None:
            sizes = itertools.accumulate(file.size for file in taken)
            fitting = sum(1 for _ in itertools.takewhile(self._max_bytes.__ge__, sizes))
            taken = taken[: max(fitting, 1)]
        return taken
