"""The events, status and Prometheus metrics of an ingestion.

The log consists of records of the standard library's ``logging``, under ``chunkmill.ingest``. Each record's message is
a line for people; its attribute ``ingest`` is the same as plain data: ``event``, ``query_id``, and the event's own
fields. An application adds handlers to that logger; nothing is printed by default (:func:`logging_to` prints JSON for
machines, or plain text for people).
"""

from __future__ import annotations

import json
import logging
import math
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self, TextIO, TypeVar

from prometheus_client import CollectorRegistry, Gauge, Histogram, Info, ProcessCollector, start_http_server
from prometheus_client import Counter as PrometheusCounter

from ...readers import all_suffixes, lands_whole
from ..errors import ChunkmillError, ReadError, ReadWarning, SourceMissingError, UsageError
from ..execution import Holder, lease_holder
from ..limits import as_text
from ..locations import Location
from ..recordings import RecordingsFolder, RecordingsVersion
from ..storage import ObjectUrl, is_url
from ..units import counted, duration, rows_in_chunks, utc_time
from ..units import size as _size
from .checkpoint import Checkpoint, IngestIdentity, home_of
from .files import BatchResult, FileResult, LandedFile, Outcome
from .landing import Listing
from .landing_log import LandingLog
from .quarantine import FileQuarantine

LOGGER: Final = "chunkmill.ingest"
_ROOT: Final = "chunkmill"
_WARNINGS: Final = "chunkmill.warnings"
_TAKEN: Final = (Outcome.ADDED, Outcome.REPLACED)


class IngestListener(Protocol):
    """Receives the events of an ingestion, on its threads. Methods must return quickly and not raise."""

    def started(self, query_id: str, source: str, home: str) -> None:
        """The ingestion of ``source`` has begun; ``home`` is the store."""

    def looked(self, ready: int, waiting: int, oldest_seconds: float) -> None:
        """The landing folder was listed.

        ``ready`` is the number of files that can be ingested, ``waiting`` of those that changed too recently.
        ``oldest_seconds`` is the longest wait.
        """

    def batch_began(self, number: int, files: int, size: int) -> None:
        """A batch of ``files`` files with ``size`` bytes begins."""

    def batch_done(self, result: BatchResult) -> None:
        """A batch is committed."""

    def batch_failed(self, number: int, error: Exception) -> None:
        """A batch failed as a whole; the next start retries it."""

    def stopped(self, reason: str) -> None:
        """The ingestion has ended."""


class IngestLog(IngestListener):
    """Logs the events of an ingestion. Successful files are logged only with ``every_file``, or at debug level."""

    def __init__(self, *, every_file: bool = False) -> None:
        self._logger = logging.getLogger(LOGGER)
        self._usual = logging.INFO if every_file else logging.DEBUG
        self._query: dict[str, Any] = {}

    def started(self, query_id: str, source: str, home: str) -> None:
        """See :class:`IngestListener`."""
        self._query = {"query_id": query_id}
        self._log(logging.INFO, "started", f"taking {source} into {home}", source=source, store=home)

    def looked(self, ready: int, waiting: int, oldest_seconds: float) -> None:
        """See :class:`IngestListener`."""
        text = f"{counted(ready, 'file')} ready, {waiting:,} waiting, the oldest for {duration(oldest_seconds)}"
        self._log(logging.DEBUG, "looked", text, ready=ready, waiting=waiting, oldest_seconds=oldest_seconds)

    def batch_began(self, number: int, files: int, size: int) -> None:
        """See :class:`IngestListener`."""
        text = f"batch {number}: {counted(files, 'file')} with {_size(size)} begin"
        self._log(logging.DEBUG, "batch_began", text, batch=number, files=files, bytes=size)

    def batch_done(self, result: BatchResult) -> None:
        """See :class:`IngestListener`."""
        if not result.replayed:
            for file_result in result.files:
                self._file(result, file_result)
        sums = _sums(result)
        self._log(
            logging.INFO,
            "batch_done",
            _batch_line(result, sums),
            query_id=result.query_id,
            batch=result.number,
            version=result.version,
            seconds=result.seconds,
            replayed=result.replayed,
            files=len(result.files),
            outcomes=dict(_outcomes(result)),
            **sums,
        )

    def _file(self, result: BatchResult, file_result: FileResult) -> None:
        error: dict[str, Any] = file_result.error or {}
        failure: dict[str, Any] = {"error_code": error.get("code"), "error": error} if error else {}
        where = file_result.file.path
        if file_result.outcome is Outcome.QUARANTINED:
            level, text = logging.WARNING, f"{where}: quarantined: {error.get('message', 'it failed')}"
        elif file_result.outcome is Outcome.DUPLICATE:
            level, text = self._usual, f"{where}: duplicate, its content is already in the store"
        elif file_result.outcome in _TAKEN:
            level, text = (
                self._usual,
                f"{where}: {file_result.outcome}, {rows_in_chunks(file_result.rows, file_result.chunks)}",
            )
        else:
            level, text = logging.INFO, f"{where}: {file_result.outcome} before it was ingested"
        self._log(
            level,
            "file",
            text,
            query_id=result.query_id,
            batch=result.number,
            file=where,
            bytes=file_result.file.size,
            outcome=file_result.outcome.value,
            digest=file_result.digest,
            recordings=list(file_result.recordings),
            chunks=file_result.chunks,
            rows=file_result.rows,
            bytes_out=file_result.bytes_out,
            **failure,
        )

    def batch_failed(self, number: int, error: Exception) -> None:
        """See :class:`IngestListener`."""
        self._log(
            logging.ERROR,
            "batch_failed",
            f"batch {number} failed: {error}",
            trace=None if isinstance(error, ChunkmillError) else error,
            batch=number,
            error_code=error.code if isinstance(error, ChunkmillError) else type(error).__name__,
            error=error.to_dict() if isinstance(error, ChunkmillError) else {"message": str(error)},
        )

    def stopped(self, reason: str) -> None:
        """See :class:`IngestListener`."""
        said = "failed" if reason.startswith("failed: ") else reason  # the record before this one says why
        self._log(logging.INFO, "stopped", f"stopped: {said}", reason=reason)

    def _log(self, level: int, event: str, text: str, *, trace: Exception | None = None, **fields: Any) -> None:
        data = {"event": event, **self._query, **fields}
        self._logger.log(level, "%s", text, extra={"ingest": data}, exc_info=trace)


