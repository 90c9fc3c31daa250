"""The events of an ingestion: the listeners that are told of them, and the log.

The log consists of records of the standard library's ``logging``, under ``chunkmill.ingest``. Each record's message is
a line for people; its attribute ``ingest`` is the same as plain data: ``event``, ``query_id``, and what the event is
about. An application hooks in by the handlers of that logger; nothing is printed unasked (:func:`logging_to` prints:
JSON for machines, plain text for people).
"""

from __future__ import annotations

import json
import logging
import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TextIO

from ..errors import ChunkmillError, ReadWarning
from ..limits import as_text
from ..units import counted, duration, utc_time
from ..units import size as _size
from .files import BatchResult, FileResult, Outcome

LOGGER: Final = "chunkmill.ingest"
_ROOT: Final = "chunkmill"
_WARNINGS: Final = "chunkmill.warnings"
_TAKEN: Final = (Outcome.ADDED, Outcome.REPLACED)


class IngestListener(Protocol):
    """Who wants to know what an ingestion does. Called on its threads; must not raise and must not take long."""

    def started(self, query_id: str, source: str, home: str) -> None:
        """The ingestion of ``source`` has begun; ``home`` is the store."""

    def looked(self, ready: int, waiting: int, oldest_seconds: float) -> None:
        """The landing folder was listed: files to take, files that must settle first, seconds the oldest waits."""

    def batch_began(self, number: int, files: int, size: int) -> None:
        """A batch of ``files`` files with ``size`` bytes begins."""

    def batch_done(self, result: BatchResult) -> None:
        """A batch is committed."""

    def batch_failed(self, number: int, error: Exception) -> None:
        """A batch failed as a whole; it will be tried again by the next start."""

    def stopped(self, reason: str) -> None:
        """The ingestion has ended."""


class IngestLog(IngestListener):
    """Writes the log. Files that became what they should have a record only with ``every_file``, or at debug level."""

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
            for found in result.files:
                self._file(result, found)
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

    def _file(self, result: BatchResult, found: FileResult) -> None:
        error: dict[str, Any] = found.error or {}
        failure: dict[str, Any] = {"error_code": error.get("code"), "error": error} if error else {}
        where = found.file.path
        if found.outcome is Outcome.QUARANTINED:
            level, text = logging.WARNING, f"{where}: quarantined: {error.get('message', 'it failed')}"
        elif found.outcome is Outcome.DUPLICATE:
            level, text = self._usual, f"{where}: duplicate, its content is there already"
        elif found.outcome in _TAKEN:
            level, text = self._usual, f"{where}: {found.outcome}, {found.rows:,} rows in {found.chunks:,} chunks"
        else:
            level, text = logging.INFO, f"{where}: {found.outcome} before it was taken"
        self._log(
            level,
            "file",
            text,
            query_id=result.query_id,
            batch=result.number,
            file=where,
            bytes=found.file.size,
            outcome=found.outcome.value,
            digest=found.digest,
            recordings=list(found.recordings),
            chunks=found.chunks,
            rows=found.rows,
            bytes_out=found.bytes_out,
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
        "bytes": sum(found.file.size for found in result.files),
        "bytes_out": sum(found.bytes_out for found in result.files),
        "recordings": sum(len(found.recordings) for found in result.files),
        "chunks": sum(found.chunks for found in result.files),
        "rows": sum(found.rows for found in result.files),
    }


def _outcomes(result: BatchResult) -> list[tuple[str, int]]:
    counts = Counter(found.outcome for found in result.files)
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
        return f"batch {result.number}: was there already, version {result.version}"
    outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in _outcomes(result)) or "no files"
    return (
        f"batch {result.number}: {outcomes}; {_size(sums['bytes'])} -> {_size(sums['bytes_out'])}, "
        f"{sums['rows']:,} rows in {sums['chunks']:,} chunks; {duration(result.seconds)}, version {result.version}"
    )


class JsonFormatter(logging.Formatter):
    """A record as one JSON object on one line, in ASCII.

    ``time`` (RFC 3339, UTC), ``level``, ``logger``, ``message``; then what the record has as its ``ingest``; ``trace``
    where it was logged with an exception. A name that is no text has its odd bytes spelled out (``\\\\udcff``), since
    many a reader of JSON refuses lone surrogates; numbers that JSON does not have are null.
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
    """A record on one line: time, message; its level where that is more than information.

    ``encoding`` is that of the stream; what it cannot say is spelled out, as are control characters.
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
    """Write what ``chunkmill`` logs to ``stream`` (stderr) for as long as the block runs.

    Warnings of what was read become records, too, each time. An application that has handlers of its own does not need
    this.
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
    """A value as JSON can say it, whatever it is."""
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
