"""A landing folder and its log: what is offered to the ingestion next."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection
from typing import Final, NamedTuple

from ..errors import ReadError
from .files import LandedFile
from .landing_log import LandingLog
from .lister import Lister, Looked

TRIES: Final = 2
"""How often the same state of a file is offered that is another whenever it is to be read."""

KEPT_ENTRIES: Final = 100
"""How many committed entries stay as they are, for a query that is set back to an earlier batch: as many as Spark's."""


class Glance(NamedTuple):
    """What the last look saw: files to take and their bytes, files that must settle first, how long the oldest waits.

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
        self._looked = Looked([], [])
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
        """What is in the folder now, settled or not; where it cannot be listed, what was offered."""
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
        """What of ``files`` goes into one entry, from the first on."""
        taken = files[: self._max_files]
        if self._max_bytes is not None:
            sizes = itertools.accumulate(file.size for file in taken)
            fitting = sum(1 for _ in itertools.takewhile(self._max_bytes.__ge__, sizes))
            taken = taken[: max(fitting, 1)]
        return taken