def _sums(result: BatchResult) -> dict[str, Any]:
    return {
        "bytes": sum(file_result.file.size for file_result in result.files),
        "bytes_out": sum(file_result.bytes_out for file_result in result.files),
        "recordings": sum(len(file_result.recordings) for file_result in result.files),
        "chunks": sum(file_result.chunks for file_result in result.files),
        "rows": sum(file_result.rows for file_result in result.files),
    }


def _outcomes(result: BatchResult) -> list[tuple[str, int]]:
    counts = Counter(file_result.outcome for file_result in result.files)
    return [(outcome.value, counts[outcome]) for outcome in Outcome if counts[outcome]]


def _batch_line(result: BatchResult, sums: dict[str, Any]) -> str:
    """A batch on one line.

    >>> from .files import LandedFile
    >>> done = FileResult(LandedFile("a.mcap", 5_000_000, 0), Outcome.ADDED, None, ("a",), 3, 1200, 900_000)
    >>> result = BatchResult("q", 7, 8, (done, FileResult(LandedFile("b", 10, 0), Outcome.DUPLICATE)), 0.42)
    >>> _batch_line(result, _sums(result))
    'batch 7: 1 added, 1 duplicate; 5.0 MB -> 900.0 kB, 1,200 rows in 3 chunks; 0.42 s, version 8'
    """
    if result.replayed:
        return f"batch {result.number}: already committed, version {result.version}"
    outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in _outcomes(result)) or "no files"
    return (
        f"batch {result.number}: {outcomes}; {_size(sums['bytes'])} -> {_size(sums['bytes_out'])}, "
        f"{rows_in_chunks(sums['rows'], sums['chunks'])}; {duration(result.seconds)}, version {result.version}"
    )


