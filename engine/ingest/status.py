"""The status of an ingestion, from what it has written: read-only, and whether or not it runs.

Everything is read from the store, the checkpoint and the landing folder. Times are those of the hosts that wrote them;
an age or a rate is wrong by as much as their clocks differ from this one's. What cannot be read is a ``problem`` of
the status, and the rest is told all the same.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from ...readers import all_suffixes
from ..errors import ChunkmillError, ReadError, ReadWarning, SourceMissingError
from ..execution import Holder, lease_holder
from ..locations import Location
from ..objects import ObjectUrl, is_url
from ..recordings import RecordingsFolder, RecordingsVersion
from .checkpoint import Checkpoint, IngestIdentity, home_of
from .files import LandedFile
from .landing import Listing
from .landing_log import LandingLog
from .quarantine import FileQuarantine

WINDOWS: Final = (60.0, 900.0)
"""The lengths of time that rates are told for, in seconds."""

_INGEST: Final = "ingest"
_AT_ONCE: Final = 16
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """The last batch: its number, when it was committed (Unix seconds), its files by outcome, bytes and seconds."""

    number: int
    committed: float
    version: int
    files: Mapping[str, int]
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Rate:
    """Sums over the last ``window`` seconds, or over the store's life where that is shorter."""

    window: float
    files: int
    bytes: int
    batches: int

    @property
    def files_per_second(self) -> float:
        """Files of any outcome, in a second."""
        return self.files / self.window if self.window > 0 else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Bytes of these files, in a second."""
        return self.bytes / self.window if self.window > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Lag:
    """The files of the landing folder that are not in the store.

    ``waiting`` files with ``waiting_bytes`` were not taken yet, the oldest of them ``oldest_seconds`` after it came
    there (or was changed); ``running`` files are in a batch that is not committed.
    """

    waiting: int
    waiting_bytes: int
    oldest_seconds: float
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestStatus:
    """The status of an ingestion. ``files`` counts all files that it ever handled, by outcome.

    ``batches`` counts those of all queries into the store; ``holder`` is who runs this
    ingestion now, else who compacts the store or removes from it. What is None could not be
    found out, or is not there.
    """

    home: str
    at: float
    query_id: str | None = None
    source: str | None = None
    version: int = 0
    batches: int = 0
    files: Mapping[str, int] = field(default_factory=dict)
    recordings: int = 0
    chunks: int = 0
    rows: int = 0
    bytes: int = 0
    last: BatchFacts | None = None
    rates: tuple[Rate, ...] = ()
    lag: Lag | None = None
    quarantined: int | None = None
    holder: Holder | None = None
    problems: tuple[str, ...] = ()


class StatusReader:
    """Reads the status of one ingestion, again and again; what it has read once and cannot change it keeps.

    ``location`` is the store or the folder of RRDs, ``checkpoint`` where the checkpoint is, if not in there.
    Raises ``SourceMissingError`` where nothing was ingested.
    """

    def __init__(self, location: Location, checkpoint: Location | None = None) -> None:
        self.home = home_of(location)
        self._folder = RecordingsFolder(self.home)
        self._checkpoint = Checkpoint(self.home / "ingest" if checkpoint is None else checkpoint)
        self._quarantine = FileQuarantine(self.home)
        self._versions: dict[int, RecordingsVersion] = {}
        self._identity: IngestIdentity | None = None
        self._log: tuple[int, LandingLog] | None = None
        self._listing: Listing | None = None

    def read(self) -> IngestStatus:
        """The status as it is now. Raises ``ReadError`` where the store itself is damaged."""
        now = time.time()
        problems: list[str] = []
        versions = self._recent(now)
        newest = versions[-1] if versions else None
        identity = _optional(self._who, problems)
        done = newest.batches.get(identity.query_id, 0) if newest and identity else 0
        ingests = [v for v in versions if v.operation == _INGEST]
        return IngestStatus(
            home=str(self.home),
            at=now,
            query_id=identity.query_id if identity else None,
            source=identity.source if identity else None,
            version=newest.number if newest else 0,
            batches=sum(newest.batches.values()) if newest else 0,
            files=dict(newest.totals) if newest else {},
            recordings=newest.recordings if newest else 0,
            chunks=newest.chunks if newest else 0,
            rows=newest.rows if newest else 0,
            bytes=newest.bytes if newest else 0,
            last=_facts(ingests[-1], identity) if ingests else None,
            rates=tuple(_rate(ingests, now, window) for window in WINDOWS),
            lag=_optional(lambda: self._lag(identity, done, now), problems) if identity else None,
            quarantined=_optional(self._quarantine.count, problems),
            holder=_optional(lambda: self._holder(identity), problems),
            problems=tuple(problems),
        )

    def _holder(self, identity: IngestIdentity | None) -> Holder | None:
        runner = lease_holder(self.home, identity.query_id) if identity else None
        return runner or lease_holder(self.home)

    def _who(self) -> IngestIdentity | None:
        self._identity = self._identity or self._checkpoint.identity()
        return self._identity

    # --- the store

    def _recent(self, now: float) -> list[RecordingsVersion]:
        """Versions, oldest first: those of the longest window, at least the newest one and the last ingestion's."""
        numbers = self._numbers()
        self._versions = {number: self._versions[number] for number in numbers if number in self._versions}
        found: list[RecordingsVersion] = []
        while numbers:
            numbers, part = numbers[:-_AT_ONCE], numbers[-_AT_ONCE:]
            found = self._read(part) + found
            is_early = bool(found) and found[0].created < now - max(WINDOWS)
            if is_early and any(v.operation == _INGEST for v in found):
                break
        return found

    def _numbers(self) -> list[int]:
        try:
            return self._folder.files.numbers()
        except SourceMissingError:
            if isinstance(self.home, ObjectUrl) and not self._versions:
                return []  # a store has no empty folders, and the first batch may be running
            raise

    def _read(self, numbers: Sequence[int]) -> list[RecordingsVersion]:
        missing = [number for number in numbers if number not in self._versions]
        if missing:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                read = list(pool.map(self._version, missing))
            self._versions.update({v.number: v for v in read if v is not None})
        return [self._versions[number] for number in numbers if number in self._versions]

    def _version(self, number: int) -> RecordingsVersion | None:
        try:
            return self._folder.read_version(number)
        except ReadError:
            if number in self._folder.files.numbers():
                raise
            return None  # vacuumed meanwhile

    # --- the landing folder

    def _lag(self, identity: IngestIdentity, done: int, now: float) -> Lag:
        if self._listing is None:
            self._listing = Listing.of(identity.source, all_suffixes())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReadWarning)  # the ingestion tells of them
            listed = self._listing.sightings()
        log = self._landing_log()
        waiting = [file for file in listed.files if file != log.seen(file.path)]
        return Lag(
            waiting=len(waiting),
            waiting_bytes=sum(file.size for file in waiting),
            oldest_seconds=max(0.0, now - min(map(_arrived, waiting), default=now)),
            running=sum(len(log.files(number)) for number in range(max(done, log.merged) + 1, log.newest() + 1)),
        )

    def _landing_log(self) -> LandingLog:
        """The landing log; loaded anew when it has grown."""
        newest = LandingLog(self._checkpoint.landing).newest()
        if self._log is None or self._log[0] != newest:
            self._log = newest, LandingLog(self._checkpoint.landing)
        return self._log[1]