class JsonFormatter(logging.Formatter):
    """A record as one JSON object on one line, in ASCII.

    ``time`` (RFC 3339, UTC), ``level``, ``logger``, ``message``; then the fields of the record's ``ingest``; ``trace``
    if it was logged with an exception. Bytes of a name that are no text are escaped (``\\\\udcff``), since many JSON
    readers refuse lone surrogates; numbers that JSON lacks are null.
    """

    def format(self, record: logging.LogRecord) -> str:
        """See :class:`JsonFormatter`."""
        line = {
            "time": utc_time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "ingest", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(_plain(line), allow_nan=False)


class TextFormatter(logging.Formatter):
    """A record on one line: time, message; its level if that is above information.

    ``encoding`` is the stream's encoding; characters that it lacks and control characters are escaped.
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__()
        self._encoding = encoding

    def format(self, record: logging.LogRecord) -> str:
        """See :class:`TextFormatter`."""
        level = f"{record.levelname.lower()}: " if record.levelno > logging.INFO else ""
        text = f"{utc_time(record.created, 'seconds')} {level}{' '.join(record.getMessage().split())}"
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
        return text.encode(self._encoding, "backslashreplace").decode(self._encoding)


@contextmanager
def logging_to(
    stream: TextIO | None = None, *, as_json: bool = False, level: int = logging.INFO
) -> Iterator[logging.Handler]:
    """Write the log of ``chunkmill`` to ``stream`` (stderr) during the block.

    Warnings about sources are logged, too, each time. Applications with their own logging handlers do not need this.
    """
    target = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(target)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter(target.encoding or "utf-8"))
    logger = logging.getLogger(_ROOT)
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", ReadWarning)
            warnings.showwarning = _as_records(warnings.showwarning)
            yield handler
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
        handler.flush()


def _as_records(show: Callable[..., None]) -> Callable[..., None]:
    """Show warnings of this project as records, others as ``show`` does."""

    def shown(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, ReadWarning):
            data = {"event": "warning", "warning": category.__name__}
            logging.getLogger(_WARNINGS).warning("%s", message, extra={"ingest": data})
        else:
            show(message, category, *place, **more)

    return shown


def _plain(value: Any) -> Any:
    """Convert any value to one that JSON can represent."""
    if isinstance(value, str):
        return as_text(value)
    if isinstance(value, dict):
        return {_plain(str(key)): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    return _plain(str(value))


WINDOWS: Final = (60.0, 900.0)
"""The lengths of time over which rates are reported, in seconds."""

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
    """Totals over the last ``window`` seconds, or since the store exists."""

    window: float
    files: int
    bytes: int
    batches: int

    @property
    def files_per_second(self) -> float:
        """Files per second, whatever their outcome."""
        return self.files / self.window if self.window > 0 else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Bytes of these files per second."""
        return self.bytes / self.window if self.window > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Lag:
    """The files of the landing folder that are not in the store.

    ``waiting`` files with ``waiting_bytes`` were not taken yet; the oldest of them arrived, or changed,
    ``oldest_seconds`` ago. ``running`` files are in a batch that is not committed.
    """

    waiting: int
    waiting_bytes: int
    oldest_seconds: float
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestStatus:
    """The status of an ingestion. ``files`` counts all files so far, by outcome.

    ``batches`` counts the batches of all ingestions into the store. ``holder`` is the process that runs this ingestion
    now, or else one that compacts or vacuums the store. None means unknown or missing.
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
    """Reads the status of one ingestion repeatedly; it caches data that cannot change.

    ``location`` is the store or the folder of RRDs, ``checkpoint`` the checkpoint if it is elsewhere. Raises
    ``SourceMissingError`` if nothing was ingested there.
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
        """Return the current status. Raises ``ReadError`` if the store itself is damaged."""
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
        versions: list[RecordingsVersion] = []
        while numbers:
            numbers, part = numbers[:-_AT_ONCE], numbers[-_AT_ONCE:]
            versions = self._read(part) + versions
            is_early = bool(versions) and versions[0].created < now - max(WINDOWS)
            if is_early and any(v.operation == _INGEST for v in versions):
                break
        return versions

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
            self._listing = Listing.of(identity.source, all_suffixes(), lands_whole)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReadWarning)  # the ingestion reports them
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
    """Return the value of ``read``; or None, and add the reason to ``problems``."""
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
    """When a file arrived: its time of modification may be years older, as a move or a copy can keep it."""
    try:
        changed = file.modified_ns if is_url(file.path) else Path(file.path).stat().st_ctime_ns
    except OSError:
        changed = file.modified_ns
    return max(file.modified_ns, changed) / 1e9


HOST: Final = "127.0.0.1"
"""The default address of metrics. Everyone who can reach the port can read them."""

_PREFIX: Final = "chunkmill_ingest"
_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class IngestMetrics(IngestListener):
    """Counts events since the start of this process, in its own registry. Thread-safe.

    A batch committed before a crash counts as replayed, and its files are not counted again. ``quarantined`` returns
    the number of files in quarantine; it is called whenever the metrics are fetched.
    """

    def __init__(self, quarantined: Callable[[], int] | None = None) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._info = Info(_PREFIX, "The ingestion, its source and destination.", registry=self.registry)
        self._files = self._counter("files", "Files by outcome.", ["outcome"])
        for outcome in Outcome:
            self._files.labels(outcome.value)
        self._recordings = self._counter("recordings", "Recordings that were added or replaced.")
        self._chunks = self._counter("chunks", "Chunks of these recordings.")
        self._rows = self._counter("rows", "Rows of these chunks.")
        self._bytes_in = self._counter("read_bytes", "Bytes of the files with these recordings.")
        self._bytes_out = self._counter("written_bytes", "Bytes of these recordings in the store.")
        self._batches = self._counter("batches", "Batches that were committed.")
        self._replayed = self._counter("batches_replayed", "Batches that were already committed before a restart.")
        self._failures = self._counter("batch_failures", "Batches that failed as a whole.")
        self._seconds = Histogram(
            f"{_PREFIX}_batch_seconds", "Seconds per batch.", buckets=_SECONDS, registry=self.registry
        )
        self._up = self._gauge("up", "1 while the ingestion runs.")
        self._number = self._gauge("last_batch_number", "The number of the last committed batch.")
        self._committed = self._gauge("last_batch_timestamp_seconds", "Unix time of the last commit.")
        self._version = self._gauge("store_version", "Version of the store after the last commit.")
        self._looked = self._gauge("last_look_timestamp_seconds", "Unix time of the last listing of the folder.")
        self._ready = self._gauge("ready_files", "Files ready to be ingested.")
        self._waiting = self._gauge("waiting_files", "Files that changed too recently.")
        self._oldest = self._gauge("oldest_waiting_seconds", "Age of the oldest waiting file, in seconds.")
        self._running_files = self._gauge("running_batch_files", "Files of the running batch.")
        self._running_bytes = self._gauge("running_batch_bytes", "Bytes of the running batch.")
        if quarantined is not None:
            in_quarantine = self._gauge("quarantined_files", "Files in quarantine.")
            in_quarantine.set_function(lambda: _number_or_nan(quarantined))

    def _counter(self, name: str, meaning: str, labels: list[str] | None = None) -> PrometheusCounter:
        return PrometheusCounter(f"{_PREFIX}_{name}", meaning, labels or [], registry=self.registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", meaning, registry=self.registry)

    def started(self, query_id: str, source: str, home: str) -> None:
        """See :class:`IngestListener`."""
        self._info.info({"query_id": query_id, "source": as_text(source), "store": as_text(home)})
        self._up.set(1)

    def looked(self, ready: int, waiting: int, oldest_seconds: float) -> None:
        """See :class:`IngestListener`."""
        self._ready.set(ready)
        self._waiting.set(waiting)
        self._oldest.set(oldest_seconds)
        self._looked.set_to_current_time()

    def batch_began(self, number: int, files: int, size: int) -> None:
        """See :class:`IngestListener`."""
        del number
        self._running_files.set(files)
        self._running_bytes.set(size)

    def batch_done(self, result: BatchResult) -> None:
        """See :class:`IngestListener`."""
        self._batch_over()
        self._number.set(result.number)
        self._committed.set_to_current_time()
        self._version.set(result.version)
        if result.replayed:
            self._replayed.inc()
            return
        self._batches.inc()
        self._seconds.observe(result.seconds)
        for file_result in result.files:
            self._files.labels(file_result.outcome.value).inc()
            self._recordings.inc(len(file_result.recordings))
            self._chunks.inc(file_result.chunks)
            self._rows.inc(file_result.rows)
            self._bytes_out.inc(file_result.bytes_out)
            if file_result.outcome in (Outcome.ADDED, Outcome.REPLACED):
                self._bytes_in.inc(file_result.file.size)

    def batch_failed(self, number: int, error: Exception) -> None:
        """See :class:`IngestListener`."""
        del number, error
        self._batch_over()
        self._failures.inc()

    def stopped(self, reason: str) -> None:
        """See :class:`IngestListener`."""
        del reason
        self._batch_over()
        self._up.set(0)

    def _batch_over(self) -> None:
        self._running_files.set(0)
        self._running_bytes.set(0)


class MetricsServer:
    """Serves metrics at ``http://host:port/metrics`` until it is closed; a context manager.

    Port 0 selects a free port; ``port`` is the number of that port. Raises ``UsageError`` if another program uses the
    port, or if the address does not belong to this host. There is no TLS and no password: every program that can reach
    the address can read the metrics.
    """

    def __init__(self, metrics: IngestMetrics, port: int, host: str = HOST) -> None:
        try:
            self._server, self._thread = start_http_server(port, host, metrics.registry)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(
                f"metrics cannot be served at {host}:{port}: {reason[:1].lower()}{reason[1:]}",
                hint="Give another port with --metrics-port; 0 means any free port.",
            ) from error
        self.host = host
        self.port: int = self._server.server_port

    @property
    def url(self) -> str:
        """The address of the metrics."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/metrics"

    def close(self) -> None:
        """Stop serving, and free the port."""
        if threading.current_thread() is not self._thread and self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _number_or_nan(count: Callable[[], Any]) -> float:
    try:
        return float(count())
    except Exception:  # noqa: BLE001 (the other metrics are served all the same)
        return math.nan