def _optional(read: Callable[[], _T], problems: list[str]) -> _T | None:
    """The value that ``read`` gives, or None and the reason why not among ``problems``."""
    try:
        return read()
    except (ChunkmillError, OSError) as error:
        problems.append(str(error))
        return None


def _facts(version: RecordingsVersion, identity: IngestIdentity | None) -> BatchFacts:
    number = version.batches.get(identity.query_id if identity else "")
    return BatchFacts(
        number=max(version.batches.values(), default=0) if number is None else number,
        committed=version.created,
        version=version.number,
        files=dict(version.files),
        bytes=version.bytes_in,
        seconds=version.seconds,
    )


def _rate(ingests: Sequence[RecordingsVersion], now: float, window: float) -> Rate:
    """Sums of the versions of the last ``window`` seconds."""
    if not ingests:
        return Rate(window, 0, 0, 0)
    recent = [v for v in ingests if v.created > now - window]
    life = now - (ingests[0].created - ingests[0].seconds)
    return Rate(
        window=min(window, max(life, 1.0)),
        files=sum(sum(v.files.values()) for v in recent),
        bytes=sum(v.bytes_in for v in recent),
        batches=len(recent),
    )


def _arrived(file: LandedFile) -> float:
    """When a file came to where it is: a move and a copy may keep the time of modification of years ago."""
    try:
        changed = file.modified_ns if is_url(file.path) else Path(file.path).stat().st_ctime_ns
    except OSError:
        changed = file.modified_ns
    return max(file.modified_ns, changed) / 1e9
